from typing import Any

import pytest

from vitrail.config import DecodePolicy, from_json, to_json
from vitrail.config.decoding import FORMATS
from vitrail.errors import DataError, UsageError


def refusal(**changes: Any) -> str:
    with pytest.raises(UsageError) as caught:
        DecodePolicy(**changes)
    return str(caught.value)


def test_the_defaults_are_white_behind_and_pillows_limit():
    policy = DecodePolicy()
    assert policy.background == (255, 255, 255)
    assert policy.max_pixels == 1024**3 // 4 // 3
    assert policy.max_aspect == 100


def test_formats_that_run_programs_or_have_no_pixels_are_not_read():
    assert {"JPEG", "PNG", "WEBP"} <= set(FORMATS)
    assert not {"EPS", "PDF", "WMF", "FITS", "PSD"} & set(FORMATS)


@pytest.mark.parametrize(
    "background",
    [(), (0, 0), (0, 0, 0, 0), (-1, 0, 0), (0, 256, 0), (0.5, 0, 0), (255.0, 0, 0), ("red", 0, 0), (None, 0, 0)],
)
def test_a_background_is_three_bytes(background: Any):
    assert refusal(background=background) == f"background is {background}; wanted three numbers from 0 to 255."


@pytest.mark.parametrize("background", [(0, 0, 0), (255, 0, 128)])
def test_any_colour_may_be_behind(background: tuple[int, int, int]):
    assert DecodePolicy(background=background).background == background


@pytest.mark.parametrize("pixels", [0, -1, 2**40 + 1, 1.5, True, "many"])
def test_the_limit_is_a_count_of_pixels(pixels: Any):
    assert refusal(max_pixels=pixels).startswith(f"max_pixels is {pixels!r}; wanted a whole number from 1 to ")


@pytest.mark.parametrize("aspect", [0, -3, 2**20 + 1, 2.5, False])
def test_the_ratio_of_the_sides_is_a_count(aspect: Any):
    assert refusal(max_aspect=aspect).startswith(f"max_aspect is {aspect!r}; wanted a whole number from 1 to ")


def test_the_ends_of_the_ranges_are_accepted():
    for pixels, aspect in ((1, 1), (2**40, 2**20)):
        policy = DecodePolicy(max_pixels=pixels, max_aspect=aspect)
        assert (policy.max_pixels, policy.max_aspect) == (pixels, aspect)


def test_it_is_recorded_and_read_back():
    policy = DecodePolicy(background=(1, 2, 3), max_pixels=10, max_aspect=7)
    assert from_json(DecodePolicy, to_json(policy), where="config.json") == policy
    assert from_json(DecodePolicy, {}, where="config.json") == DecodePolicy()


@pytest.mark.parametrize("values", [{"backgroud": [0, 0, 0]}, {"background": "white"}, {"background": [0, 0, 999]}])
def test_a_record_that_was_edited_wrongly_is_refused(values: Any):
    with pytest.raises((DataError, UsageError), match="backgrou"):
        from_json(DecodePolicy, values, where="config.json")
