"""Every fault we know of, planted in a folder of class folders, each with what a check should say of it."""

import io
import os
import random
import shutil
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageOps

# Pictures of the clean folder have lower numbers.
_FIRST = 1_000_000
_BLANK = 12


# JPEG has no checksum: a decoder reads on with other pixels, and nothing in the file says that they are wrong.
UNKNOWABLE = "cannot be known"


@dataclass(frozen=True)
class Fault:
    """A planted fault: the heading under which it should be told, and the files it is about.

    A note has a word instead of a file, a class its name; of two names that are twins either may be told.
    """

    kind: str
    heading: str
    files: tuple[str, ...]


def drawn_picture(number: int) -> Image.Image:
    """A picture of soft colours, shapes and grain that no other number gives."""
    rng = np.random.default_rng(number)
    size = (int(rng.integers(160, 420)), int(rng.integers(160, 420)))
    image = Image.fromarray(rng.integers(0, 256, (5, 5, 3), dtype=np.uint8)).resize(size, Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(image)
    for shape in range(int(rng.integers(3, 9))):
        left, top = rng.integers(-40, size[0]), rng.integers(-40, size[1])
        box = [int(left), int(top), int(left + rng.integers(20, 180)), int(top + rng.integers(20, 180))]
        colour = tuple(rng.integers(0, 256, 3).tolist())
        (draw.ellipse if shape % 2 else draw.rectangle)(box, fill=colour)
    grain = rng.normal(0, 6, (size[1], size[0], 1))
    return Image.fromarray(np.clip(np.asarray(image) + grain, 0, 255).astype(np.uint8))


def plant(root: Path) -> list[Fault]:
    """Add all faults to a clean folder; pictures that are copied from are those of the clean folder."""
    planter = _Planter(root)
    parts = (_unreadable, _odd_but_fine, _several_frames, _copies, _conflicts, _names, _folders)
    return [fault for part in parts for fault in part(planter)]


class _Planter:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.random = random.Random(0)
        self._number = _FIRST
        self._originals = {
            split: sorted(path for path in (root / split).rglob("*.jpg")) for split in ("train", "val", "test")
        }
        for paths in self._originals.values():
            self.random.shuffle(paths)

    def picture(self) -> Image.Image:
        self._number += 1
        return drawn_picture(self._number)

    def original(self, split: str) -> Path:
        """A picture of the clean folder; each is used once, and nearly blank ones, which look like others, never."""
        while True:
            path = self._originals[split].pop()
            with Image.open(path) as image:
                if np.asarray(image.convert("L").resize((16, 16))).std() > _BLANK:
                    return path

    def path(self, name: str, split: str = "train", label: str = "cat") -> Path:
        return self.root / split / label / name

    def encoded(self, form: str, **options: object) -> bytes:
        return encoded(self.picture(), form, **options)


def encoded(image: Image.Image, form: str, **options: object) -> bytes:
    """The bytes of an image in a format."""
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def _unreadable(planter: _Planter) -> Iterator[Fault]:
    for form, ending in (("JPEG", "jpg"), ("PNG", "png"), ("WEBP", "webp")):
        for number in range(10):
            whole = planter.encoded(form)
            cut = planter.random.randrange(1, len(whole) - 16)
            yield _file(planter, f"truncated {form}", f"cut-{number}.{ending}", whole[:cut])
    for number in range(5):
        broken = bytearray(planter.encoded("PNG"))
        broken[len(broken) // 2 + number] ^= 0xFF
        yield _file(planter, "PNG with a flipped byte", f"flipped-{number}.png", bytes(broken))
    for number in range(20):
        broken = bytearray(planter.encoded("JPEG", quality=90))
        broken[planter.random.randrange(len(broken) // 10, len(broken) - 2)] ^= 0x55
        yield _file(planter, "JPEG with a flipped byte", f"flipped-{number}.jpg", bytes(broken), UNKNOWABLE)
    for number in range(3):
        yield _file(planter, "file of 0 bytes", f"empty-{number}.jpg", b"")
        yield _file(planter, "HTML named .jpg", f"page-{number}.jpg", b"<!doctype html><title>404</title>")
    yield _file(planter, "text named .png", "text.png", b"not an image at all\n" * 20)
    blank = Image.new("1", (12_000, 12_000))
    yield _file(planter, "decompression bomb", "bomb.png", encoded(blank, "PNG", optimize=True))
    yield _file(planter, "1 pixel wide, 5,000 high", "line.png", encoded(Image.new("L", (1, 5_000)), "PNG"))
    yield _file(planter, "2 pixels high, 5,000 wide", "bar.png", encoded(Image.new("L", (5_000, 2)), "PNG"))
    numbers = Image.fromarray(np.random.default_rng(0).random((64, 64), dtype=np.float32))
    yield _file(planter, "floating-point TIFF", "float.tif", encoded(numbers, "TIFF"))
    yield from _links(planter)


def _links(planter: _Planter) -> Iterator[Fault]:
    dead, loop = planter.path("dead.jpg"), planter.path("loop.jpg")
    dead.symlink_to("nowhere.jpg")
    loop.symlink_to(loop.name)
    yield Fault("dead link", "bad", (str(dead),))
    yield Fault("link to itself", "bad", (str(loop),))
    # Root reads everything.
    if os.geteuid() != 0:
        locked = planter.path("locked.jpg")
        locked.write_bytes(planter.encoded("JPEG"))
        locked.chmod(0)
        yield Fault("no permission to read", "bad", (str(locked),))


def _file(planter: _Planter, kind: str, name: str, content: bytes, heading: str = "bad") -> Fault:
    path = planter.path(name)
    path.write_bytes(content)
    return Fault(kind, heading, (str(path),))


def _odd_but_fine(planter: _Planter) -> Iterator[Fault]:
    deep = Image.fromarray(np.asarray(planter.picture().convert("L")).astype(np.uint16) * 257)
    yield _file(planter, "16-bit grey", "deep.png", encoded(deep, "PNG"), "fine")
    yield _file(planter, "CMYK", "cmyk.jpg", encoded(planter.picture().convert("CMYK"), "JPEG"), "fine")
    yield _file(planter, "grey with alpha", "la.png", encoded(planter.picture().convert("LA"), "PNG"), "fine")
    yield _file(planter, "palette", "palette.gif", encoded(planter.picture().convert("P"), "GIF"), "fine")
    yield _file(planter, "1-bit", "bit.png", encoded(planter.picture().convert("1"), "PNG"), "fine")
    yield _file(planter, "PNG named .jpg", "png-inside.jpg", planter.encoded("PNG"), "fine")
    yield _file(planter, "corrupt EXIF", "exif.jpg", planter.encoded("JPEG", exif=b"Exif\0\0II*\0\xff\xff"), "fine")
    for number in range(3):
        shade = (240 - 3 * number,) * 3
        blank = encoded(Image.new("RGB", (200, 200), shade), "JPEG")
        yield _file(planter, "nearly the same blank page", f"blank-{number}.jpg", blank, "fine")


def _several_frames(planter: _Planter) -> Iterator[Fault]:
    for form, ending in (("GIF", "gif"), ("WEBP", "webp"), ("TIFF", "tif")):
        first, *more = (planter.picture().resize((200, 160)) for _ in range(3))
        content = encoded(first, form, save_all=True, append_images=more)
        yield _file(planter, f"{form} of three frames", f"frames.{ending}", content, "frames")


def _copies(planter: _Planter) -> Iterator[Fault]:
    pairs = [("train", "val"), ("train", "test"), ("val", "test")]
    ways: list[tuple[str, str, Callable[[Image.Image], bytes | None]]] = [
        ("byte for byte", "exact", lambda _image: None),
        ("the pixels as PNG", "exact", lambda image: encoded(image, "PNG")),
        ("re-encoded as JPEG 60", "near", lambda image: encoded(image, "JPEG", quality=60)),
        ("re-encoded as WebP 75", "near", lambda image: encoded(image, "WEBP", quality=75)),
        ("half the size", "near", lambda image: encoded(ImageOps.scale(image, 0.5), "JPEG", quality=90)),
        ("mirrored", "near", lambda image: encoded(ImageOps.mirror(image), "JPEG", quality=90)),
    ]
    for way, kind, change in ways:
        for number in range(9):
            source, target = pairs[number % 3]
            yield _copy(planter, f"{way}, across splits", f"{kind} across", source, target, number, change)
        for number in range(9, 12):
            yield _copy(planter, f"{way}, inside train", f"{kind} within", "train", "train", number, change)


def _copy(
    planter: _Planter,
    kind: str,
    heading: str,
    source: str,
    target: str,
    number: int,
    change: Callable[[Image.Image], bytes | None],
) -> Fault:
    original = planter.original(source)
    with Image.open(original) as image:
        content = change(image.convert("RGB")) or original.read_bytes()
    word = "".join(letter for letter in kind if letter.isalnum())
    path = planter.path(f"copy-{word}-{number}.img", target, original.parent.name)
    path.write_bytes(content)
    return Fault(kind, heading, (str(original), str(path)))


def _conflicts(planter: _Planter) -> Iterator[Fault]:
    for number in range(5):
        original = planter.original("train")
        other = "dog" if original.parent.name != "dog" else "cat"
        path = planter.path(f"two-labels-{number}.jpg", label=other)
        shutil.copy(original, path)
        yield Fault("same pixels, two labels", "conflict", (str(original), str(path)))


def _names(planter: _Planter) -> Iterator[Fault]:
    named = {
        "a space in front": " front.jpg",
        "a space behind": "behind.jpg ",
        "a line break": "line\nbreak.jpg",
        "a bell": "bell\a.jpg",
        "text turned around": "cod\u202egpj.exe.jpg",
        "230 bytes": "n" * 226 + ".jpg",
        "bytes that are no UTF-8": os.fsdecode(b"latin-\xe9.jpg"),
    }
    for kind, name in named.items():
        yield _file(planter, f"name with {kind}", name, planter.encoded("JPEG"), "name")
    twins = {
        "names that differ in capitals": ("Twin.jpg", "twin.jpg"),
        "names in NFC and NFD": tuple(unicodedata.normalize(form, "café.jpg") for form in ("NFC", "NFD")),
    }
    for kind, names in twins.items():
        files = [_file(planter, kind, name, planter.encoded("JPEG")).files[0] for name in names]
        yield Fault(kind, "name", tuple(files))


def _folders(planter: _Planter) -> Iterator[Fault]:
    train = planter.root / "train"
    for name in (".hidden", "__MACOSX"):
        (train / name).mkdir()
        (train / name / "x.jpg").write_bytes(planter.encoded("JPEG"))
        yield Fault("folder that is no class", "note", (name,))
    merged = train / unicodedata.normalize("NFD", "고양이")
    merged.mkdir()
    (merged / "nfd.jpg").write_bytes(planter.encoded("JPEG"))
    yield Fault("class in NFC and NFD", "note", ("spelled differently in Unicode",))
    yield Fault("class in NFC and NFD", "name", (str(merged), str(train / "고양이")))
    (train / "Cat").mkdir()
    (train / "Cat" / "capital.jpg").write_bytes(planter.encoded("JPEG"))
    yield Fault("classes that differ in capitals", "note", ("differ only in capitals",))
    yield Fault("classes that differ in capitals", "name", (str(train / "cat"), str(train / "Cat")))
    (train / "dog" / "labels.txt").write_text("not an image")
    yield Fault("a text beside the images", "note", ("labels.txt",))
    (train / "empty").mkdir()
    yield Fault("class without images", "class", ("empty",))
    stranger = planter.root / "val" / "zebra"
    stranger.mkdir()
    (stranger / "z.jpg").write_bytes(planter.encoded("JPEG"))
    yield Fault("class that training does not know", "class", ("zebra",))
