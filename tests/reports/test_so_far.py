"""A run that has kept no model yet: its newest checkpoint is looked into, and the page says which step that is."""

from pathlib import Path

import pytest
import torch
from tests.reports.reader import Reader
from tests.reports.runs import NAMES, make_run, run_config, trained

from vitrail.errors import DataError, Notice
from vitrail.models import build
from vitrail.reports import write_report
from vitrail.reports.so_far import subject_so_far
from vitrail.training import checkpoint as checkpoints
from vitrail.training.folder import RunFolder


def weights(seed: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    return dict(build(run_config().model).state_dict())


@pytest.fixture
def stopped(tmp_path) -> RunFolder:
    folder = make_run(tmp_path / "run", [trained(5), trained(10)])
    for step in (5, 10):
        checkpoints.save(folder.checkpoints, step, {"model": weights(step)}, {})
    return folder


def test_the_newest_weights_come_with_all_that_the_run_knows(stopped) -> None:
    found = subject_so_far(stopped)
    assert found is not None and not found.model.training
    for name, tensor in weights(10).items():
        assert torch.equal(found.model.state_dict()[name], tensor), name
    assert found.model.labels == NAMES
    assert found.preparation.preprocessing == run_config().preprocessing
    assert found.model.provenance["step"] == 10 and found.model.provenance["data"] == "/nowhere/pictures"


def test_the_average_is_what_would_be_kept(stopped) -> None:
    checkpoints.save(stopped.checkpoints, 12, {"model": weights(12), "average": weights(99)}, {})
    found = subject_so_far(stopped, image_size=16)
    assert found is not None
    assert torch.equal(found.model.state_dict()["head.weight"], weights(99)["head.weight"])
    assert found.model.config.image_size == found.preparation.size == (16, 16)


def test_a_damaged_checkpoint_is_passed_over_and_none_at_all_is_no_mistake(stopped, tmp_path) -> None:
    first, newest = checkpoints.listed(stopped.checkpoints)
    (newest / "model.safetensors").write_bytes(b"cut off")
    with pytest.warns(Notice, match="Going back to the checkpoint before it"):
        found = subject_so_far(stopped)
    assert found is not None and found.model.provenance["step"] == 5
    (first / "state.json").unlink()
    with pytest.raises(DataError, match="none of its checkpoints can be read"), pytest.warns(Notice):
        subject_so_far(stopped)
    assert subject_so_far(make_run(tmp_path / "fresh", [])) is None


def page(folder: RunFolder) -> Reader:
    return Reader(write_report(folder).read_text(encoding="utf-8"))


def test_the_page_shows_what_was_learnt_so_far(stopped) -> None:
    reader = page(stopped)
    assert "The run has not come to its end: these are its weights at step 10." in reader.words
    assert len(reader.inside("learnt", "src")) == 2


def test_the_page_of_a_run_whose_checkpoints_are_all_damaged(stopped) -> None:
    for path in checkpoints.listed(stopped.checkpoints):
        (path / "state.json").write_text("{", encoding="utf-8")
    reader = page(stopped)
    assert "This part is left out. " in reader.words and "none of its checkpoints can be read" in reader.words


def test_a_run_without_checkpoints_has_no_such_part(tmp_path: Path) -> None:
    assert "learnt" not in page(make_run(tmp_path / "run", [trained(5)])).sections()
