"""Which images a run learns from: what is refused, and JSON."""

import json

import pytest

from vitrail.config import DataConfig, from_json, to_json
from vitrail.errors import DataError, UsageError


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"held_out": 1.0}, "held_out is 1.0; wanted a share from 0 up to 1"),
        ({"held_out": -0.1}, "held_out is -0.1"),
        ({"held_out": float("nan")}, "held_out is nan"),
        ({"held_out": 5}, "held_out is 5"),
        ({"workers": -1}, "workers is -1"),
        ({"workers": 1.5}, "workers is 1.5"),
        ({"copies": "apaart"}, r"Unknown copies 'apaart'. Did you mean 'apart'"),
        ({"decoder": "pilow"}, r"Unknown decoder 'pilow'. Did you mean 'pillow'"),
    ],
)
def test_data_that_makes_no_sense(change, told) -> None:
    with pytest.raises(UsageError, match=told):
        DataConfig(data="digits", **change)


@pytest.mark.parametrize("share", [None, 0, 0.0, 0.5, 0.999])
def test_shares(share) -> None:
    assert DataConfig(data="digits", held_out=share).held_out == share


def test_through_json_and_back() -> None:
    made = DataConfig(data="사진/폴더", root="/tmp", split="train[:10]", held_out=0.25, workers=0, skip_bad=True)
    assert from_json(DataConfig, json.loads(json.dumps(to_json(made))), where="file") == made
    with pytest.raises(DataError, match="the field 'data' is missing"):
        from_json(DataConfig, {}, where="file")


def test_a_config_from_before_copies_were_looked_for_splits_as_it_did() -> None:
    stored = to_json(DataConfig(data="digits"))
    assert stored["copies"] == "together"
    del stored["copies"]
    assert from_json(DataConfig, stored, where="file").copies == "apart"
