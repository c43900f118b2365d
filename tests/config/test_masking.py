"""What may be hidden, and what may be asked about it."""

import math

import pytest

from vitrail.config import MaskingConfig
from vitrail.errors import UsageError


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"method": "guess"}, "method"),
        ({"target": "pixel"}, "target"),
        ({"method": "autoencoder"}, "pixels, which is what an autoencoder predicts"),
        *(({"share": share}, "share is") for share in (0.0, 1.0, -0.5, math.nan)),
        *(({"masked": share}, "at most 1 together") for share in (-0.1, 0.95, math.nan, math.inf)),
        ({"swapped": math.nan}, "at most 1 together"),
        ({"decoder_depth": 0}, "decoder_depth is 0"),
        ({"decoder_width": 30, "decoder_heads": 2}, "a multiple of 2 and of 4"),
        ({"decoder_heads": 7}, "a multiple of 7 and of 4"),
    ],
)
def test_what_cannot_be_hidden_so_is_refused(wrong, said) -> None:
    with pytest.raises(UsageError, match=said):
        MaskingConfig(**wrong)


def test_all_hidden_patches_may_be_masked_or_none() -> None:
    assert MaskingConfig(masked=1.0, swapped=0.0).masked == 1
    assert MaskingConfig(masked=0.0, swapped=0.0).swapped == 0
    # Shares that make one together, but for the last bit of a float.
    assert MaskingConfig(masked=0.7, swapped=0.3).swapped == 0.3
