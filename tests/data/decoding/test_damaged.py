"""Damaged, foreign, disguised and oversized files: a DataError that names the file, never another exception."""

import io
import random
import struct
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile
from tests.data.pictures import bomb, encoded, photo

from vitrail.config.decoding import DecodePolicy
from vitrail.data.decoding.decode import Decoded, decode, open_image, pixels
from vitrail.errors import DataError, UsageError

# Small, so that a flipped size in a header costs no gigabytes.
SMALL = DecodePolicy(max_pixels=100_000)


def refusal(blob: bytes, **options) -> str:
    with pytest.raises(DataError, match=r"^folder/x\.jpg: ") as caught:
        decode(blob, where="folder/x.jpg", **options)
    assert len(str(caught.value)) < 300
    return str(caught.value)


def outcome(blob: bytes) -> Decoded | DataError:
    """A decoded image or a DataError; anything else fails the test."""
    try:
        result = decode(blob, where="folder/x.jpg", policy=SMALL)
    except DataError as error:
        assert str(error).startswith("folder/x.jpg: ")
        return error
    assert result.image.mode == "RGB"
    return result


@cache
def samples() -> dict[str, bytes]:
    """Small files of every format that is read, in several of its forms."""
    generator = np.random.default_rng(0)
    picture, other = Image.fromarray(photo()), Image.fromarray(photo()[::-1])
    exif = Image.Exif()
    exif[0x0112] = 6
    grey16 = Image.fromarray(generator.integers(0, 65_536, (20, 24), dtype=np.uint16))
    palette, see_through = picture.quantize(16), picture.copy()
    see_through.putalpha(other.convert("L"))
    frames: dict = {"save_all": True, "append_images": [other]}
    return {
        "JPEG": encoded(picture, "JPEG", exif=exif),
        "JPEG progressive": encoded(picture, "JPEG", progressive=True),
        "JPEG CMYK": encoded(picture.convert("CMYK"), "JPEG"),
        "PNG": encoded(picture, "PNG", exif=exif),
        "PNG palette": encoded(palette, "PNG", transparency=3),
        "PNG 16 bit": encoded(grey16, "PNG"),
        "PNG alpha": encoded(see_through, "PNG"),
        "PNG animated": encoded(picture, "PNG", **frames),
        "WebP": encoded(picture, "WEBP", exif=exif),
        "WebP lossless": encoded(see_through, "WEBP", lossless=True),
        "WebP animated": encoded(picture, "WEBP", **frames),
        "GIF": encoded(palette, "GIF", transparency=3),
        "GIF animated": encoded(palette, "GIF", save_all=True, append_images=[other.quantize(16)]),
        "BMP": encoded(picture, "BMP"),
        "BMP palette": encoded(palette, "BMP"),
        "PPM": encoded(picture, "PPM"),
        "PGM 16 bit": encoded(grey16.convert("I"), "PPM"),
        "PGM as text": b"P2\n4 4\n255\n" + b" ".join(b"%d" % value for value in range(16)),
        "TIFF": encoded(picture, "TIFF"),
        "TIFF deflated": encoded(picture, "TIFF", compression="tiff_adobe_deflate"),
        "TIFF fax": encoded(picture.convert("1"), "TIFF", compression="group4"),
        "TIFF JPEG": encoded(picture, "TIFF", compression="jpeg"),
        "TIFF 16 bit": encoded(grey16, "TIFF"),
        "TIFF Lab": encoded(picture.convert("LAB"), "TIFF"),
        "TIFF pages": encoded(picture, "TIFF", **frames),
        "MPO": encoded(picture, "MPO", **frames),
    }


def test_the_samples_are_fine() -> None:
    for name, blob in samples().items():
        assert isinstance(outcome(blob), Decoded), name


@pytest.mark.parametrize("name", ["JPEG", "JPEG progressive", "PNG", "WebP", "WebP lossless"])
def test_a_file_cut_off_anywhere_is_damaged(name) -> None:
    """At ten random offsets, and one byte before the end; a PNG's last 12 bytes only say that it ends."""
    blob = samples()[name]
    needed = len(blob) - 12 if name == "PNG" else len(blob)
    draw = random.Random(name)
    for length in [*(draw.randrange(1, needed) for _ in range(10)), needed - 1]:
        assert isinstance(outcome(blob[:length]), DataError), f"{length} of {len(blob)} bytes"


