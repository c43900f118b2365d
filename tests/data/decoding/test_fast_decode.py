"""The fast decoders beside Pillow: the same pixels, smaller ones where the crop allows it, and the difference told."""

import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFilter
from tests.data.pictures import encoded, photo

from vitrail.config import DecodePolicy
from vitrail.data.decoding import fast_decode
from vitrail.data.decoding.decode import decode, pixels
from vitrail.data.decoding.fast_decode import (
    JpegBackend,
    as_tensor,
    decode_fast,
    draft_scale,
    jpeg_backend,
    measure_difference,
)
from vitrail.data.decoding.jpeg import JpegHeader, read_jpeg_header
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.source import Arrays, Encoded, Source
from vitrail.errors import DataError

deprecated = pytest.mark.filterwarnings("ignore:The image decoding and encoding capabilities of TorchVision")


class Files(Source):
    """Encoded images in memory."""

    name, split, classes = "files", "train", ("one",)

    def __init__(self, *blobs: Encoded) -> None:
        self.blobs = blobs
        self.labels = Labels.of([0] * len(blobs), 1)

    def read(self, index: int) -> Encoded:
        return self.blobs[index]

    def where(self, index: int) -> str:
        return f"file {index}"

    def manifest(self) -> Iterable[bytes]:
        return ()


@pytest.fixture
def fresh() -> Iterator[None]:
    """The choice of a library is remembered, which a test that changes it must not pass on."""
    jpeg_backend.cache_clear()
    yield
    jpeg_backend.cache_clear()


def blurred(height: int, width: int, seed: int = 0, radius: int = 2) -> Image.Image:
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise).filter(ImageFilter.GaussianBlur(radius))


def jpeg(image: Image.Image, **options: Any) -> bytes:
    return encoded(image, "JPEG", **options)


def header_of(blob: bytes) -> JpegHeader:
    header = read_jpeg_header(blob)
    assert header is not None
    assert header.is_plain
    return header


def by_pillow(blob: bytes) -> torch.Tensor:
    return torch.from_numpy(pixels(decode(blob)).copy()).permute(2, 0, 1)


def levels_apart(one: torch.Tensor, other: torch.Tensor) -> int:
    assert one.dtype == other.dtype == torch.uint8
    assert one.shape == other.shape
    return int((one.int() - other.int()).abs().max())


VARIANTS = [
    {"quality": 30},
    {"quality": 75, "progressive": True},
    {"quality": 95, "subsampling": 0},
    {"quality": 85, "subsampling": 1},
    {"quality": 85, "restart_marker_blocks": 2},
    {"quality": 85, "optimize": True},
    {"quality": 85, "icc_profile": bytes(100)},
]


@pytest.mark.parametrize("size", [(1, 1), (67, 91), (16, 8), (240, 180)])
@pytest.mark.parametrize("options", VARIANTS)
def test_plain_jpegs_look_as_pillow_shows_them(options, size) -> None:
    blob = jpeg(blurred(*size), **options)
    box = (0, 0, *size)
    found, place = decode_fast(blob, header_of(blob), box, size)
    assert place == box
    assert levels_apart(found, by_pillow(blob)) <= measure_difference(Files(blob)).largest <= 1


@deprecated
@pytest.mark.parametrize("cause", ["missing", "old", "no libraries", "broken"])
def test_without_torchcodec_torchvision_decodes(cause, monkeypatch, fresh) -> None:
    class Broken(types.ModuleType):
        def __getattr__(self, name: str) -> object:
            raise RuntimeError("could not load libtorchcodec") if cause == "broken" else OSError("libavutil.so")

    module = {"missing": None, "old": types.ModuleType("torchcodec.decoders")}.get(cause, Broken("torchcodec.decoders"))
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", module)
    assert jpeg_backend().name == "torchvision"
    blob = jpeg(blurred(50, 70))
    found, _ = decode_fast(blob, header_of(blob), (0, 0, 50, 70), (50, 70))
    assert levels_apart(found, by_pillow(blob)) <= 1
    assert measure_difference(Files(blob)).decoder == "torchvision on cpu"


def test_the_library_is_chosen_once(monkeypatch, fresh) -> None:
    first = jpeg_backend()
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", None)
    assert jpeg_backend() is first


def test_torchcodec_is_taken_where_it_is_installed(fresh) -> None:
    pytest.importorskip("torchcodec.decoders")
    assert jpeg_backend().name == "torchcodec"


