"""The header of a JPEG against what Pillow makes of the same file, and against bytes that mean harm."""

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.data.pictures import encoded, photo

from vitrail.data.decoding.decode import open_image, orientation
from vitrail.data.decoding.jpeg import JpegHeader, count_scans, read_jpeg_header

PICTURE = Image.fromarray(photo(24, 36))
XMP = b"http://ns.adobe.com/xap/1.0/\0"
START, FRAME, SCAN = b"\xff\xd8", b"\xff\xc0", b"\xff\xda"


def jpeg(image: Image.Image = PICTURE, **options: Any) -> bytes:
    return encoded(image, "JPEG", **options)


def segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + (len(body) + 2).to_bytes(2, "big") + body


def before(mark: bytes, inserted: bytes, blob: bytes) -> bytes:
    place = blob.index(mark)
    return blob[:place] + inserted + blob[place:]


def turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif.tobytes()


def header_of(blob: bytes) -> JpegHeader:
    header = read_jpeg_header(blob)
    assert header is not None
    return header


@pytest.mark.parametrize(
    ("mode", "options", "is_plain"),
    [
        ("RGB", {}, True),
        ("RGB", {"progressive": True}, True),
        ("RGB", {"subsampling": 0, "quality": 100}, True),
        ("RGB", {"optimize": True}, True),
        ("RGB", {"restart_marker_blocks": 1}, True),
        ("RGB", {"restart_marker_rows": 1, "progressive": True}, True),
        ("RGB", {"comment": b"\xff\xc0\x00\x11 a frame header? no, a comment"}, True),
        ("RGB", {"icc_profile": bytes(70_000)}, True),
        ("RGB", {"xmp": b"<x:xmpmeta/>"}, True),
        ("RGB", {"xmp": b'<rdf:Description tiff:Orientation="6"/>'}, False),
        ("RGB", {"exif": turned(6)}, False),
        ("RGB", {"exif": turned(1)}, False),
        ("RGB", {"keep_rgb": True}, False),
        ("L", {}, False),
        ("CMYK", {}, False),
        ("1", {}, False),
    ],
)
@pytest.mark.parametrize("size", [(1, 1), (24, 36), (301, 17)])
def test_the_header_says_what_pillow_says(mode, options, is_plain, size) -> None:
    image = Image.fromarray(np.zeros((*size, 3), np.uint8)).convert(mode)
    blob = jpeg(image, **options)
    header, opened = header_of(blob), Image.open(io.BytesIO(blob))
    assert (header.height, header.width) == (opened.height, opened.width) == size
    assert len(header.components) == len(opened.getbands())
    assert header.precision == 8
    assert header.is_plain == is_plain


def test_the_largest_size() -> None:
    blob = jpeg().replace((24).to_bytes(2, "big") + (36).to_bytes(2, "big"), b"\xff\xff\xff\xfe")
    assert (header_of(blob).height, header_of(blob).width) == (65535, 65534)


@pytest.mark.parametrize("fill", [1, 2, 999])
@pytest.mark.parametrize("mark", [FRAME, SCAN, b"\xff\xdb"])
def test_bytes_that_fill_the_space_before_a_marker(mark, fill) -> None:
    blob = before(mark, b"\xff" * fill, jpeg())
    assert Image.open(io.BytesIO(blob)).size == (36, 24)
    assert header_of(blob) == header_of(jpeg())


def test_markers_without_a_body() -> None:
    assert header_of(before(FRAME, b"\xff\x01\xff\xd0\xff\xd7", jpeg())) == header_of(jpeg())


@pytest.mark.parametrize(
    "extra",
    [
        segment(0xE1, turned(6)),
        segment(0xE1, XMP + b"<tiff:Orientation>6</tiff:Orientation>"),
        segment(0xE1, XMP + b'<x tiff:Orientation="6"/>'),
    ],
)
@pytest.mark.parametrize("mark", [b"\xff\xdb", FRAME, SCAN])
def test_what_pillow_would_turn_is_not_plain_wherever_it_says_so(mark, extra) -> None:
    """EXIF usually comes first; after the frame header Pillow heeds it too."""
    blob = before(mark, extra, jpeg())
    assert orientation(open_image(blob)) == 6
    assert header_of(blob).may_turn
    assert not header_of(blob).is_plain


def test_other_metadata_does_not_turn() -> None:
    for extra in (segment(0xE1, XMP + b"<x/>"), segment(0xE2, b"Exif\0\0"), segment(0xE1, b""), segment(0xFE, b"Exif")):
        blob = before(FRAME, extra, jpeg())
        assert orientation(open_image(blob)) == 1
        assert header_of(blob).is_plain


def test_colours_that_are_not_ycbcr_are_not_plain() -> None:
    """With an Adobe marker, or by the names of the components alone."""
    named = jpeg(keep_rgb=True)
    place = named.index(b"\xff\xee")
    unmarked = named[:place] + named[place + 2 + int.from_bytes(named[place + 2 : place + 4], "big") :]
    assert header_of(named).has_adobe
    assert header_of(unmarked).components == b"RGB"
    assert not header_of(unmarked).has_adobe
    assert not header_of(unmarked).is_plain


