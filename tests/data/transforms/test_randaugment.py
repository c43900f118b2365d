"""The sixteen operations against Pillow and against the original's arithmetic, written out for one image each."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps
from scipy.stats import chisquare, kstest
from tests.data.pictures import photo

from vitrail.data.transforms.randaugment import OPERATIONS, Layer, draw_layers, randaugment

HEIGHT, WIDTH = 90, 120
MAGNITUDES = [0, 5, 10, 15, 20]
GEOMETRY = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
# What a magnitude of zero leaves as it is; all others act.
STILL_AT_ZERO = (*GEOMETRY, "cutout", "solarize_add")


def noise(height: int = HEIGHT, width: int = WIDTH, seed: int = 0) -> np.ndarray:
    """Every grey level, none of them at 0 or 255 in the last channel, so that there is contrast to stretch."""
    array = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    array[..., 2] = 60 + array[..., 2] // 3
    return array


def layer_of(operation: str, count: int = 1, sign: int = 1, centre=(0.5, 0.5)) -> Layer:
    return Layer(
        operation=np.full(count, OPERATIONS.index(operation)),
        sign=np.full(count, float(sign)),
        centre=np.tile(np.array(centre, dtype=np.float64), (count, 1)),
    )


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array.copy()).permute(2, 0, 1)[None].contiguous()


def applied(array: np.ndarray, operation: str, magnitude: float, **options) -> np.ndarray:
    moved = randaugment(tensor(array), [layer_of(operation, **options)], magnitude)
    assert moved.dtype == torch.uint8
    return moved[0].permute(1, 2, 0).numpy()


def levels_apart(one: np.ndarray, other: np.ndarray | Image.Image) -> int:
    return int(np.abs(one.astype(int) - np.asarray(other).astype(int)).max())


def affine(array: np.ndarray, matrix: tuple[float, ...]) -> np.ndarray:
    """TensorFlow's projective transform: single precision, halves rounded away from zero, grey where nothing is."""
    height, width = array.shape[:2]
    a, b, c, d, e, f = (np.float32(value) for value in matrix)
    y, x = np.mgrid[:height, :width].astype(np.float32)

    def nearest(values: np.ndarray) -> np.ndarray:
        return (np.sign(values) * np.floor(np.abs(values) + 0.5)).astype(int)

    column, row = nearest(a * x + b * y + c), nearest(d * x + e * y + f)
    result = np.full_like(array, 128)
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    result[inside] = array[row[inside], column[inside]]
    return result


def blend(behind: np.ndarray, array: np.ndarray, magnitude: float) -> np.ndarray:
    """Beyond `array` as seen from `behind`, in single precision, cut off and not rounded."""
    strength = np.float32(magnitude / 10 * 1.8 + 0.1)
    behind, array = behind.astype(np.float32), array.astype(np.float32)
    return np.clip(behind + strength * (array - behind), 0, 255).astype(np.uint8)


@pytest.mark.parametrize("magnitude", MAGNITUDES)
def test_autocontrast(magnitude) -> None:
    array = noise()
    found = applied(array, "autocontrast", magnitude)
    assert levels_apart(found, ImageOps.autocontrast(Image.fromarray(array))) <= 1
    assert (found.reshape(-1, 3).min(0) == 0).all()
    assert (found.reshape(-1, 3).max(0) >= 254).all()
    low, high = array[..., 2].min().astype(np.float32), array[..., 2].max().astype(np.float32)
    scale = np.float32(255) / (high - low)
    expected = np.clip(array[..., 2].astype(np.float32) * scale - low * scale, 0, 255).astype(np.uint8)
    assert (found[..., 2] == expected).all()


def test_autocontrast_leaves_a_flat_channel() -> None:
    array = noise()
    array[..., 1] = 77
    assert (applied(array, "autocontrast", 10)[..., 1] == 77).all()


