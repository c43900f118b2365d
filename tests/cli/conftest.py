"""What tests of several verbs begin with."""

from pathlib import Path

import pytest
from tests.cli.photos import draw
from tests.evaluation.small import model_folder

from vitrail.reports.attended import Looked


@pytest.fixture(autouse=True)
def _pages_without_figures(monkeypatch) -> None:
    """To look into a network takes a second or two, and the tests of the report do it."""
    monkeypatch.setattr("vitrail.reports.write._kept_model", lambda *_: None)
    monkeypatch.setattr("vitrail.reports.evaluation.figure_sections", lambda *_: iter(()))
    monkeypatch.setattr("vitrail.reports.parts.looked_at", lambda *_: Looked())


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A model and class folders, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    model_folder(tmp_path / "model")
    draw(tmp_path / "photos" / "train", ant=12, bee=11, cow=6)
    draw(tmp_path / "photos" / "test", ant=5, bee=4, cow=6)
    return tmp_path
