"""An OpenVINO model that is damaged is told in our words."""

import shutil

import pytest

from vitrail.errors import DataError
from vitrail.exporting import open_exported


@pytest.fixture
def copy(exports, tmp_path):
    for name in ("model.xml", "model.bin"):
        shutil.copy(exports / name, tmp_path / name)
    return tmp_path / "model.xml"


def test_without_its_weights(copy) -> None:
    copy.with_suffix(".bin").unlink()
    with pytest.raises(DataError, match=r"its weights, model\.bin, are not beside it"):
        open_exported(copy)


def test_with_weights_that_were_cut_off(copy) -> None:
    weights = copy.with_suffix(".bin")
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(DataError, match="OpenVINO cannot load it"):
        open_exported(copy)


def test_a_size_of_two_to_the_sixty(copy) -> None:
    text = copy.read_text()
    place = text.index('size="', text.index('offset="'))
    end = text.index('"', place + 6)
    copy.write_text(f"{text[: place + 6]}{2**60}{text[end:]}")
    with pytest.raises(DataError, match="OpenVINO cannot load it"):
        open_exported(copy)


def test_cut_off_and_entities(copy) -> None:
    text = copy.read_text()
    copy.write_text(text[: len(text) // 2])
    with pytest.raises(DataError, match="is no OpenVINO model"):
        open_exported(copy)
    bomb = '<?xml version="1.0"?><!DOCTYPE net [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><net>&b;</net>'
    copy.write_text(bomb)
    with pytest.raises(DataError, match="declares entities"):
        open_exported(copy)