@pytest.mark.parametrize(
    "make", [noise, lambda: photo(60, 80), lambda: np.full((30, 30, 3), 9, np.uint8), lambda: noise(3, 5)]
)
def test_equalize_is_pillows(make) -> None:
    array = make()
    assert (applied(array, "equalize", 10) == np.asarray(ImageOps.equalize(Image.fromarray(array)))).all()


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), height=st.integers(1, 40), width=st.integers(1, 40), ceiling=st.integers(1, 256))
def test_equalize_is_pillows_on_any_histogram(seed, height, width, ceiling) -> None:
    array = np.random.default_rng(seed).integers(0, ceiling, (height, width, 3)).astype(np.uint8)
    assert (applied(array, "equalize", 0) == np.asarray(ImageOps.equalize(Image.fromarray(array)))).all()


@pytest.mark.parametrize("magnitude", MAGNITUDES)
def test_invert_is_pillows_at_any_magnitude(magnitude) -> None:
    assert (applied(noise(), "invert", magnitude) == np.asarray(ImageOps.invert(Image.fromarray(noise())))).all()


@pytest.mark.parametrize(("magnitude", "bits"), [(0, 1), (2, 1), (5, 2), (10, 4), (15, 6), (17.5, 7), (20, 8), (30, 8)])
def test_posterize_keeps_four_bits_at_ten_and_at_least_one(magnitude, bits) -> None:
    expected = ImageOps.posterize(Image.fromarray(noise()), bits)
    assert (applied(noise(), "posterize", magnitude) == np.asarray(expected)).all()


@pytest.mark.parametrize(("magnitude", "threshold"), [(0, 0), (5, 128), (7, 179), (10, 0), (15, 128), (20, 0)])
def test_solarize_is_pillows_with_a_threshold_that_wraps_at_256(magnitude, threshold) -> None:
    expected = ImageOps.solarize(Image.fromarray(noise()), threshold)
    assert (applied(noise(), "solarize", magnitude) == np.asarray(expected)).all()


@pytest.mark.parametrize(("magnitude", "added"), [(0, 0), (5, 55), (10, 110), (15, 165), (20, 220)])
def test_solarize_add_brightens_the_dark_half(magnitude, added) -> None:
    array = noise().astype(int)
    expected = np.where(array < 128, np.minimum(array + added, 255), array)
    assert (applied(noise(), "solarize_add", magnitude) == expected).all()


@pytest.mark.parametrize("magnitude", MAGNITUDES)
def test_color(magnitude) -> None:
    array, strength = noise(), magnitude / 10 * 1.8 + 0.1
    red, green, blue = (array[..., channel].astype(np.float64) / 255 for channel in range(3))
    grey = np.floor((0.2989 * red + 0.587 * green + 0.114 * blue) * 255.5)
    found = applied(array, "color", magnitude)
    assert levels_apart(found, blend(grey[..., None], array, magnitude)) <= 1
    # Pillow rounds its grey, so that the two greys may be a level apart, and the blend stretches that.
    assert levels_apart(found, ImageEnhance.Color(Image.fromarray(array)).enhance(strength)) <= 1 + abs(1 - strength)


def test_color_of_nothing_but_grey_is_the_same_grey() -> None:
    array = np.repeat(np.arange(256, dtype=np.uint8).reshape(16, 16, 1), 3, axis=2)
    assert levels_apart(applied(array, "color", 10), array) <= 1


@pytest.mark.parametrize("magnitude", MAGNITUDES)
def test_brightness(magnitude) -> None:
    found = applied(noise(), "brightness", magnitude)
    assert (found == blend(np.zeros(1), noise(), magnitude)).all()
    enhanced = ImageEnhance.Brightness(Image.fromarray(noise())).enhance(magnitude / 10 * 1.8 + 0.1)
    assert levels_apart(found, enhanced) <= 1