@pytest.mark.parametrize(
    ("marker", "is_plain"), [(0xC0, True), (0xC1, True), (0xC2, True), (0xC3, False), (0xC9, False)]
)
def test_rare_codings_are_left_to_pillow(marker, is_plain) -> None:
    header = header_of(jpeg().replace(FRAME, bytes([0xFF, marker])))
    assert (header.height, header.width) == (24, 36)
    assert header.is_plain == is_plain


def test_twelve_bits_are_not_plain() -> None:
    blob = jpeg()
    place = blob.index(FRAME) + 4
    header = header_of(blob[:place] + bytes([12]) + blob[place + 1 :])
    assert header.precision == 12
    assert not header.is_plain


def frame(height: int = 24, width: int = 36, count: int = 3, components: bytes = b"\1\x22\0\2\x11\1\3\x11\1") -> bytes:
    body = bytes([8]) + height.to_bytes(2, "big") + width.to_bytes(2, "big") + bytes([count]) + components
    return segment(0xC0, body)


WELL = START + frame() + segment(0xDA, b"\0" * 10)


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        START,
        b"\xff\xd8\xff",
        b"\xff" * 1000,
        WELL[1:],
        b"\0" + WELL,
        START + frame(height=0) + WELL[-14:],
        START + frame(width=0) + WELL[-14:],
        START + frame(count=4) + WELL[-14:],
        START + frame(components=b"") + WELL[-14:],
        START + segment(0xC0, b"") + WELL[-14:],
        START + frame() + frame() + WELL[-14:],
        START + frame() + b"junk" + WELL[-14:],
        START + frame() + b"\xff\xe0\0\1" + WELL[-14:],
        START + frame() + b"\xff\xe0\0\0" + WELL[-14:],
        START + frame() + b"\xff\xe0\xff\xff" + WELL[-14:],
        START + b"\xff\xd9" + WELL[2:],
        START + segment(0xD9, b"") + WELL[2:],
        START + segment(0xD8, b"") + WELL[2:],
        START + segment(0x00, b"") + WELL[2:],
        START + START + WELL[2:],
        START + WELL[-14:],
        START + frame(),
        b"\x89PNG\r\n\x1a\n" + bytes(100),
        b"GIF89a" + bytes(100),
        b"<html>" + bytes(100),
    ],
)
def test_none_for_what_is_no_well_formed_jpeg(blob) -> None:
    assert read_jpeg_header(WELL) is not None
    assert read_jpeg_header(blob) is None


def test_a_file_is_known_once_its_first_scan_begins() -> None:
    blob = jpeg()
    complete = blob.index(SCAN) + 4
    for length in range(len(blob)):
        assert (read_jpeg_header(blob[:length]) is None) == (length < complete)


@settings(max_examples=300)
@given(blob=st.one_of(st.binary(max_size=200), st.binary(max_size=200).map(lambda rest: b"\xff\xd8\xff" + rest)))
@example(blob=b"\xff\xd8\xff\xc0\x00\x02\xff\xda\x00\x02")
def test_no_bytes_make_it_raise(blob) -> None:
    header = read_jpeg_header(blob)
    assert header is None or (header.height > 0 and header.width > 0)


segments = st.builds(
    segment,
    st.sampled_from([0xC0, 0xC2, 0xC4, 0xCC, 0xD8, 0xD9, 0xDB, 0xDD, 0xE0, 0xE1, 0xEE, 0xFE, 0x00, 0xFF]),
    st.one_of(st.binary(max_size=30), st.just(frame()[4:]), st.just(b"Exif\0\0"), st.just(b"Adobe")),
)


@settings(max_examples=300)
@given(parts=st.lists(segments, max_size=6), end=st.binary(max_size=20))
def test_no_order_of_segments_makes_it_raise(parts, end) -> None:
    header = read_jpeg_header(START + b"".join(parts) + end)
    assert header is None or (header.height > 0 and header.width > 0)


@settings(max_examples=200)
@given(changes=st.lists(st.tuples(st.integers(0, 700), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_damaged_file_is_refused_or_has_the_size_that_pillow_reads(changes) -> None:
    blob = bytearray(jpeg())
    for place, value in changes:
        blob[place % len(blob)] = value
    header = read_jpeg_header(bytes(blob))
    try:
        opened = Image.open(io.BytesIO(blob), formats=("JPEG",))
    except Exception:
        return
    if header is not None:
        assert (header.width, header.height) == opened.size


def test_scans_are_counted_wherever_other_markers_hide() -> None:
    plain, progressive = jpeg(), jpeg(progressive=True)
    assert count_scans(plain, 50) == 1
    scans = count_scans(progressive, 50)
    assert scans == progressive.count(SCAN) > 5
    assert count_scans(progressive, 3) == 4, "and no further than asked for"
    # A film behind a photo, as telephones keep it, and a small picture within its EXIF are no scans of it.
    assert count_scans(plain + plain * 60, 50) == 1
    assert count_scans(before(FRAME, segment(0xE1, b"Exif" + plain), plain), 50) == 1
    # Nor does an end within a comment end it.
    last = progressive.rindex(SCAN)
    assert count_scans(progressive[:last] + segment(0xFE, b"\xff\xd9") + progressive[last:], 50) == scans


@given(st.binary(max_size=200))
def test_scans_of_any_bytes_are_counted(junk) -> None:
    assert 0 <= count_scans(START + b"\xff" + junk, 50) <= 51
