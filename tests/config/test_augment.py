from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitrail.config import AugmentConfig, from_json, to_json
from vitrail.errors import DataError, UsageError


def refusal(**changes: Any) -> str:
    with pytest.raises(UsageError) as caught:
        AugmentConfig(**changes)
    return str(caught.value)


def test_the_defaults_are_the_papers_pre_training():
    """Inception crop of 5 to 100 % and a flip, nothing else."""
    config = AugmentConfig()
    assert (config.crop, config.min_area, config.flip) == ("inception", 0.05, True)
    assert (config.randaugment_layers, config.mixup, config.cutmix, config.erasing) == (0, 0.0, 0.0, 0.0)
    assert not config.is_mixing


@pytest.mark.parametrize("crop", ["inception", "resize", "pad", "whole"])
def test_the_crops(crop: Any):
    assert AugmentConfig(crop=crop).crop == crop


def test_an_unknown_crop_gets_a_suggestion():
    assert refusal(crop="incepton") == "Unknown crop 'incepton'. Did you mean 'inception'?"
    assert refusal(crop="center") == "Unknown crop 'center'. Choose from inception, resize, pad, whole."


@pytest.mark.parametrize("share", [0, 0.0, -0.1, 1.01, 5, float("nan"), float("inf")])
def test_the_smallest_area_is_a_share(share: float):
    assert refusal(min_area=share) == f"min_area is {share}; wanted a share in (0, 1]."


@pytest.mark.parametrize("share", [-0.1, 1.01, 25, float("nan")])
def test_erasing_is_a_share(share: float):
    assert refusal(erasing=share) == f"erasing is {share}; wanted a share in [0, 1]."


def test_the_ends_of_the_shares_are_accepted():
    assert AugmentConfig(min_area=1, erasing=0).min_area == 1
    assert AugmentConfig(min_area=1e-9, erasing=1).erasing == 1


@pytest.mark.parametrize("name", ["pad", "randaugment_layers"])
@pytest.mark.parametrize("value", [-1, 1.5, True, "2", None])
def test_counts_are_whole_numbers_from_zero(name: str, value: Any):
    assert refusal(**{name: value}).startswith(f"{name} is {value!r}; wanted a whole number from 0 ")


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "448"])
def test_the_side_of_the_square_is_positive(value: Any):
    assert refusal(resize=value).startswith(f"resize is {value!r}; wanted a whole number from 1 ")


@pytest.mark.parametrize("name", ["randaugment_magnitude", "mixup", "cutmix"])
@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), "0.2", True, None])
def test_strengths_are_numbers_from_zero(name: str, value: Any):
    assert refusal(**{name: value}) == f"{name} is {value!r}; wanted a number from 0 up."


@pytest.mark.parametrize(
    ("mixup", "cutmix", "is_mixing"), [(0, 0, False), (0.2, 0, True), (0, 1.0, True), (0.2, 1.0, True)]
)
def test_targets_are_shares_when_either_mixes(mixup: float, cutmix: float, is_mixing: bool):
    assert AugmentConfig(mixup=mixup, cutmix=cutmix).is_mixing is is_mixing


@given(
    st.builds(
        AugmentConfig,
        crop=st.sampled_from(["inception", "resize", "pad", "whole"]),
        min_area=st.floats(1e-6, 1),
        resize=st.integers(1, 2000),
        pad=st.integers(0, 100),
        flip=st.booleans(),
        randaugment_layers=st.integers(0, 9),
        randaugment_magnitude=st.floats(0, 40),
        mixup=st.floats(0, 10),
        cutmix=st.floats(0, 10),
        erasing=st.floats(0, 1),
    )
)
def test_it_is_recorded_and_read_back(config: AugmentConfig):
    assert from_json(AugmentConfig, to_json(config), where="config.json") == config


def test_a_typo_in_a_record_gets_a_suggestion():
    with pytest.raises((DataError, UsageError), match="Did you mean 'cutmix'"):
        from_json(AugmentConfig, {"cutmx": 1.0}, where="config.json")
