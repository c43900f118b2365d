"""Folders of images with one thing wrong in each, and what is true of them."""

import struct
import unicodedata
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

# The file in question; no folder is called like it, so that an error that holds the name names the file.
FILE = "photo17"


@dataclass(frozen=True, kw_only=True)
class BadInput:
    """One bad input: class folders in which one file is special, or the folders are."""

    name: str
    make: Callable[[Path], None]
    file: str = ""
    """The special file, relative to the folder; its class is "a"."""
    classes: tuple[str, ...] = ("a", "b")
    """The classes that are truly there."""
    images: int = 0
    """How many images are truly there, where that is in question."""
    mean: float | None = None
    """The true mean of its pixels, where it should be read."""
    size: tuple[int, int] | None = None
    """Its true width and height when upright."""
    named: str = FILE
    """What a helpful error holds, and how to call it when it does and when it does not."""
    calls: tuple[str, str] = ("named", "no file name")
    is_bomb: bool = False


def _good(folder: Path, name: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (64, 48), (200, 200, 200)).save(path)


def _both(folder: Path) -> None:
    """A sound image in each class; in sorted order the special file stands between them."""
    _good(folder, "a/1.jpg")
    _good(folder, "b/1.jpg")


def _put(name: str, content: bytes) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        _both(folder)
        (folder / name).write_bytes(content)

    return make


def _save(name: str, image: Callable[[], Image.Image], **options: Any) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        _both(folder)
        made = {key: value() if callable(value) else value for key, value in options.items()}
        image().save(folder / name, **made)

    return make


def _ramp() -> np.ndarray:
    return np.linspace(0, 1, 64 * 48).reshape(48, 64)


def _grey() -> Image.Image:
    return Image.fromarray(np.round(_ramp() * 255).astype(np.uint8)).convert("RGB")


def _cut(folder: Path) -> None:
    _save(f"a/{FILE}.jpg", _grey, quality=95)(folder)
    path = folder / "a" / f"{FILE}.jpg"
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 6 // 10])


def _dead_link(folder: Path) -> None:
    _both(folder)
    (folder / "a" / f"{FILE}.jpg").symlink_to(folder / "gone.jpg")


def _half_transparent() -> Image.Image:
    """Left: opaque black; right: fully transparent, with black stored where nobody sees it."""
    alpha = np.zeros((48, 64, 4), np.uint8)
    alpha[:, :32, 3] = 255
    return Image.fromarray(alpha)


def _exif(*more: tuple[int, int, bytes]) -> bytes:
    """An EXIF block that says orientation 6, and more tags of one value each: number, type, value."""
    tags = sorted([(0x0112, 3, struct.pack("<HH", 6, 0)), *more])
    packed = b"".join(struct.pack("<HHI4s", tag, kind, 1, value) for tag, kind, value in tags)
    return b"Exif\0\0" + struct.pack("<2sHIH", b"II", 42, 8, len(tags)) + packed + bytes(4)


def _frames() -> list[Image.Image]:
    return [Image.new("RGB", (64, 48), (level, level, level)) for level in (64, 192, 255)]


def _with_nan() -> Image.Image:
    values = _ramp().astype(np.float32)
    values[0, :8] = np.nan
    return Image.fromarray(values)


