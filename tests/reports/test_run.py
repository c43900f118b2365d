"""The page of runs that were really trained, rebuilt later from nothing but their folder."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from tests.reports.reader import Reader
from tests.reports.runs import run_config

from vitrail.config import AugmentConfig, DataConfig, Preprocessing
from vitrail.reports import write_report
from vitrail.training.folder import RunFolder
from vitrail.training.run import run
from vitrail.training.sources import RunData, open_run_data
from vitrail.training.start import begin


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Trains a tiny network on the embedded digits for a few steps."""
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))

    def trained(name: str, **data):
        config = run_config(10, batch_size=64, epochs=None, steps=6, log_every=2)
        config = replace(
            config,
            model=replace(config.model, channels=1),
            preprocessing=Preprocessing(mean=(0.5,), std=(0.5,), interpolation="bilinear"),
            data=DataConfig(data="digits", **data),
            augment=AugmentConfig(crop="whole", flip=False),
        )
        cpu = torch.device("cpu")
        images: RunData = open_run_data(config.data, cpu, lambda source: nullcontext(lambda count: None))
        folder = RunFolder(tmp_path / name)
        return folder, run(begin(config, images, folder, cpu), folder, lambda record: None)

    return trained


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"held_out": 0.1}, "of 359 test images"),
        ({"held_out": 0.1, "test": False}, "of 144 held-out images"),
        ({"test": False}, "of 144 held-out images"),
    ],
)
def test_a_page_rebuilt_from_the_folder_is_the_same(train, data, told, monkeypatch) -> None:
    has_figures = "test" not in data
    if not has_figures:
        # They take a second to draw, and are the same every time.
        monkeypatch.setattr("vitrail.reports.page.figure_sections", lambda *_: iter(()))
    folder, outcome = train("run", **data)
    page = write_report(folder, outcome.source, outcome.predictions)
    first = page.read_bytes()
    page.unlink()
    assert write_report(folder).read_bytes() == first
    reader = Reader(first.decode())
    assert told in reader.words
    # Each mistake with where the network looked beside it, and four figures of what it has learnt.
    assert len(reader.inside("mistakes", "src")) == 2 * 20
    assert reader.inside("mistakes", "alt").count("where the network looked") == 20
    assert [one[:24] for one in reader.inside("learnt", "src")] == ["data:image/svg+xml;base6"] * 4 * has_figures
    assert f"digits, {outcome.source.whole.split if outcome.split == 'held_out' else 'test'} image" in reader.words


def test_a_run_without_anything_to_measure_on(train) -> None:
    folder, outcome = train("run", held_out=0.0, test=False)
    reader = Reader(write_report(folder, outcome.source, outcome.predictions).read_text(encoding="utf-8"))
    assert "nothing here says how good the model is" in reader.words
    # What needs no images is still shown.
    assert len(reader.inside("learnt", "src")) == 2
    assert reader.sections() == ["curves", "learnt", "data", "events", "again", "next"]
