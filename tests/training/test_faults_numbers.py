"""Losses that are not finite: skipped, then a return with half the rate, then an end with names (fault row 20)."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.training.test_resume import Crash, crash_at
from tests.training.tiny_run import PLAIN, assert_same_run, config, events, losses, resumed, started, trained
from torch import Tensor

from vitrail.config import ConvLayerConfig, ConvStemConfig, RunConfig
from vitrail.training.divergence import Diverged
from vitrail.training.events import Event, RolledBack, Saved, Stepped
from vitrail.training.objective import build_objective
from vitrail.training.session import Session

BATCH_NORM = replace(
    PLAIN, patch_size=(1, 1), backbone=ConvStemConfig(layers=(ConvLayerConfig(channels=8), ConvLayerConfig(channels=8)))
)


class Spoiled:
    """An objective that is not finite where `when` says so of the session."""

    def __init__(self, settings: RunConfig, when: Callable[[Session], bool], value: float = math.nan) -> None:
        self._objective, self._when, self._value = build_objective(settings.train), when, value
        self.session: Session | None = None

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        found = self._objective(logits, targets)
        return found * self._value if self.session and self._when(self.session) else found


def begun(settings: RunConfig, folder: Path, when: Callable[[Session], bool], value: float = math.nan) -> Session:
    spoiled = Spoiled(settings, when, value)
    spoiled.session = started(settings, folder, spoiled)
    return spoiled.session


def gone_on(settings: RunConfig, folder: Path, when: Callable[[Session], bool]) -> Session:
    spoiled = Spoiled(settings, when)
    spoiled.session = resumed(folder, spoiled)
    return spoiled.session


def states(session: Session, folder: Path) -> dict[int, dict[str, Tensor]]:
    """Every tensor of the run after each of its steps."""
    seen = {}

    def watch(event: Event) -> None:
        if isinstance(event, Stepped):
            groups = session.tensors()
            seen[event.step] = {f"{kind}/{name}": t.clone() for kind in groups for name, t in groups[kind].items()}

    trained(session, folder, watch)
    return seen


@pytest.mark.parametrize(("optimizer", "value"), [("adam", math.nan), ("sgd", math.inf)])
@pytest.mark.parametrize("model", [PLAIN, BATCH_NORM])
@pytest.mark.parametrize("bad", [1, 5])
def test_one_bad_step_is_as_if_it_had_not_been_made(bad, optimizer, model, value, images, tmp_path):
    settings = config(images, model=model, steps=8, micro_batch=4, optim={"optimizer": optimizer}, log_every=3)
    session = begun(settings, tmp_path, lambda now: now.progress.step == bad - 1, value)
    first = {f"model/{name}": tensor.clone() for name, tensor in session.model.state_dict().items()}
    seen = states(session, tmp_path)
    before = first if bad == 1 else seen[bad - 1]
    moved = [name for name in before if not torch.equal(before[name], seen[bad][name])]
    assert [name for name in moved if not name.endswith("num_batches_tracked")] == []
    assert not torch.equal(seen[bad]["model/head.weight"], seen[bad + 2]["model/head.weight"])
    assert [record["step"] for record in events(tmp_path, "skipped")] == [bad]
    assert all(math.isfinite(loss) for _, loss in losses(tmp_path))
    assert all(tensor.isfinite().all() for tensor in session.model.state_dict().values())


def test_the_average_does_not_move_in_a_bad_step(images, tmp_path):
    settings = config(images, steps=8, average=0.9)
    seen = states(begun(settings, tmp_path, lambda now: now.progress.step == 4), tmp_path)
    assert all(torch.equal(seen[4][name], seen[5][name]) for name in seen[4])


def test_three_in_a_row_send_the_run_back_with_half_the_rate(images, tmp_path):
    settings = config(images, epochs=3, log_every=4)
    folder = tmp_path / "run"
    trained(begun(settings, folder, lambda now: now.progress.step >= 7 and now.progress.rate_factor == 1), folder)
    (back,) = events(folder, "rollback")
    assert (back["step"], back["rate_factor"]) == (6, 0.5)
    rates = {record["step"]: record["learning_rate"] for record in events(folder, "train")}
    plain = tmp_path / "plain"
    trained(started(settings, plain), plain)
    whole = {record["step"]: record["learning_rate"] for record in events(plain, "train")}
    assert rates[17] == pytest.approx(whole[17] / 2)
    assert events(folder, "skipped") == []
    # One of four classes by chance; which machine it is decides on single images.
    assert all(events(path, "done")[0]["metrics"]["accuracy"] > 0.5 for path in (folder, plain))


@pytest.mark.parametrize("moment", [(RolledBack, 6), (Saved, 6), (Stepped, 7), (Stepped, 10), (Saved, 11)])
def test_a_kill_after_a_return_is_exact(moment, images, tmp_path):
    settings = config(images, epochs=3, average=0.9, micro_batch=4)
    spoiled = lambda now: now.progress.step >= 8 and now.progress.rate_factor == 1  # noqa: E731
    wanted, came = tmp_path / "wanted", tmp_path / "came"
    trained(begun(settings, wanted, spoiled), wanted)
    session = begun(settings, came, spoiled)

    def watch(event: Event) -> None:
        if session.progress.rollbacks or isinstance(event, RolledBack):
            crash_at(*moment)(event)

    with pytest.raises(Crash):
        trained(session, came, watch)
    trained(gone_on(settings, came, spoiled), came)
    assert_same_run(came, wanted)
    assert events(came, "rollback") == events(wanted, "rollback")


def test_two_bad_steps_before_a_kill_count(images, tmp_path):
    settings = config(images, epochs=3, save_minutes=1e-9)
    spoiled = lambda now: 7 <= now.progress.step < 10 and now.progress.rate_factor == 1  # noqa: E731
    with pytest.raises(Crash):
        trained(begun(settings, tmp_path, spoiled), tmp_path, crash_at(Saved, 9))
    trained(gone_on(settings, tmp_path, spoiled), tmp_path)
    assert [record["from"] for record in events(tmp_path, "rollback")] == [10]


def test_a_loss_that_stays_bad_ends_the_run(images, tmp_path):
    settings = config(images, epochs=3)
    with pytest.raises(Diverged) as caught:
        trained(begun(settings, tmp_path, lambda now: now.progress.step >= 8), tmp_path)
    assert caught.value.exit_code == 4
    told = json.loads((tmp_path / "diverged.json").read_text())
    assert told["rollbacks"] == 3
    assert told["losses"][-1] == "nan"
    assert [batch["step"] for batch in told["batches"]] == list(range(told["step"], told["step"] - 8, -1))
    files = [file for batch in told["batches"] for file in batch["files"]]
    assert len(files) == 8 * 8
    assert all(Path(file).is_file() for file in files)
    assert files[0] in str(caught.value)
    assert str(tmp_path / "diverged.json") in str(caught.value)
    assert [record["rate_factor"] for record in events(tmp_path, "rollback")] == [0.5, 0.25, 0.125]
    session = resumed(tmp_path)
    assert all(tensor.isfinite().all() for tensor in session.model.state_dict().values())


def test_a_rate_that_is_far_too_high_keeps_the_weights_finite(images, tmp_path):
    settings = config(images, epochs=2, optim={"lr": 1e30, "clip": None, "optimizer": "sgd"})
    try:
        session = trained(started(settings, tmp_path), tmp_path)
    except Diverged:
        session = resumed(tmp_path)
    assert all(tensor.isfinite().all() for tensor in session.model.state_dict().values())