@pytest.mark.parametrize("size", [(90, 120), (224, 224), (8, 8), (300, 300)])
@pytest.mark.parametrize("magnitude", MAGNITUDES)
def test_contrast_takes_a_256th_of_the_pixels_for_the_mean(magnitude, size) -> None:
    array = noise(*size)
    behind = np.full(1, min(size[0] * size[1] // 256, 255))
    assert (applied(array, "contrast", magnitude) == blend(behind, array, magnitude)).all()


def test_contrast_is_not_pillows() -> None:
    array = noise(224, 224) // 4
    found = applied(array, "contrast", 0)
    assert found.mean() > 175
    assert np.asarray(ImageEnhance.Contrast(Image.fromarray(array)).enhance(0.1)).mean() < 40


@pytest.mark.parametrize("magnitude", MAGNITUDES)
def test_sharpness(magnitude) -> None:
    array, strength = noise(), magnitude / 10 * 1.8 + 0.1
    blurred = array.copy()
    for y in range(1, HEIGHT - 1):
        for x in range(1, WIDTH - 1):
            around = array[y - 1 : y + 2, x - 1 : x + 2].astype(int).sum((0, 1)) + 4 * array[y, x].astype(int)
            blurred[y, x] = around // 13
    found = applied(array, "sharpness", magnitude)
    assert levels_apart(found, blend(blurred, array, magnitude)) <= 1
    enhanced = ImageEnhance.Sharpness(Image.fromarray(array)).enhance(strength)
    assert levels_apart(found, enhanced) <= 1 + abs(1 - strength)
    border = np.ones((HEIGHT, WIDTH), dtype=bool)
    border[1:-1, 1:-1] = False
    assert (found[border] == array[border]).all()


def matrix_of(operation: str, magnitude: float, sign: int) -> tuple[float, ...]:
    level = sign * magnitude / 10
    if operation == "rotate":
        angle = math.radians(30 * level)
        cosine, sine, x, y = math.cos(angle), math.sin(angle), (WIDTH - 1) / 2, (HEIGHT - 1) / 2
        return cosine, -sine, x - cosine * x + sine * y, sine, cosine, y - sine * x - cosine * y
    shear = {"shear_x": (1, 0.3 * level, 0, 0, 1, 0), "shear_y": (1, 0, 0, 0.3 * level, 1, 0)}
    across, down = 100 / 224 * level * WIDTH, 100 / 224 * level * HEIGHT
    translate = {"translate_x": (1, 0, across, 0, 1, 0), "translate_y": (1, 0, 0, 0, 1, down)}
    return (shear | translate)[operation]


def is_decided(matrix: tuple[float, ...]) -> np.ndarray:
    """Where the nearest pixel is no matter of rounding: not half-way between two, to a thousandth."""
    a, b, c, d, e, f = matrix
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(np.float64)
    halves = [np.abs((place + 0.5) - np.round(place + 0.5)) for place in (a * x + b * y + c, d * x + e * y + f)]
    return (halves[0] > 1e-3) & (halves[1] > 1e-3)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("magnitude", MAGNITUDES)
@pytest.mark.parametrize("operation", GEOMETRY)
def test_geometry_takes_the_nearest_pixel_and_fills_with_grey(operation, magnitude, sign) -> None:
    array, matrix = noise(), matrix_of(operation, magnitude, sign)
    found, decided = applied(array, operation, magnitude, sign=sign), is_decided(matrix)
    assert decided.mean() > 0.85
    different = (found != affine(array, matrix)).any(-1)
    assert not different[decided].any()
    # Only a rotation, whose offsets are computed, may decide otherwise where two pixels are equally near.
    assert operation == "rotate" or not different.any()
    a, b, c, d, e, f = matrix
    # Pillow counts from the corner of the first pixel, the original from its centre.
    corner = (a, b, c + (1 - a - b) / 2, d, e, f + (1 - d - e) / 2)
    by_pillow = Image.fromarray(array).transform(
        (WIDTH, HEIGHT), Image.Transform.AFFINE, corner, Image.Resampling.NEAREST, fillcolor=(128, 128, 128)
    )
    assert (found[decided] == np.asarray(by_pillow)[decided]).all()
    assert (found == array).all() == (magnitude == 0)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("magnitude", [5, 10, 15, 20])
def test_rotation_is_pillows(magnitude, sign) -> None:
    by_pillow = Image.fromarray(noise()).rotate(sign * 3 * magnitude, Image.Resampling.NEAREST, fillcolor=(128,) * 3)
    decided = is_decided(matrix_of("rotate", magnitude, sign))
    assert (applied(noise(), "rotate", magnitude, sign=sign)[decided] == np.asarray(by_pillow)[decided]).all()


def test_what_is_half_a_pixel_outside_is_outside() -> None:
    """A shear of -0.3 reads -0.5 at (1, 5), which the original rounds away from zero, to -1."""
    assert (applied(noise(), "shear_x", 10, sign=-1)[5, 1] == 128).all()
    assert (applied(noise(), "shear_x", 10, sign=-1)[5, 2] == noise()[5, 1]).all()


def test_rotation_by_ninety_degrees_of_a_square_is_exact() -> None:
    array = noise(51, 51)
    assert (applied(array, "rotate", 30) == np.rot90(array)).all()


def test_shear_is_about_the_corner() -> None:
    array = noise()
    assert (applied(array, "shear_x", 10)[0] == array[0]).all()
    assert (applied(array, "shear_y", 10)[:, 0] == array[:, 0]).all()
    assert (applied(array, "shear_x", 10)[10, :-3] == array[10, 3:]).all()
    assert (applied(array, "shear_x", 10)[10, -3:] == 128).all()


def test_translation_is_the_originals_hundred_pixels_at_its_size() -> None:
    array = noise(224, 224)
    found = applied(array, "translate_x", 10)
    assert (found[:, :124] == array[:, 100:]).all()
    assert (found[:, 124:] == 128).all()
    found = applied(array, "translate_y", 10, sign=-1)
    assert (found[100:] == array[:124]).all()
    assert (found[:100] == 128).all()


def test_translation_is_the_same_share_of_a_smaller_image() -> None:
    array = noise(112, 56)
    assert (applied(array, "translate_y", 10)[:62] == array[50:]).all()
    assert (applied(array, "translate_x", 10)[:, :31] == array[:, 25:]).all()


@pytest.mark.parametrize("centre", [(0.0, 0.0), (0.5, 0.5), (1 - 2**-32, 1 - 2**-32), (0.3, 0.99)])
@pytest.mark.parametrize(("magnitude", "reach"), [(0, 0), (1, 4), (5, 20), (10, 40), (15, 60), (20, 80)])
def test_cutout_is_a_grey_square_around_a_pixel(magnitude, reach, centre) -> None:
    array = noise(224, 224)
    expected = array.copy()
    y, x = int(centre[0] * 224), int(centre[1] * 224)
    expected[max(y - reach, 0) : y + reach, max(x - reach, 0) : x + reach] = 128
    assert (applied(array, "cutout", magnitude, centre=centre) == expected).all()


def test_cutout_is_the_same_share_of_a_smaller_image() -> None:
    array = noise(112, 56)
    expected = array.copy()
    expected[36:76, 18:38] = 128
    assert (applied(array, "cutout", 10) == expected).all()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_only_geometry_heeds_the_sign(operation) -> None:
    one, other = (applied(noise(), operation, 5, sign=sign) for sign in (1, -1))
    assert (one == other).all() == (operation not in GEOMETRY)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_only_some_operations_rest_at_magnitude_zero(operation) -> None:
    assert (applied(noise(), operation, 0) == noise()).all() == (operation in STILL_AT_ZERO)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("magnitude", [0, 10, 20])
def test_a_grey_image_is_treated_as_its_colour_twin(operation, magnitude) -> None:
    grey = np.random.default_rng(1).integers(0, 256, (40, 50, 1), dtype=np.uint8)
    found = applied(grey, operation, magnitude)
    assert found.shape == grey.shape
    assert levels_apart(found, applied(np.repeat(grey, 3, 2), operation, magnitude)[..., :1]) <= (operation == "color")


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 2), (3, 1), (3, 3)])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_tiny_images(operation, shape) -> None:
    array = noise(*shape)
    for magnitude in MAGNITUDES:
        for sign in (1, -1):
            assert applied(array, operation, magnitude, sign=sign).shape == array.shape
    if operation == "sharpness" and min(shape) < 3:
        assert (applied(array, operation, 10) == array).all()


