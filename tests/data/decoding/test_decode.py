"""The written policy of decoding, mode by mode, against computations of its own."""

import zlib

import numpy as np
import pytest
from PIL import Image
from tests.data.pictures import TURNED, encoded, photo, png, tiff

from vitrail.config.decoding import DecodePolicy
from vitrail.data.decoding import decode as decoding
from vitrail.data.decoding.decode import decode, open_image, orientation, pixels
from vitrail.errors import DataError, TooManyPixels

BLUE = (0, 0, 200)


def seen(blob: bytes, mode="RGB", **policy) -> np.ndarray:
    return pixels(decode(blob, mode, policy=DecodePolicy(**policy))).astype(np.float64)


def assert_close(got: np.ndarray, wanted: np.ndarray, levels: float = 2.0) -> None:
    """Every pixel within some levels of 255, and every channel's mean within 1 % of the range."""
    assert got.shape == wanted.shape
    assert np.abs(got - wanted).max() <= levels
    assert np.abs(got.mean((0, 1)) - wanted.mean((0, 1))).max() < 2.55


def over(colours: np.ndarray, alpha: np.ndarray, background: tuple[int, int, int]) -> np.ndarray:
    """Colours in front of a background: c a + b (1 - a)."""
    share = alpha[..., None].astype(np.float64) / 255
    return colours * share + np.array(background) * (1 - share)


@pytest.mark.parametrize(
    ("kind", "options", "levels"),
    [
        ("PNG", {}, 0),
        ("BMP", {}, 0),
        ("PPM", {}, 0),
        ("TIFF", {"compression": "tiff_lzw"}, 0),
        ("WEBP", {"lossless": True}, 0),
        ("JPEG", {"quality": 100, "subsampling": 0}, 4),
        ("MPO", {"quality": 100, "subsampling": 0}, 4),
    ],
)
def test_every_format_gives_the_pixels_that_were_saved(kind, options, levels) -> None:
    blob = encoded(Image.fromarray(photo()), kind, **options)
    result = decode(blob)
    assert result.image.mode == "RGB"
    # An MPO with a single picture is a JPEG.
    assert result.format == ("JPEG" if kind == "MPO" else kind)
    assert result.frames == 1
    assert_close(pixels(result).astype(float), photo().astype(float), levels)


def test_grey_has_one_channel_and_weighs_colours() -> None:
    blob = encoded(Image.fromarray(photo()), "PNG")
    weighed = photo() @ np.array([0.299, 0.587, 0.114])
    assert_close(seen(blob, "L"), weighed[:, :, None], 1)


def test_pixels_need_no_decoding() -> None:
    result = decode(photo())
    assert result.format == "pixels"
    assert np.array_equal(pixels(result), photo())
    grey = photo()[:, :, 0]
    assert np.array_equal(pixels(decode(grey)), np.repeat(grey[:, :, None], 3, axis=2))
    assert np.array_equal(pixels(decode(grey, "L")), grey[:, :, None])


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "MPO"])
def test_all_eight_orientations_give_the_same_upright_pixels(kind) -> None:
    upright = Image.fromarray(photo())
    options = {"lossless": True} if kind == "WEBP" else {"quality": 100, "subsampling": 0}
    for number, turn in TURNED.items():
        exif = Image.Exif()
        exif[0x0112] = number
        stored = upright if turn is None else upright.transpose(turn)
        more = {"save_all": True, "append_images": [stored]} if kind == "MPO" else {}
        blob = encoded(stored, kind, exif=exif, **options, **more)
        assert_close(seen(blob), photo().astype(float), 4)
        opened = open_image(blob)
        sideways = orientation(opened) in (5, 6, 7, 8)
        assert (opened.size[::-1] if sideways else opened.size) == upright.size


