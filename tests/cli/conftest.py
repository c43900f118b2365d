"""What tests of several verbs begin with."""

from pathlib import Path

import pytest
from tests.cli.photos import draw
from tests.evaluate.small import model_folder


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A model and class folders, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    model_folder(tmp_path / "model")
    draw(tmp_path / "photos" / "train", ant=12, bee=11, cow=6)
    draw(tmp_path / "photos" / "test", ant=5, bee=4, cow=6)
    return tmp_path