def test_a_picked_operation_is_always_applied() -> None:
    images = tensor(noise(8, 8)).repeat(200, 1, 1, 1)
    assert torch.equal(randaugment(images.clone(), [layer_of("invert", 200)], 10), 255 - images)


def test_layers_come_one_after_the_other() -> None:
    array = noise()
    both = randaugment(tensor(array), [layer_of("solarize_add"), layer_of("invert")], 5)
    other = randaugment(tensor(array), [layer_of("invert"), layer_of("solarize_add")], 5)
    assert torch.equal(both, tensor(applied(applied(array, "solarize_add", 5), "invert", 5)))
    assert torch.equal(other, tensor(applied(applied(array, "invert", 5), "solarize_add", 5)))
    assert not torch.equal(both, other)


def test_it_happens_in_place() -> None:
    images = tensor(noise())
    result = randaugment(images, [layer_of("invert")], 10)
    assert result.data_ptr() == images.data_ptr()
    assert torch.equal(images, 255 - tensor(noise()))
    assert torch.equal(randaugment(images, [], 10), 255 - tensor(noise()))


@pytest.mark.parametrize("magnitude", [0, 10, 20])
def test_an_image_does_not_depend_on_its_neighbours(magnitude) -> None:
    count = 96
    images = torch.cat([tensor(noise(24, 32, seed)) for seed in range(count)])
    epochs, ids = np.arange(count) % 3, np.arange(count) * 5 + 1
    layers = draw_layers(7, epochs, ids, 2)
    assert len(set(layers[0].operation.tolist())) == len(OPERATIONS)
    together = randaugment(images.clone(), layers, magnitude)
    order = np.random.default_rng(0).permutation(count)
    shuffled = randaugment(images[order].clone(), draw_layers(7, epochs[order], ids[order], 2), magnitude)
    assert torch.equal(shuffled, together[torch.from_numpy(order)])
    for row in range(count):
        mine = slice(row, row + 1)
        alone = randaugment(images[mine].clone(), draw_layers(7, epochs[mine], ids[mine], 2), magnitude)
        assert torch.equal(alone[0], together[row])