@pytest.mark.parametrize("name", ["GIF", "BMP", "TIFF", "TIFF deflated", "PPM", "MPO"])
def test_other_formats_cut_in_half_are_damaged(name) -> None:
    blob = samples()[name]
    assert isinstance(outcome(blob[: len(blob) // 2]), DataError)


def test_flipped_bytes_of_a_png_are_noticed() -> None:
    """A PNG carries checksums, also of what still inflates; the others cannot know."""
    blob = samples()["PNG"]
    for place in range(blob.index(b"IDAT") + 4, blob.index(b"IEND") - 4):
        damaged = bytearray(blob)
        damaged[place] ^= 1 << place % 8
        assert isinstance(outcome(bytes(damaged)), DataError), place


def _cut(blob: bytearray, draw: random.Random) -> bytearray:
    return blob[: draw.randrange(len(blob))]


def _flip(blob: bytearray, draw: random.Random) -> bytearray:
    for _ in range(draw.choice((1, 2, 16))):
        # Headers are where decoders fall over.
        blob[draw.randrange(min(len(blob), draw.choice((64, 200, 10**9))))] = draw.choice((0, 127, 128, 255))
    return blob


def _replace(blob: bytearray, draw: random.Random) -> bytearray:
    place = draw.randrange(len(blob))
    blob[place : place + draw.randrange(16)] = draw.randbytes(draw.randrange(16))
    return blob


def _splice(blob: bytearray, draw: random.Random) -> bytearray:
    other = draw.choice(list(samples().values()))
    return blob[: draw.randrange(len(blob))] + other[draw.randrange(len(other)) :]


@pytest.mark.parametrize("mutate", [_cut, _flip, _replace, _splice])
def test_two_thousand_mutations_give_an_image_or_a_data_error(
    mutate: Callable[[bytearray, random.Random], bytearray], recwarn
) -> None:
    draw = random.Random(mutate.__name__)
    failed = 0
    for _ in range(20):
        for name, blob in samples().items():
            result = outcome(bytes(mutate(bytearray(blob), draw)))
            failed += isinstance(result, DataError)
            assert not recwarn.list, f"{name}: {recwarn.list[0].message}"
    assert failed > 100


@pytest.mark.parametrize(
    "error", [RuntimeError("odd"), AssertionError(), ZeroDivisionError("x"), RecursionError("deep")]
)
@pytest.mark.parametrize("place", ["open", "load"])
def test_whatever_pillow_raises_names_the_file(error, place, monkeypatch) -> None:
    def broken(*_args, **_kwargs):
        raise error

    monkeypatch.setattr(*((Image, "open") if place == "open" else (ImageFile.ImageFile, "load")), broken)
    told = refusal(samples()["JPEG"])
    assert "damaged or cut off" in told
    assert (str(error) or type(error).__name__) in told


def test_too_little_memory_names_the_file(monkeypatch) -> None:
    def full(*_args):
        raise MemoryError

    monkeypatch.setattr(ImageFile.ImageFile, "load", full)
    assert "do not fit into memory" in refusal(samples()["JPEG"])


def test_an_interrupt_is_not_swallowed(monkeypatch) -> None:
    def stop(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(ImageFile.ImageFile, "load", stop)
    with pytest.raises(KeyboardInterrupt):
        decode(samples()["JPEG"])


def test_an_empty_file() -> None:
    assert "the file is empty; wanted an image" in refusal(b"")


@pytest.mark.parametrize(
    ("blob", "told"),
    [
        (b"<!DOCTYPE html><html><body>404</body></html>", "an HTML page"),
        (b"\n  <HTML>Not found</HTML>", "an HTML page"),
        (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "an SVG drawing"),
        (b'<?xml version="1.0"?><svg/>', "XML"),
        (b"%PDF-1.7 ...", "a PDF"),
        (b"PK\x03\x04....", "a zip archive"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "HEIC or AVIF"),
        (b"\0\0\0\x20ftypavif\0\0\0\0", "HEIC or AVIF"),
        (b"8BPS\0\x01" + bytes(40), "no image we read"),
        (b"RIFF\x24\0\0\0WAVEfmt ", "no image we read"),
        (b"version https://git-lfs.github.com/spec/v1\n", "no image we read"),
        (b"\0", "no image we read"),
        (bytes(1000), "no image we read"),
    ],
)
def test_what_is_no_image_is_said_by_its_content(blob, told) -> None:
    assert f"the content is {told}; wanted an image (JPEG, PNG," in refusal(blob)


@pytest.mark.parametrize("kind", ["ICO", "TGA", "PCX", "SGI", "DDS", "JPEG2000", "AVIF", "QOI", "ICNS", "EPS"])
def test_formats_that_pillow_knows_and_the_policy_does_not(kind) -> None:
    blob = encoded(Image.fromarray(photo(64, 64)), kind)
    assert "wanted an image (JPEG, PNG," in refusal(blob)


def test_the_content_decides_and_not_the_name() -> None:
    result = decode(encoded(Image.fromarray(photo()), "PNG"), where="photo.jpg")
    assert result.format == "PNG"
    assert np.array_equal(pixels(result), photo())


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize(("side", "told"), [(12_000, "12,000 x 12,000"), (20_000, "400,000,000")])
def test_a_bomb_is_refused_from_its_header(side, told, recwarn) -> None:
    blob = bomb(side)
    assert len(blob) < 500_000
    decode(samples()["PNG"])
    before, times = resident(), []
    for _ in range(3):
        start = time.thread_time()
        assert f"the header says {told} pixels; wanted at most 89,478,485 (max_pixels)" in refusal(blob)
        times.append(time.thread_time() - start)
    assert min(times) < 0.05
    assert resident() - before < 50e6
    assert not recwarn.list


@pytest.mark.parametrize("kind", ["WEBP", "GIF", "TIFF", "BMP", "JPEG"])
def test_a_bomb_of_any_format(kind) -> None:
    """The size in the header is set to 12,000 x 12,000; what stands behind it does not matter."""
    blob = bytearray(encoded(Image.new("L", (200, 100)), kind, **({"lossless": True} if kind == "WEBP" else {})))
    if kind == "WEBP":
        blob[21:25] = ((11_999 << 14) | 11_999).to_bytes(4, "little")
    elif kind == "GIF":
        blob[6:10] = struct.pack("<HH", 12_000, 12_000)
    elif kind == "BMP":
        blob[18:26] = struct.pack("<II", 12_000, 12_000)
    elif kind == "JPEG":
        place = blob.index(b"\xff\xc0") + 5
        blob[place : place + 4] = struct.pack(">HH", 12_000, 12_000)
    else:
        for tag in (256, 257):
            place = blob.index(struct.pack("<HH", tag, 4)) + 8
            blob[place : place + 4] = struct.pack("<I", 12_000)
    before = resident()
    assert "the header says 12,000 x 12,000 pixels" in refusal(bytes(blob))
    assert resident() - before < 50e6


def test_a_bomb_in_a_later_frame_is_never_lit() -> None:
    blob = bytearray(samples()["GIF animated"])
    frame = blob.rindex(b"\x2c\0\0\0\0")
    blob[frame + 5 : frame + 9] = struct.pack("<HH", 65_535, 65_535)
    result = decode(bytes(blob))
    assert (result.image.size, result.frames) == ((36, 24), 2)


@pytest.mark.parametrize("size", [(101, 1), (5000, 2), (1, 3000)])
def test_too_narrow_to_be_a_picture(size) -> None:
    blob = encoded(Image.new("RGB", size), "PNG")
    told = f"the header says {size[0]:,} x {size[1]:,} pixels; wanted sides within 100 to 1 (max_aspect)"
    assert told in refusal(blob)
    assert decode(blob, policy=DecodePolicy(max_aspect=5000)).image.size == size


def test_narrow_enough() -> None:
    assert decode(encoded(Image.new("RGB", (100, 1)), "PNG")).image.size == (100, 1)
    assert decode(encoded(Image.new("RGB", (1, 1)), "PNG")).image.size == (1, 1)


def test_the_limit_can_be_lowered_and_raised(monkeypatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    blob = encoded(Image.new("RGB", (100, 50)), "PNG")
    assert "5,000 pixels; wanted at most 1,999 (max_pixels)" in refusal(blob, policy=DecodePolicy(max_pixels=1999))
    # Pillow's own limit would refuse this.
    assert decode(blob, policy=DecodePolicy(max_pixels=5000)).image.size == (100, 50)


def test_pillows_own_limit_stays_when_the_policy_is_within_it(monkeypatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 3000)
    decode(encoded(Image.new("RGB", (100, 50)), "PNG"), policy=DecodePolicy(max_pixels=5000))
    assert Image.MAX_IMAGE_PIXELS == 3000


def test_a_header_is_read_without_the_pixels() -> None:
    blob = samples()["PNG"]
    assert open_image(blob[: blob.index(b"IDAT") + 20]).size == (36, 24)


@pytest.mark.parametrize("wrong", [(0, 0), (0, 0, 256), (-1, 0, 0)])
def test_a_background_is_three_bytes(wrong) -> None:
    with pytest.raises(UsageError, match="wanted three numbers from 0 to 255"):
        DecodePolicy(background=wrong)


def test_pillows_warnings_stay_off_and_others_stay_on() -> None:
    corrupt = encoded(Image.fromarray(photo()), "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Image.open(io.BytesIO(corrupt)).getexif()
        assert len(caught) == 1
        decode(corrupt)
        warnings.warn("ours", UserWarning, stacklevel=1)
    assert [str(warning.message) for warning in caught[1:]] == ["ours"]
