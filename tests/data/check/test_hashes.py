import io

import numpy as np
import pytest
from PIL import Image, ImageOps
from tests.data.check.scenes import scene
from tests.data.pictures import encoded

from vitrail.data.check.hashes import THUMBNAIL, Look, detail, look_of, pixel_hash


def distance(one: int, other: int) -> int:
    return (one ^ other).bit_count()


def again(image: Image.Image, kind: str, **options) -> Image.Image:
    return Image.open(io.BytesIO(encoded(image, kind, **options))).convert("RGB")


def test_equal_pixels_have_equal_hashes_and_one_level_in_one_pixel_changes_them():
    image = scene(0)
    assert pixel_hash(image) == pixel_hash(again(image, "PNG"))
    values = np.asarray(image).copy()
    values[5, 7, 1] ^= 1
    assert pixel_hash(Image.fromarray(values)) != pixel_hash(image)
    assert len(pixel_hash(image)) == 16


def test_the_shape_is_part_of_the_hash():
    bytes_alike = [Image.new("RGB", size, (9, 9, 9)) for size in ((8, 2), (4, 4), (2, 8))]
    assert len({pixel_hash(image) for image in bytes_alike}) == 3


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_re_encoding_changes_few_bits(kind: str):
    for number in range(20):
        image = scene(number)
        look, other = look_of(image), look_of(again(image, kind, quality=60))
        assert distance(look.bits, other.bits) <= 6
        assert max(abs(a - b) for a, b in zip(look.tint, other.tint, strict=True)) <= 12


def test_different_pictures_differ_in_many_bits():
    looks = [look_of(scene(number)) for number in range(40)]
    near = [(i, j) for i in range(40) for j in range(i) if distance(looks[i].bits, looks[j].bits) <= 6]
    assert near == []


def test_the_mirrored_hash_is_the_hash_of_the_mirrored_image():
    for number in range(10):
        image = scene(number)
        assert distance(look_of(image).mirrored, look_of(ImageOps.mirror(image)).bits) <= 1
        assert distance(look_of(image).bits, look_of(image).mirrored) > 6


def ramp(direction: str) -> Image.Image:
    line = np.linspace(20, 230, 96)
    rows = {"right": line[None, :], "left": line[None, ::-1], "down": line[:, None]}[direction]
    return Image.fromarray(np.broadcast_to(rows, (96, 96)).astype(np.uint8)).convert("RGB")


@pytest.mark.parametrize(
    "image",
    [
        Image.new("RGB", (100, 100), (200, 10, 10)),
        ramp("right"),
        ramp("left"),
        ramp("down"),
        scene(1, (31, 200)),
        scene(1, (8, 8)),
    ],
    ids=["even", "right", "left", "down", "narrow", "tiny"],
)
def test_what_has_no_detail_or_is_tiny_is_not_telling(image: Image.Image):
    assert not look_of(image).is_telling


def test_pictures_are_telling():
    assert all(look_of(scene(number)).is_telling for number in range(40))


def test_a_grainy_blank_page_is_not_telling():
    grain = np.random.default_rng(0).normal(240, 6, (200, 160, 3)).clip(0, 255).astype(np.uint8)
    assert not look_of(Image.fromarray(grain)).is_telling


def test_detail_is_what_a_plane_does_not_explain():
    along, down = np.meshgrid(np.arange(THUMBNAIL), np.arange(THUMBNAIL))
    assert np.abs(detail(3.0 * along - 2.0 * down + 40)).max() < 1e-3
    spot = np.zeros((2, THUMBNAIL, THUMBNAIL), np.uint8)
    spot[1, 4:8, 8:12] = 200
    flat, seen = detail(spot)
    assert not flat.any()
    assert seen[5, 9] > 100


def test_a_look_is_small():
    look = look_of(scene(0, (640, 480)))
    assert isinstance(look, Look)
    assert look.thumbnail.shape == (16, 16)
    assert look.thumbnail.dtype == np.uint8
    assert 0 <= look.bits < 2**64