@pytest.mark.parametrize(
    "block",
    [
        b"Exif\0\0",
        b"Exif\0\0garbage",
        b"Exif\0\0II*\0\xff\xff\xff\xff",
        b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + b"\xff" * 40,
        b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\xff\xff\xff\x7f\x06\0\0\0",
    ],
)
def test_a_corrupt_exif_block_counts_as_upright(block, recwarn) -> None:
    assert_close(seen(encoded(Image.fromarray(photo()), "JPEG", quality=100, subsampling=0, exif=block)), photo(), 4)
    assert not recwarn


@pytest.mark.parametrize("value", [0, 9, 65_535])
def test_an_orientation_that_does_not_exist_counts_as_upright(value) -> None:
    exif = Image.Exif()
    exif[0x0112] = value
    assert orientation(open_image(encoded(Image.fromarray(photo()), "PNG", exif=exif))) == 1


def ramp(full: int = 65_535) -> np.ndarray:
    return np.linspace(0, full, 24 * 36).reshape(24, 36).astype(np.uint16)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "TIFF big-endian", "PGM"])
def test_16_bit_grey_is_scaled_and_not_cut_off(kind, mode) -> None:
    values = ramp()
    image = Image.fromarray(values)
    if kind == "TIFF big-endian":
        image = Image.frombytes("I;16B", (36, 24), values.astype(">u2").tobytes())
        blob = encoded(image, "TIFF")
        assert blob.startswith(b"MM")
        assert open_image(blob).mode == "I;16B"
    elif kind == "PGM":
        blob = encoded(image.convert("I"), "PPM")
    else:
        blob = encoded(image, kind)
    wanted = np.repeat((values / 257)[:, :, None], 3 if mode == "RGB" else 1, axis=2)
    got = seen(blob, mode)
    assert_close(got, wanted, 0.5)
    assert (got.min(), got.max()) == (0, 255)


def test_12_bit_grey_is_scaled_by_its_own_range() -> None:
    values = [0, 1024, 2048, 4095]
    packed = sum(value << 12 * (3 - place) for place, value in enumerate(values)).to_bytes(6, "big")
    assert seen(tiff(packed, width=4, bits=12), "L").ravel().tolist() == [0, 64, 128, 255]


@pytest.mark.parametrize("bits", [8, 16])
def test_a_tiff_in_which_zero_is_white(bits) -> None:
    values = np.array([0, 64, 255]) * (257 if bits == 16 else 1)
    row = values.astype(f"<u{bits // 8}").tobytes()
    assert seen(tiff(row, width=3, bits=bits, photometric=0), "L").ravel().tolist() == [255, 191, 0]


@pytest.mark.parametrize(
    ("blob", "told"),
    [
        (encoded(Image.new("F", (4, 4), 0.5), "TIFF"), "floating-point"),
        (b"Pf\n2 2\n-1.0\n" + np.zeros(4, "<f4").tobytes(), "floating-point"),
        (encoded(Image.new("I", (4, 4), 70_000), "TIFF"), "signed or 32-bit"),
        (tiff(np.array([-5, 9], "<i2").tobytes(), width=2, bits=16, sample_format=2), "signed or 32-bit"),
        (tiff(np.array([5, 9], "<u4").tobytes(), width=2, bits=32), "signed or 32-bit"),
    ],
)
def test_pixels_whose_range_no_one_states_are_refused(blob, told) -> None:
    with pytest.raises(DataError, match=rf"^raw\.tif: .*{told}") as caught:
        decode(blob, where="raw.tif")
    assert len(str(caught.value)) < 300


def test_48_bit_colour_keeps_its_high_bytes() -> None:
    row = np.array([[0, 32_768, 65_535]], ">u2").tobytes()
    blob = png(1, 1, 16, 2, zlib.compress(b"\0" + row))
    assert seen(blob).ravel().tolist() == [0, 128, 255]


