"""The evaluation resize against timm, torch and a computation of its own; the geometry of training by crop."""

import numpy as np
import pytest
import timm.data
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

from vitrail.config import AugmentConfig, Preprocessing, preset
from vitrail.data.transforms.fit import crop_room, fit_for_evaluation, fit_for_training, resize_bytes
from vitrail.errors import UsageError

HALF = (0.5, 0.5, 0.5)
# Landscape, portrait, square, odd, already right, just as large as before the crop, tiny, and a line.
SIZES = [(60, 100), (120, 70), (64, 64), (47, 33), (32, 32), (35, 35), (36, 35), (5, 3), (1, 1), (2, 90)]


def noise(height: int, width: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(height * 1000 + width).integers(0, 256, (height, width, channels), dtype=np.uint8)


def picture(height: int, width: int) -> Image.Image:
    return Image.fromarray(noise(height, width))


def chw(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array).permute(2, 0, 1)


def by_timm(image: Image.Image, size: int) -> torch.Tensor:
    """Bytes just before normalisation."""
    transform = timm.data.create_transform(
        (3, size, size), is_training=False, crop_pct=0.9, interpolation="bicubic", use_prefetcher=True
    )
    return transform(image)  # type: ignore[operator]


def by_formula(array: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """TensorFlow's bilinear resize without antialias: half-pixel centres, the two nearest of each axis, edges held."""

    def axis(values: np.ndarray, outputs: int) -> np.ndarray:
        inputs = len(values)
        place = (np.arange(outputs) + 0.5) * (inputs / outputs) - 0.5
        low = np.floor(place)
        share = (place - low).reshape(-1, *[1] * (values.ndim - 1))
        first, second = (np.clip(low + step, 0, inputs - 1).astype(int) for step in (0, 1))
        return values[first] * (1 - share) + values[second] * share

    return axis(axis(array.astype(np.float64), size[0]).swapaxes(0, 1), size[1]).swapaxes(0, 1)


@pytest.mark.parametrize("side", [32, 31, 8])
@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("name", ["augreg", "imagenet"])
def test_the_cropping_presets_are_timms_evaluation_pixel_for_pixel(name, shape, side) -> None:
    image = picture(*shape)
    fitted = fit_for_evaluation(image, (side, side), preset(name))
    assert fitted.dtype == torch.uint8
    assert torch.equal(fitted, by_timm(image, side))


def test_a_photo_at_224_is_timms_evaluation() -> None:
    for shape in ((375, 500), (500, 333)):
        image = picture(*shape)
        assert torch.equal(fit_for_evaluation(image, (224, 224), preset("augreg")), by_timm(image, 224))


def test_normalised_it_is_what_timm_feeds_its_network() -> None:
    from vitrail.data.transforms.augment import normalise

    image, look = picture(90, 70), preset("imagenet")
    transform = timm.data.create_transform(
        (3, 32, 32), is_training=False, crop_pct=0.9, interpolation="bicubic", mean=look.mean, std=look.std
    )
    found = normalise(fit_for_evaluation(image, (32, 32), look)[None], look)[0]
    assert (found - transform(image)).abs().max() < 1e-5  # type: ignore[operator]


@pytest.mark.parametrize("size", [(32, 32), (16, 40), (7, 5)])
@pytest.mark.parametrize("shape", SIZES)
def test_google_is_the_plain_bilinear_resize_of_torch_in_float(shape, size) -> None:
    fitted = fit_for_evaluation(picture(*shape), size, preset("google"))
    pixels = chw(noise(*shape)).float()[None]
    expected = torch.nn.functional.interpolate(pixels, size, mode="bilinear", align_corners=False, antialias=False)
    assert fitted.dtype == torch.float32
    # Grey levels of 255: what float32 leaves open, computed in another order.
    assert (fitted - expected[0]).abs().max() < 5e-4


@settings(max_examples=60)
@given(shape=st.tuples(st.integers(1, 60), st.integers(1, 60)), size=st.tuples(st.integers(1, 40), st.integers(1, 40)))
def test_google_is_the_half_pixel_formula_of_tensorflow(shape, size) -> None:
    fitted = fit_for_evaluation(picture(*shape), size, preset("google"))
    assert np.abs(fitted.permute(1, 2, 0).numpy() - by_formula(noise(*shape), size)).max() < 2e-2


def test_google_is_not_rounded() -> None:
    fitted = fit_for_evaluation(picture(50, 40), (32, 32), preset("google"))
    assert (fitted != fitted.round()).float().mean() > 0.5


@pytest.mark.parametrize("name", ["google", "augreg"])
def test_an_image_of_the_right_size_is_left_alone(name) -> None:
    look = preset(name)
    side = 32 if look.crop is None else 36
    look = look if look.crop is None else Preprocessing(mean=HALF, std=HALF, interpolation="bicubic", crop=32 / 36)
    fitted = fit_for_evaluation(picture(side, side), (32, 32), look)
    margin = (side - 32) // 2
    expected = noise(side, side)[margin : margin + 32, margin : margin + 32]
    assert (fitted.permute(1, 2, 0).numpy() == expected).all()


def test_one_preset_gives_one_dtype_whatever_the_size() -> None:
    for shape in ((32, 32), (50, 40)):
        assert fit_for_evaluation(picture(*shape), (32, 32), preset("google")).dtype == torch.float32
        assert fit_for_evaluation(picture(*shape), (32, 32), preset("augreg")).dtype == torch.uint8


@given(
    shape=st.tuples(st.integers(1, 80), st.integers(1, 80)),
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    crop=st.floats(0.3, 1),
)
def test_an_input_of_any_shape_is_covered(shape, size, crop) -> None:
    """A white image has no border: the resize before the crop is never smaller than the input."""
    look = Preprocessing(mean=HALF, std=HALF, interpolation="bilinear", crop=crop)
    white = Image.new("RGB", (shape[1], shape[0]), "white")
    fitted = fit_for_evaluation(white, size, look)
    assert fitted.shape == (3, *size)
    assert fitted.min() == 255


@pytest.mark.parametrize(("shape", "resized"), [((80, 100), (53, 66)), ((200, 50), (176, 44)), ((60, 50), (53, 44))])
def test_an_input_that_is_no_square_keeps_the_aspect_and_is_cut_from_the_middle(shape, resized) -> None:
    size = (48, 40)
    wanted = picture(*shape).resize((resized[1], resized[0]), Image.Resampling.BICUBIC)
    top, left = round((resized[0] - 48) / 2), round((resized[1] - 40) / 2)
    expected = np.asarray(wanted)[top : top + 48, left : left + 40]
    fitted = fit_for_evaluation(picture(*shape), size, preset("augreg"))
    assert (fitted.permute(1, 2, 0).numpy() == expected).all()


@pytest.mark.parametrize("name", ["google", "augreg", "imagenet"])
def test_a_grey_image_has_one_channel_and_the_pixels_of_its_colour_twin(name) -> None:
    grey = Image.fromarray(noise(50, 41, 1)[:, :, 0])
    fitted = fit_for_evaluation(grey, (24, 24), preset(name))
    assert fitted.shape == (1, 24, 24)
    assert torch.equal(fitted, fit_for_evaluation(grey.convert("RGB"), (24, 24), preset(name))[:1])


def fit(crop: str, offset=(0, 0), size=(20, 24), look: str = "google", box=(0, 0, 40, 50), **augment) -> torch.Tensor:
    config = AugmentConfig(crop=crop, **augment)  # type: ignore[arg-type]
    return fit_for_training(chw(noise(40, 50)), box, size, offset, config, preset(look))


def resized(array: np.ndarray, size: tuple[int, int], look: str = "google") -> torch.Tensor:
    mode = InterpolationMode.BILINEAR if look == "google" else InterpolationMode.BICUBIC
    return functional.resize(chw(array), list(size), interpolation=mode, antialias=look != "google")


@pytest.mark.parametrize("look", ["google", "augreg"])
@pytest.mark.parametrize("crop", ["inception", "whole"])
def test_training_resizes_the_box(crop, look) -> None:
    fitted = fit(crop, box=(3, 7, 30, 20), look=look)
    assert fitted.dtype == torch.uint8
    assert torch.equal(fitted, resized(noise(40, 50)[3:33, 7:27], (20, 24), look))


def test_training_in_bytes_is_the_formula_to_a_level() -> None:
    """Half a level for the rows and half for the columns."""
    expected = by_formula(noise(40, 50)[3:33, 7:27], (20, 24))
    found = fit("inception", box=(3, 7, 30, 20)).permute(1, 2, 0).numpy()
    assert np.abs(found - expected).max() <= 1 + 1e-2


def test_training_crops_from_a_square() -> None:
    fitted = fit("resize", offset=(8, 3), resize=28)
    assert torch.equal(fitted, resized(noise(40, 50), (28, 28))[:, 8:28, 3:27])


def test_training_crops_from_a_black_frame() -> None:
    frame = torch.zeros(3, 28, 32, dtype=torch.uint8)
    frame[:, 4:-4, 4:-4] = resized(noise(40, 50), (20, 24))
    for offset in ((0, 0), (8, 8), (4, 4), (1, 7)):
        expected = frame[:, offset[0] : offset[0] + 20, offset[1] : offset[1] + 24]
        assert torch.equal(fit("pad", offset=offset, pad=4), expected)


def test_training_leaves_an_image_of_the_right_size_alone() -> None:
    assert torch.equal(fit("whole", size=(40, 50)), chw(noise(40, 50)))
    assert torch.equal(fit("pad", size=(40, 50), pad=2, offset=(2, 2)), chw(noise(40, 50)))


def test_training_takes_grey_images() -> None:
    grey = chw(noise(30, 30, 1))
    fitted = fit_for_training(grey, (0, 0, 30, 30), (8, 8), (0, 0), AugmentConfig(), preset("google"))
    assert fitted.shape == (1, 8, 8)
    assert torch.equal(fitted, resize_bytes(grey.expand(3, -1, -1), (8, 8), preset("google"))[:1])


@pytest.mark.parametrize(
    ("augment", "room"),
    [
        (AugmentConfig(), (0, 0)),
        (AugmentConfig(crop="whole"), (0, 0)),
        (AugmentConfig(crop="pad", pad=4), (8, 8)),
        (AugmentConfig(crop="pad", pad=0), (0, 0)),
        (AugmentConfig(crop="resize", resize=448), (64, 128)),
        (AugmentConfig(crop="resize", resize=384), (0, 64)),
    ],
)
def test_the_room_of_a_crop(augment, room) -> None:
    assert crop_room(augment, (384, 320)) == room


@pytest.mark.parametrize("size", [(449, 10), (10, 449), (512, 512)])
def test_a_square_smaller_than_the_input_is_refused(size) -> None:
    with pytest.raises(UsageError, match=rf"^resize is 448; wanted at least the input's {max(size)} pixels\.$"):
        crop_room(AugmentConfig(crop="resize"), size)