def test_light1_is_not_without_effect() -> None:
    """AugReg's weakest setting: two layers of magnitude zero."""
    count = 512
    images = tensor(noise(16, 16)).repeat(count, 1, 1, 1)
    ids = np.arange(count)
    result = randaugment(images.clone(), draw_layers(0, np.zeros(count, dtype=int), ids, 2), 0)
    changed = (result != images).flatten(1).any(1).float().mean().item()
    # Both layers rest in (7 / 16)² of the cases; two inversions undo each other in a few more.
    assert abs(changed - (1 - (7 / 16) ** 2)) < 0.06


def test_every_operation_has_its_share() -> None:
    count = 16_000
    layers = draw_layers(3, np.zeros(count, dtype=int), np.arange(count), 2)
    assert len(layers) == 2
    for layer in layers:
        assert chisquare(np.bincount(layer.operation, minlength=16)).pvalue > 1e-3
        assert set(layer.sign.tolist()) == {1.0, -1.0}
        assert abs(layer.sign.mean()) < 0.03
        for axis in (0, 1):
            assert kstest(layer.centre[:, axis], "uniform").pvalue > 1e-3
        together = np.corrcoef(np.c_[layer.operation, layer.sign, layer.centre].T)
        assert np.abs(together - np.eye(4)).max() < 0.03
    pairs = layers[0].operation * 16 + layers[1].operation
    assert chisquare(np.bincount(pairs, minlength=256)).pvalue > 1e-3


def test_other_seeds_epochs_and_images_draw_others() -> None:
    def drawn(seed=0, epoch=0, first=0) -> tuple[int, ...]:
        return tuple(draw_layers(seed, np.full(64, epoch), np.arange(first, first + 64), 1)[0].operation.tolist())

    assert drawn() == drawn()
    assert len({drawn(), drawn(seed=1), drawn(epoch=1), drawn(first=64)}) == 4


def test_the_sixteen_operations_are_those_of_the_original() -> None:
    assert len(set(OPERATIONS)) == len(OPERATIONS) == 16