def cmyk() -> np.ndarray:
    return np.concatenate([photo(), np.roll(photo()[:, :, 1:2] // 3, 9, axis=1)], axis=2)


def from_cmyk(inks: np.ndarray) -> np.ndarray:
    """Inks that only take light away: (255 - c)(255 - k) / 255."""
    light = 255 - inks.astype(np.float64)
    return light[:, :, :3] * light[:, :, 3:] / 255


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_cmyk(kind) -> None:
    options = {"quality": 100, "subsampling": 0} if kind == "JPEG" else {}
    blob = encoded(Image.fromarray(cmyk(), "CMYK"), kind, **options)
    assert open_image(blob).mode == "CMYK"
    assert_close(seen(blob), from_cmyk(cmyk()), 6)


def test_ycck() -> None:
    """Adobe's YCCK: inverted inks whose first three are stored as YCbCr, told by one byte of a marker."""
    inks = cmyk()
    luma = np.asarray(Image.fromarray(inks[:, :, :3]).convert("YCbCr"))
    # Pillow inverts the four channels when it writes CMYK, so what is to be stored is inverted here first.
    stored = np.concatenate([255 - luma, inks[:, :, 3:]], axis=2)
    blob = bytearray(encoded(Image.fromarray(stored, "CMYK"), "JPEG", quality=100, subsampling=0))
    place = blob.index(b"\xff\xee\x00\x0eAdobe") + 15
    assert blob[place] == 0
    blob[place] = 2
    assert_close(seen(bytes(blob)), from_cmyk(inks), 8)


def test_lab() -> None:
    """Three greys, and sRGB red as D50 sees it (L 54.3, a 80.8, b 69.9); a TIFF keeps a and b as signed bytes."""
    row = bytes([0, 0, 0, 137, 0, 0, 255, 0, 0, 138, 81, 70])
    blob = encoded(Image.frombytes("LAB", (4, 1), row), "TIFF")
    assert row in blob
    assert open_image(blob).mode == "LAB"
    wanted = np.array([[[0, 0, 0], [128, 128, 128], [255, 255, 255], [255, 0, 0]]], float)
    assert_close(seen(blob), wanted, 6)
    assert np.abs(seen(blob, "L").ravel() - [0, 128, 255, 76]).max() <= 6


def test_ycbcr() -> None:
    blob = encoded(Image.fromarray(photo()).convert("YCbCr"), "TIFF")
    assert open_image(blob).mode == "YCbCr"
    assert_close(seen(blob), photo().astype(float), 4)


@pytest.mark.parametrize("background", [(255, 255, 255), BLUE])
@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_an_alpha_channel_is_laid_over_the_background(kind, background) -> None:
    alpha = photo()[:, :, 1]
    image = Image.fromarray(np.dstack([photo(), alpha]))
    blob = encoded(image, kind, **({"lossless": True, "exact": True} if kind == "WEBP" else {}))
    assert_close(seen(blob, background=background), over(photo(), alpha, background))


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_grey_with_alpha(kind, mode) -> None:
    grey, alpha = photo()[:, :, 0], photo()[:, :, 1]
    blob = encoded(Image.fromarray(np.dstack([grey, alpha]), "LA"), kind)
    wanted = over(np.repeat(grey[:, :, None], 3, axis=2), alpha, (255, 255, 255))
    assert_close(seen(blob, mode), wanted if mode == "RGB" else wanted[:, :, :1])


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_grey_with_premultiplied_alpha(mode) -> None:
    blob = tiff(bytes([100, 128, 50, 255, 0, 0]), width=3, bits=8, samples=2, extra=1)
    assert open_image(blob).mode == "La"
    wanted = np.array([100 + 255 * (1 - 128 / 255), 50, 255])
    assert np.abs(seen(blob, mode)[0, :, 0] - wanted).max() <= 1.5


@pytest.mark.parametrize("kind", ["PNG", "GIF", "TIFF"])
def test_palettes(kind) -> None:
    image = Image.fromarray(photo()).quantize(64)
    assert_close(seen(encoded(image, kind)), np.asarray(image.convert("RGB")).astype(float), 0)


@pytest.mark.parametrize("kind", ["PNG", "GIF"])
def test_a_palette_with_one_transparent_colour(kind) -> None:
    image = Image.fromarray(photo()).quantize(16)
    hidden = np.asarray(image) == 3
    assert hidden.any()
    got = seen(encoded(image, kind, transparency=3), background=BLUE)
    wanted = np.where(hidden[:, :, None], BLUE, np.asarray(image.convert("RGB")))
    assert_close(got, wanted.astype(float), 0)


def test_a_palette_with_an_alpha_for_each_colour() -> None:
    image = Image.fromarray(photo()).quantize(16)
    alphas = np.arange(0, 256, 17, dtype=np.uint8)
    got = seen(encoded(image, "PNG", transparency=alphas.tobytes()), background=BLUE)
    assert_close(got, over(np.asarray(image.convert("RGB")), alphas[np.asarray(image)], BLUE))


def test_a_palette_with_an_alpha_channel() -> None:
    image = Image.fromarray(photo()).quantize(16)
    alpha = photo()[:, :, 1]
    both = Image.merge("PA", (Image.fromarray(np.asarray(image)), Image.fromarray(alpha)))
    both.putpalette(image.getpalette() or [])
    blob = encoded(both, "TIFF")
    assert open_image(blob).mode == "PA"
    assert_close(seen(blob, background=BLUE), over(np.asarray(image.convert("RGB")), alpha, BLUE))


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize(
    ("depth", "colour_type", "row", "width", "key", "wanted"),
    [
        (8, 0, bytes([10, 20, 30]), 3, b"\0\x14", [10, 255, 30]),
        (16, 0, b"\0\0\x12\x34\xff\xff", 3, b"\x12\x34", [0, 255, 255]),
        (16, 0, b"\x12\x33\x12\x34", 2, b"\x12\x34", [18, 255]),
        (8, 2, bytes([7, 7, 7, 1, 2, 3]), 2, b"\0\x01\0\x02\0\x03", [7, 255]),
        (1, 0, bytes([0b0100_0000]), 2, b"\0\0", [255, 255]),
        (1, 0, bytes([0b0100_0000]), 2, b"\0\x01", [0, 255]),
    ],
)
def test_a_colour_that_counts_as_transparent(depth, colour_type, row, width, key, wanted, mode) -> None:
    got = seen(png(width, 1, depth, colour_type, zlib.compress(b"\0" + row), key), mode)
    assert got[0, :, 0].tolist() == wanted


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP", "PPM", "GIF"])
def test_one_bit(kind) -> None:
    black = photo()[:, :, 0] > 100
    got = seen(encoded(Image.fromarray(black), kind))
    assert_close(got, np.repeat(black[:, :, None] * 255.0, 3, axis=2), 0)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "TIFF", "PNG", "MPO"])
def test_of_several_frames_the_first_is_used_and_all_are_counted(kind) -> None:
    first, others = Image.fromarray(photo()), [Image.new("RGB", (36, 24), "red"), Image.new("RGB", (36, 24), "green")]
    options = {"lossless": True} if kind == "WEBP" else {"quality": 100, "subsampling": 0} if kind == "MPO" else {}
    result = decode(encoded(first, kind, save_all=True, append_images=others, **options))
    assert result.frames == 3
    assert np.abs(pixels(result).astype(int) - photo()).mean() < (20 if kind == "GIF" else 2)


def test_of_very_many_pages_only_so_many_are_counted(monkeypatch) -> None:
    monkeypatch.setattr(decoding, "_MOST_PAGES", 4)
    first, others = Image.fromarray(photo()), [Image.new("RGB", (5, 9))] * 6
    result = decode(encoded(first, "TIFF", save_all=True, append_images=others))
    assert result.frames == 4
    assert np.array_equal(pixels(result), photo())


def test_a_jpeg_that_goes_over_its_pixels_again_and_again_is_refused() -> None:
    """75 bytes for a scan make the decoder go over 49 million pixels once more."""
    whole = encoded(Image.new("L", (64, 64), 128), "JPEG", progressive=True)
    scan = whole[whole.rindex(b"\xff\xda") : -2]
    assert pixels(decode(whole[:-2] + scan * 40 + b"\xff\xd9")).shape == (64, 64, 3)
    with pytest.raises(DataError, match="again and again; wanted at most 50 scans"):
        decode(whole[:-2] + scan * 50 + b"\xff\xd9")


def test_too_many_pixels_are_an_error_of_their_own() -> None:
    with pytest.raises(TooManyPixels, match="36 x 24 pixels; wanted at most 100"):
        decode(encoded(Image.fromarray(photo()), "PNG"), policy=DecodePolicy(max_pixels=100))


def test_transparency_is_laid_over_the_background_row_by_row_as_at_once(monkeypatch) -> None:
    layers = np.random.default_rng(0).integers(0, 256, (37, 23, 4), dtype=np.uint8)
    blob = encoded(Image.fromarray(layers), "PNG")
    behind = Image.new("RGBA", (23, 37), (*BLUE, 255))
    whole = np.asarray(Image.alpha_composite(behind, Image.fromarray(layers)).convert("RGB"))
    for at_once in (1, 23 * 5, 2**20):
        monkeypatch.setattr(decoding, "_PIXELS_AT_ONCE", at_once)
        assert np.array_equal(seen(blob, background=BLUE), whole)


@pytest.mark.parametrize(
    ("kind", "place", "part"),
    [
        ("PNG", 33, b"\0\0\0\0aaAa" + zlib.crc32(b"aaAa").to_bytes(4, "big")),
        ("JPEG", 2, b"\xff\xfe\0\2"),
        ("JPEG", 2, b"\xff"),
    ],
)
def test_a_file_that_is_cut_into_tiny_parts_is_refused_before_they_are_read(kind, place, part) -> None:
    """A megabyte of them kept a decoder busy for two seconds."""
    blob = encoded(Image.fromarray(photo()), kind)
    few, many = (blob[:place] + part * count + blob[place:] for count in (100, 20_000))
    assert np.array_equal(seen(few), seen(blob))
    with pytest.raises(DataError, match="tiny parts"):
        open_image(many)


def test_a_large_png_in_parts_of_an_honest_size_is_decoded() -> None:
    """libpng writes 8 KiB at a time: of 50 million noisy pixels that makes 18,000 parts."""
    noise = np.random.default_rng(0).integers(0, 256, (2700, 2700, 3), dtype=np.uint8)
    rows = np.concatenate([np.zeros((2700, 1), np.uint8), noise.reshape(2700, -1)], axis=1)
    pixels = zlib.compress(rows, 0)
    parts = [(b"IHDR", encoded(Image.fromarray(noise[:1, :1]).resize((2700, 2700)), "PNG")[16:29])]
    parts += [(b"IDAT", pixels[start : start + 2048]) for start in range(0, len(pixels), 2048)]
    blob = b"\x89PNG\r\n\x1a\n" + b"".join(
        len(body).to_bytes(4, "big") + name + body + zlib.crc32(name + body).to_bytes(4, "big")
        for name, body in (*parts, (b"IEND", b""))
    )
    assert len(parts) > 10_000
    assert np.array_equal(seen(blob), noise)


def test_what_follows_the_end_of_a_png_is_no_part_of_it() -> None:
    blob = encoded(Image.fromarray(photo()), "PNG")
    assert np.array_equal(seen(blob + bytes(300_000)), seen(blob))


def test_texts_in_a_png_unpack_to_so_much_only() -> None:
    blob = encoded(Image.fromarray(photo()), "PNG")
    text = b"zTXta\0\0" + zlib.compress(bytes(1_000_000), 9)
    part = (len(text) - 4).to_bytes(4, "big") + text + zlib.crc32(text).to_bytes(4, "big")
    assert np.array_equal(seen(blob[:33] + 5 * part + blob[33:]), seen(blob))
    with pytest.raises(DataError, match="text"):
        open_image(blob[:33] + 20 * part + blob[33:])