def bomb(side: int) -> bytes:
    """A small 1-bit PNG that decodes to side x side black pixels."""
    packer = zlib.compressobj(9)
    rows = bytes(1 + -(-side // 8)) * 100
    packed = b"".join(packer.compress(rows) for _ in range(side // 100)) + packer.flush()
    chunks = {b"IHDR": struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0), b"IDAT": packed, b"IEND": b""}
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks.items()
    )


def _litter(folder: Path) -> None:
    _both(folder)
    _good(folder, ".thumbnails/1.jpg")
    (folder / "__MACOSX" / "a").mkdir(parents=True)
    # What the Finder puts into every zip: the name of a picture, but not its content.
    (folder / "__MACOSX" / "a" / "._1.jpg").write_bytes(b"\0\5\x16\7\0\2\0\0Mac OS X        " + bytes(64))


def _empty_class(folder: Path) -> None:
    _good(folder, "a/1.jpg")
    _good(folder, "c/1.jpg")
    (folder / "birds").mkdir()


def _flat(folder: Path) -> None:
    for number in range(3):
        _good(folder, f"{number}.jpg")


def _two_spellings(folder: Path) -> None:
    for number, form in enumerate(("NFC", "NFD")):
        _good(folder, f"{unicodedata.normalize(form, '고양이')}/{number}.jpg")
    _good(folder, "개/1.jpg")


def _huge(name: str, side: int) -> BadInput:
    content = bomb(side)
    title = f"{name} PNG of {len(content) / 1000:.0f} kB"
    return BadInput(name=title, make=_put(f"a/{FILE}.png", content), file=f"a/{FILE}.png", is_bomb=True)


def _turned(name: str, exif: bytes) -> BadInput:
    file = f"a/{FILE}.jpg"
    return BadInput(name=name, make=_save(file, _grey, exif=exif, quality=95), file=file, mean=0.5, size=(48, 64))


def bad_inputs() -> list[BadInput]:
    """Every row of the table."""
    page = b"<!DOCTYPE html><html><body><h1>404 Not Found</h1></body></html>"
    jpg, png = f"a/{FILE}.jpg", f"a/{FILE}.png"
    sixteen = _save(png, lambda: Image.fromarray(np.round(_ramp() * 65_535).astype(np.uint16)))
    frames = {"save_all": True, "append_images": lambda: _frames()[1:]}
    broken = b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + b"\xff" * 64
    return [
        BadInput(name="truncated JPEG", make=_cut, file=jpg),
        BadInput(name="empty file named .jpg", make=_put(jpg, b""), file=jpg),
        BadInput(name="HTML page named .jpg", make=_put(jpg, page), file=jpg),
        BadInput(name="link that leads nowhere", make=_dead_link, file=jpg),
        BadInput(name="PNG named .jpg", make=_save(jpg, _grey, format="PNG"), file=jpg, mean=0.5),
        BadInput(name="16-bit grey ramp", make=sixteen, file=png, mean=0.5),
        BadInput(name="half-transparent PNG, on white", make=_save(png, _half_transparent), file=png, mean=0.5),
        _turned("EXIF orientation 6", _exif()),
        # A resolution that is written as text.
        _turned("EXIF orientation 6 beside a broken tag", _exif((0x011A, 2, b"72\0\0"))),
        BadInput(name="EXIF block that breaks off", make=_save(jpg, _grey, exif=broken), file=jpg, mean=0.5),
        _huge("144-megapixel", 12_000),
        _huge("400-megapixel", 20_000),
        BadInput(
            name="animated WebP, 3 frames",
            make=_save(f"a/{FILE}.webp", lambda: _frames()[0], lossless=True, **frames),
            file=f"a/{FILE}.webp",
            mean=0.25,
        ),
        BadInput(
            name="animated GIF, 3 frames",
            make=_save(f"a/{FILE}.gif", lambda: _frames()[0], **frames),
            file=f"a/{FILE}.gif",
            mean=0.25,
        ),
        BadInput(
            name="floating-point TIFF with NaN",
            make=_save(f"a/{FILE}.tif", _with_nan),
            file=f"a/{FILE}.tif",
            mean=0.5,
        ),
        BadInput(name="`.thumbnails` and `__MACOSX` folders", make=_litter, images=2),
        BadInput(
            name="empty class `birds`",
            make=_empty_class,
            classes=("a", "birds", "c"),
            images=2,
            named="birds",
            calls=("named", "not named"),
        ),
        BadInput(
            name="images without class folders",
            make=_flat,
            classes=(),
            images=3,
            named="cats/",
            calls=("shows the layout", "does not show the layout"),
        ),
        BadInput(name="고양이 in NFC and in NFD", make=_two_spellings, classes=("개", "고양이"), images=3),
    ]