@pytest.mark.parametrize(
    ("box", "size", "scale"),
    [
        ((0, 0, 223, 224), (224, 224), 1),
        ((0, 0, 447, 448), (224, 224), 1),
        ((0, 0, 448, 448), (224, 224), 2),
        ((9, 9, 448, 2000), (224, 224), 2),
        ((0, 0, 896, 895), (224, 224), 2),
        ((0, 0, 896, 896), (224, 224), 4),
        ((0, 0, 1792, 1792), (224, 224), 8),
        ((0, 0, 9000, 9000), (224, 224), 8),
        ((0, 0, 200, 100), (50, 25), 4),
        ((0, 0, 1, 1), (1, 1), 1),
    ],
)
def test_a_jpeg_shrinks_as_far_as_the_crop_allows(box, size, scale) -> None:
    assert draft_scale(box, size) == scale


@given(box=st.tuples(*[st.integers(1, 3000)] * 4), size=st.tuples(st.integers(1, 600), st.integers(1, 600)))
def test_a_scale_never_costs_a_pixel_and_is_the_largest_that_does_not(box, size) -> None:
    def keeps(scale: int) -> bool:
        return all(side / scale >= wanted for side, wanted in zip(box[2:], size, strict=True))

    scale = draft_scale(box, size)
    assert scale == max(candidate for candidate in (1, 2, 4, 8) if candidate == 1 or keeps(candidate))


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}])
@pytest.mark.parametrize("scale", [2, 4, 8])
@pytest.mark.parametrize("shape", [(320, 448), (323, 450), (401, 321)])
def test_a_smaller_decoding_is_the_mean_of_the_pixels(shape, scale, options) -> None:
    blob = jpeg(blurred(*shape, radius=12), quality=95, **options)
    size = shape[0] // scale, shape[1] // scale
    found, place = decode_fast(blob, header_of(blob), (0, 0, *shape), size)
    assert found.dtype == torch.uint8
    assert found.shape == (3, -(-shape[0] // scale), -(-shape[1] // scale))
    assert place == (0, 0, *found.shape[-2:])
    means = torch.nn.functional.avg_pool2d(by_pillow(blob)[None].float(), scale)[0]
    whole = found[:, : means.shape[-2], : means.shape[-1]].float()
    assert (whole - means).abs().mean() < 1
    assert (whole - means).abs().max() < 8


@pytest.mark.parametrize("scale", [2, 4, 8])
def test_the_box_shows_the_same_part_after_shrinking(scale) -> None:
    """In a picture whose colours say where one is, the two boxes have the same mean colour."""
    blob = jpeg(Image.fromarray(photo(403, 517)), quality=95, subsampling=0)
    for top, left, height, width in ((0, 0, 80, 80), (323, 437, 80, 80), (101, 33, 170, 210), (7, 300, 390, 160)):
        size = height // scale, width // scale
        found, (y, x, tall, wide) = decode_fast(blob, header_of(blob), (top, left, height, width), size)
        assert found.shape[-2] == -(-403 // scale)
        assert abs(tall - height / scale) <= 1
        assert abs(wide - width / scale) <= 1
        small = found[:, y : y + tall, x : x + wide].float().mean((1, 2))
        large = by_pillow(blob)[:, top : top + height, left : left + width].float().mean((1, 2))
        # A pixel of the small picture is `scale` of the large one, and a step there is 255 / 403 of a level.
        assert (small - large).abs().max() < scale * 255 / 403 + 1


@st.composite
def shapes_with_boxes(draw):
    height, width = draw(st.integers(1, 200)), draw(st.integers(1, 200))
    tall, wide = draw(st.integers(1, height)), draw(st.integers(1, width))
    box = draw(st.integers(0, height - tall)), draw(st.integers(0, width - wide)), tall, wide
    return height, width, box


@settings(max_examples=80)
@given(case=shapes_with_boxes(), size=st.tuples(st.integers(1, 24), st.integers(1, 24)))
@example(case=(32, 32, (12, 12, 8, 8)), size=(1, 1))
@example(case=(33, 33, (32, 32, 1, 1)), size=(1, 1))
def test_a_box_stays_inside_and_is_never_empty(case, size) -> None:
    height, width, box = case
    blob = jpeg(Image.new("RGB", (width, height), "red"))
    found, (top, left, tall, wide) = decode_fast(blob, header_of(blob), box, size)
    assert tall >= 1
    assert wide >= 1
    assert 0 <= top <= found.shape[-2] - tall
    assert 0 <= left <= found.shape[-1] - wide
    # Its ends are rounded to whole pixels, which may cost one.
    assert tall >= min(size[0], box[2]) - 1
    assert wide >= min(size[1], box[3]) - 1


@settings(max_examples=60)
@given(cut=st.floats(0, 1, exclude_max=True), progressive=st.booleans(), size=st.sampled_from([(80, 60), (10, 7)]))
def test_a_cut_off_file_is_refused_and_never_shown_half(cut, progressive, size) -> None:
    whole = jpeg(blurred(80, 60), quality=90, progressive=progressive)
    blob = whole[: int(cut * (len(whole) - 2))]
    header = read_jpeg_header(blob)
    if header is not None:
        with pytest.raises((RuntimeError, OSError)):
            decode_fast(blob, header, (0, 0, 80, 60), size)


def test_bytes_become_a_tensor_of_their_own() -> None:
    assert as_tensor(b"\x00\xff\x07").tolist() == [0, 255, 7]
    assert as_tensor(b"").shape == (0,)
    assert as_tensor(b"").dtype == as_tensor(b"a").dtype == torch.uint8
    blob = b"abc"
    as_tensor(blob)[0] = 0
    assert blob == b"abc"


def exif() -> Image.Exif:
    turned = Image.Exif()
    turned[0x0112] = 6
    return turned


def others() -> list[Encoded]:
    """What a fast decoder does not take."""
    picture = blurred(20, 30)
    return [
        encoded(picture, "PNG"),
        jpeg(picture.convert("L")),
        jpeg(picture.convert("CMYK")),
        jpeg(picture, exif=exif()),
        b"no image at all",
        b"",
        np.zeros((5, 5, 3), dtype=np.uint8),
    ]


def test_only_plain_jpegs_are_compared_and_counted() -> None:
    plain = [jpeg(blurred(20, 30, seed)) for seed in range(3)]
    mixed = [blob for pair in zip(plain, others(), strict=False) for blob in pair] + others()
    found = measure_difference(Files(*mixed))
    assert found.images == 3
    assert found.decoder == f"{jpeg_backend().name} on cpu"
    assert measure_difference(Files(*plain)) == found


def test_not_more_are_compared_than_asked_for() -> None:
    class Counting(Files):
        reads = 0

        def read(self, index: int) -> Encoded:
            self.reads += 1
            return super().read(index)

    source = Counting(*[jpeg(blurred(8, 8))] * 40)
    assert measure_difference(source, at_most=5).images == 5
    assert source.reads == 5
    assert measure_difference(source).images == 32
    assert measure_difference(source, at_most=100).images == 40


def test_where_there_is_nothing_to_compare_the_difference_is_none() -> None:
    pixels_in_memory = Arrays("array", "train", ("one",), Labels.of([0], 1), np.zeros((1, 8, 8, 3), dtype=np.uint8))
    for source in (Files(), Files(*others()), pixels_in_memory):
        found = measure_difference(source)
        assert (found.images, found.mean, found.largest) == (0, 0.0, 0)


def test_the_difference_is_that_of_the_decoder(monkeypatch) -> None:
    """A decoder that is 4 levels too bright in one of ten rows, and one image 9 levels in a single value."""
    flat, large = Image.new("RGB", (10, 10), (100, 100, 100)), Image.new("RGB", (40, 25), (100, 100, 100))

    def too_bright(blob: torch.Tensor) -> torch.Tensor:
        shown = by_pillow(bytes(blob.tolist()))
        if shown.shape[-1] == 10:
            shown[:, 0] += 4
        else:
            shown[1, 2, 3] -= 9
        return shown

    backend = JpegBackend("odd", too_bright, lambda blobs, _: [too_bright(blob) for blob in blobs])
    monkeypatch.setattr(fast_decode, "jpeg_backend", lambda: backend)
    found = measure_difference(Files(jpeg(flat), jpeg(large), jpeg(flat)))
    assert (found.decoder, found.images, found.largest) == ("odd on cpu", 3, 9)
    assert found.mean == pytest.approx((0.4 + 9 / 3000 + 0.4) / 3)


def test_a_damaged_file_is_named_by_the_comparison() -> None:
    blob = jpeg(blurred(200, 200))
    with pytest.raises(DataError, match="file 1: the JPEG data is damaged or cut off"):
        measure_difference(Files(blob, blob[: len(blob) // 2]))


def test_the_policy_of_the_run_holds_for_the_comparison() -> None:
    with pytest.raises(DataError, match=r"file 0: .*max_pixels"):
        measure_difference(Files(jpeg(blurred(40, 40))), policy=DecodePolicy(max_pixels=100))


def test_a_folder_is_measured_and_left_as_it_was(tmp_path: Path, watched) -> None:
    from vitrail.data.sources.folder import open_folder

    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "photos" / name / "1.jpg").write_bytes(jpeg(blurred(30, 30)))
    (tmp_path / "photos" / "b" / "2.jpg").write_bytes(encoded(blurred(30, 30), "PNG"))
    assert measure_difference(open_folder(watched(tmp_path / "photos"))).images == 2
