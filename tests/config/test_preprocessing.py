from dataclasses import replace
from typing import Any

import pytest

from vitrail.config import PRESETS, Preprocessing, from_json, preset, to_json
from vitrail.config.preprocessing import crop_share, known_preprocessing
from vitrail.errors import UsageError

HALF = (0.5, 0.5, 0.5)


def refusal(**changes: Any) -> str:
    with pytest.raises(UsageError) as caught:
        Preprocessing(**{"mean": HALF, "std": HALF, "interpolation": "bilinear", **changes})
    return str(caught.value)


def test_google_squashes_to_minus_one_to_one_without_antialias():
    assert preset("google") == Preprocessing(
        mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), interpolation="bilinear", crop=None, antialias=False
    )


def test_augreg_crops_and_is_bicubic():
    assert preset("augreg") == Preprocessing(
        mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), interpolation="bicubic", crop=0.9, antialias=True
    )


def test_imagenet_has_the_statistics_of_imagenet():
    assert preset("imagenet") == Preprocessing(
        mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), interpolation="bicubic", crop=0.9, antialias=True
    )


def test_there_are_no_presets_without_a_test():
    assert set(PRESETS) == {"google", "augreg", "imagenet"}


def test_an_unknown_preset_is_an_error_with_a_suggestion():
    with pytest.raises(UsageError, match=r"^Unknown preprocessing preset 'gogle'\. Did you mean 'google'\?$"):
        preset("gogle")


def test_the_default_is_the_whole_image_with_antialias():
    config = Preprocessing(mean=HALF, std=HALF, interpolation="bilinear")
    assert config.crop is None
    assert config.antialias is True


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_any_number_of_channels(channels: int):
    config = Preprocessing(mean=(0.1,) * channels, std=(0.2,) * channels, interpolation="bicubic")
    assert len(config.mean) == len(config.std) == channels


@pytest.mark.parametrize(("mean", "std"), [(2, 3), (3, 1), (0, 3), (0, 0)])
def test_mean_and_std_have_one_value_per_channel(mean: int, std: int):
    message = refusal(mean=(0.5,) * mean, std=(0.5,) * std)
    assert message == f"mean has {mean} values and std {std}; wanted one of each per channel."


@pytest.mark.parametrize("std", [(0.5, 0.0, 0.5), (0.5, 0.5, -0.1)])
def test_std_is_positive(std: tuple[float, ...]):
    assert refusal(std=std) == f"std is {std}; wanted positive numbers."


@pytest.mark.parametrize("crop", [0, 0.0, 1e-320, -0.5, 1.01, 90, float("nan")])
def test_crop_is_a_share(crop: float):
    assert f"crop is {crop}" in refusal(crop=crop)


def test_a_crop_of_everything_is_accepted():
    assert Preprocessing(mean=HALF, std=HALF, interpolation="bicubic", crop=1.0).crop == 1.0


def test_an_unknown_interpolation_is_refused():
    assert refusal(interpolation="bicubik") == "Unknown interpolation 'bicubik'. Did you mean 'bicubic'?"
    assert refusal(interpolation="nearest") == "Unknown interpolation 'nearest'. Choose from bilinear, bicubic."


def test_a_share_gives_back_the_pixels_it_was_made_of():
    for cropped in (32, 48, 224, 288, 384, 518):
        for resized in range(cropped, 2 * cropped):
            config = Preprocessing(mean=HALF, std=HALF, interpolation="bicubic", crop=crop_share(cropped, resized))
            assert config.resized(cropped) == resized


def test_files_that_prepare_alike_agree_however_they_say_it():
    augreg = preset("augreg")
    other = replace(augreg, crop=crop_share(224, 248), antialias=False)
    assert augreg.agrees(other, (224, 224), channels=3)
    assert not augreg.agrees(other, (384, 384), channels=3)
    for change in ({"crop": None}, {"squash": True}, {"interpolation": "bilinear"}, {"mean": (0.4, 0.5, 0.5)}):
        assert not augreg.agrees(replace(augreg, **change), (224, 224), channels=3)
    whole = replace(augreg, crop=None)
    for squash in (replace(augreg, crop=1.0, squash=True), replace(augreg, crop=None, squash=True)):
        assert whole.agrees(squash, (224, 112), channels=3)
    assert not whole.agrees(replace(augreg, crop=1.0), (224, 224), channels=3)


@pytest.mark.parametrize(("channels", "alike"), [(1, (0.449,)), (3, (0.485, 0.456, 0.406))])
def test_one_mean_and_three_agree_where_they_are_taken_alike(channels, alike):
    imagenet = preset("imagenet")
    other = replace(imagenet, mean=alike, std=(0.226,) if channels == 1 else imagenet.std)
    assert imagenet.agrees(other, (224, 224), channels)
    assert not imagenet.agrees(replace(other, mean=(0.4,) * len(alike)), (224, 224), channels)
    one = replace(imagenet, mean=(0.5,), std=(0.25,))
    assert one.agrees(replace(one, mean=HALF, std=(0.25,) * 3), (224, 224), channels)


def test_what_came_later_is_written_only_where_it_is_set():
    """Versions that do not know the field read the rest."""
    assert "squash" not in to_json(preset("augreg"))
    squashed = replace(preset("augreg"), squash=True)
    assert to_json(squashed)["squash"] is True
    for one in (preset("augreg"), squashed):
        assert from_json(Preprocessing, to_json(one), where="x") == one


def test_who_does_not_know_is_told_which_weights_take_which():
    with pytest.raises(UsageError, match=r"augreg for AugReg.*imagenet for DeiT"):
        known_preprocessing(None, None, "x")
    assert known_preprocessing(None, "google", "x") == preset("google")
