"""Whatever people hand over as an image; what cannot be read says why, and only for itself."""

import io
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from vitrail.config.decoding import DecodePolicy
from vitrail.errors import DataError, UsageError
from vitrail.prediction.handed import Handed, from_names, from_objects

POLICY = DecodePolicy()


def picture(height: int = 6, width: int = 8) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


def encoded(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def pixels(handed: Handed, mode="RGB") -> np.ndarray:
    return np.asarray(handed.decoded(mode, POLICY).image)


@pytest.fixture
def photos(tmp_path):
    for name in ("b.png", "a 1.png", "더/고양이.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        picture().save(tmp_path / name)
    return tmp_path


def test_every_kind_is_the_same_image(photos) -> None:
    image = picture()
    kinds = [
        photos / "b.png",
        str(photos / "b.png"),
        encoded(image),
        bytearray(encoded(image)),
        image,
        np.asarray(image),
    ]
    for handed in from_objects(kinds):
        assert np.array_equal(pixels(handed), np.asarray(image))


@pytest.mark.parametrize(
    "one", [picture(), encoded(picture()), np.asarray(picture())], ids=["pillow", "bytes", "array"]
)
def test_one_image_needs_no_list(one) -> None:
    assert len(from_objects(one)) == 1


def test_a_generator_will_do() -> None:
    assert [handed.name for handed in from_objects(picture() for _ in range(2))] == ["image 1", "image 2"]


def test_a_folder_is_all_images_below_it(photos) -> None:
    assert [handed.name for handed in from_names([str(photos)])] == [
        str(photos / name) for name in ("a 1.png", "b.png", "더/고양이.png")
    ]


def test_patterns(photos) -> None:
    assert len(from_names([str(photos / "*.png")])) == 2
    assert len(from_names([str(photos / "**/*.png")])) == 3


def test_a_file_whose_name_looks_like_a_pattern(photos) -> None:
    picture().save(photos / "c[1].png")
    assert [handed.name for handed in from_names([str(photos / "c[1].png")])] == [str(photos / "c[1].png")]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gone.jpg", "No such file"),
        ("gone-*.jpg", "no file matches"),
        ("https://example.org/cat.jpg", "Fetch the image first"),
        ("nul\0.jpg", "cannot be"),
    ],
)
def test_what_is_not_there_is_told_when_it_is_its_turn(photos, monkeypatch, name, reason) -> None:
    monkeypatch.chdir(photos)
    bad, good = from_names([name, "b.png"])
    assert pixels(good).shape == (6, 8, 3)
    with pytest.raises(DataError, match=reason):
        bad.decoded("RGB", POLICY)


def test_an_empty_folder(tmp_path) -> None:
    [handed] = from_names([str(tmp_path)])
    with pytest.raises(DataError, match="no image in this folder"):
        handed.decoded("RGB", POLICY)


def test_standard_input(monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(encoded(picture()))))
    [handed] = from_names(["-"])
    assert np.array_equal(pixels(handed), np.asarray(picture()))


def test_the_policy_holds_for_images_in_memory() -> None:
    half = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    [handed] = from_objects([half])
    assert (pixels(handed) == 255).all()
    turned = Image.open(io.BytesIO(encoded(picture(), "PNG", exif=_orientation(6))))
    [handed] = from_objects([turned])
    assert pixels(handed).shape == (8, 6, 3)
    assert turned.size == (8, 6), "what was handed in is not changed"


def _orientation(number: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = number
    return exif


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.zeros((4, 4, 3), dtype=np.float32), "holds float32.*by 255"),
        (np.zeros((3, 5, 6), dtype=np.uint8), "channels last"),
        (np.zeros((4, 4, 2), dtype=np.uint8), "shape"),
        (np.zeros((0, 4, 3), dtype=np.uint8), "shape"),
        (np.zeros((2, 4, 4, 3), dtype=np.uint8), "shape"),
    ],
)
def test_arrays_that_are_no_images(array, reason) -> None:
    [handed] = from_objects([array])
    with pytest.raises(DataError, match=reason):
        handed.decoded("RGB", POLICY)


@pytest.mark.parametrize("array", [np.full((4, 5), 7, np.uint8), np.full((4, 5, 1), 7, np.uint8)])
def test_grey_arrays(array) -> None:
    [handed] = from_objects([array])
    assert (pixels(handed) == 7).all()
    assert pixels(handed, "L").shape == (4, 5)


def test_something_else() -> None:
    with pytest.raises(UsageError, match="an image is a int"):
        from_objects([3])


def test_a_bomb_is_refused_from_its_header() -> None:
    with pytest.raises(DataError, match="max_pixels"):
        from_objects([Image.new("1", (20_000, 20_000))])[0].decoded("RGB", POLICY)


def test_arrays_of_other_libraries_are_one_image() -> None:
    torch = pytest.importorskip("torch")
    [handed] = from_objects(torch.from_numpy(np.array(picture())))
    assert np.array_equal(pixels(handed), np.asarray(picture()))
    [handed] = from_objects(memoryview(encoded(picture())))
    assert np.array_equal(pixels(handed), np.asarray(picture()))


def test_one_opened_image_handed_over_many_times() -> None:
    """Pillow reads it when it is asked for its pixels, which several threads do."""
    large = picture(1500, 1500)
    opened = Image.open(io.BytesIO(encoded(large)))
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(pixels, from_objects([opened] * 16)))
    assert all(np.array_equal(one, np.asarray(large)) for one in found)


def test_no_standard_input(monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    [handed] = from_names(["-"])
    with pytest.raises(DataError, match="standard input: the file is empty"):
        handed.decoded("RGB", POLICY)
