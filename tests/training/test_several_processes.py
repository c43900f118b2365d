"""A run in several processes is the same run: losses, samples, metrics, checkpoints that move between sizes."""

import itertools
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.training.several import Group, Train, train_in
from tests.training.tiny_run import (
    PLAIN,
    RANDOM,
    STRONG,
    assert_same_run,
    config,
    events,
    fed,
    fingerprint,
    losses,
    record_batches,
    started,
    trained,
)

from vitrail.config import replace
from vitrail.runtime.processes import Processes
from vitrail.training import checkpoint as checkpoints
from vitrail.training.events import Event, Stepped
from vitrail.training.log import Watcher
from vitrail.training.session import Session

KINDS = ["ddp", "fsdp"]


def assert_same_losses(came: Path, wanted: Path, steps: int) -> None:
    """What the logs of two runs say of every step, and of every evaluation."""
    assert [step for step, _ in losses(came)] == [step for step, _ in losses(wanted)] == list(range(1, steps + 1))
    differences = [abs(a - b) for (_, a), (_, b) in zip(losses(came), losses(wanted), strict=True)]
    assert max(differences) < 1e-5
    for one, other in zip(events(came, "evaluated"), events(wanted, "evaluated"), strict=True):
        assert (one["step"], one["images"], one["accuracy"]) == (other["step"], other["images"], other["accuracy"])
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-5)


@pytest.fixture(scope="module")
def alone(shared_images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """50 steps of 32 images in one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    trained(started(config(shared_images, batch_size=32, steps=50), folder), folder)
    return folder


@pytest.mark.parametrize("parallel", KINDS)
def test_losses_are_those_of_one_process(images, alone, tmp_path, parallel):
    folder = tmp_path / "run"
    train_in(2, folder, config(images, batch_size=32, steps=50), parallel=parallel)
    assert_same_losses(folder, alone, 50)
    assert events(folder, "done")[0]["metrics"]["accuracy"] == events(alone, "done")[0]["metrics"]["accuracy"]
    assert len(np.load(folder / "predictions.npz")["losses"]) == len(np.load(alone / "predictions.npz")["losses"])


@pytest.mark.parametrize("parallel", [pytest.param("ddp", marks=pytest.mark.slow), "fsdp"])
def test_a_last_block_that_computes_one_token_alone(images, tmp_path, parallel):
    settings = config(images, replace(PLAIN, {"pool": "token"}, kind="model"), steps=6)
    wanted, came = tmp_path / "one", tmp_path / "two"
    trained(started(settings, wanted), wanted)
    train_in(2, came, settings, parallel=parallel)
    assert_same_losses(came, wanted, 6)


@pytest.mark.slow
@pytest.mark.parametrize("parallel", KINDS)
def test_accumulated_and_averaged_and_checkpointed_it_is_still_the_same_run(images, tmp_path, parallel):
    """Three processes that do not divide the batch, two pieces per batch, a Polyak average, recomputed activations."""
    train = {"batch_size": 14, "micro_batch": 3, "steps": 12, "average": 0.99, "checkpoint_activations": True}
    # Adam makes a step of full size out of the rounding error of a gradient that is zero, as that of the keys' bias is.
    settings = config(images, optim={"optimizer": "sgd", "lr": 0.1}, **train)
    wanted, came = tmp_path / "one", tmp_path / "three"
    trained(started(settings, wanted), wanted)
    train_in(3, came, settings, parallel=parallel)
    assert_same_losses(came, wanted, 12)
    one, three = (checkpoints.newest(path / "checkpoints").tensors for path in (wanted, came))
    for name, tensor in one["average"].items():
        torch.testing.assert_close(three["average"][name], tensor, rtol=0, atol=1e-6)


@pytest.mark.parametrize("ranks", [2, 3])
def test_with_everything_on_a_step_has_the_same_samples(images, tmp_path, ranks):
    settings = config(images, RANDOM, STRONG, batch_size=12, steps=8)
    alone, several = tmp_path / "alone", tmp_path / "several"
    session = started(settings, alone)
    record_batches(session, tmp_path / "fed")
    trained(session, alone)
    work = Train(several, settings, setup=_Recorder(str(tmp_path / "fed-")))
    assert Group(ranks, work).words() == [("ended", "")] * ranks
    wanted = fed(tmp_path / "fed")
    parts = [fed(tmp_path / f"fed-{rank}") for rank in range(ranks)]
    assert sorted(wanted) == list(range(8))
    for step, (ids, epochs) in wanted.items():
        both = sorted(pair for part in parts for pair in zip(*part[step], strict=True))
        assert both == sorted(zip(ids, epochs, strict=True))


class _Recorder:
    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, session: Session, _connection: Connection) -> Watcher:
        record_batches(session, Path(f"{self.path}{session.processes.rank}"))
        return lambda _event: None


class StopAt:
    """One process is asked to stop at a step, and only one."""

    def __init__(self, step: int, rank: int = 1, number: int = signal.SIGTERM) -> None:
        self.step, self.rank, self.number = step, rank, number

    def __call__(self, session: Session, _connection: Connection) -> Watcher:
        def watcher(event: Event) -> None:
            if event == Stepped(step=self.step) and session.processes.rank == self.rank:
                os.kill(os.getpid(), self.number)

        return watcher


class Compare:
    """Says how many tensors of a session are not, to the last bit, those of the newest checkpoint."""

    def __init__(self, folder: Path, parallel: str) -> None:
        self.folder, self.parallel = folder, parallel

    def __call__(self, processes: Processes, connection: Connection) -> None:
        session = Train(self.folder, parallel=self.parallel).session(processes)
        held = session.tensors()
        if not processes.is_first:
            assert not any(held.values())
            return
        stored = checkpoints.newest(self.folder / "checkpoints").tensors
        assert {name: set(group) for name, group in held.items()} == {
            name: set(group) for name, group in stored.items()
        }
        pairs = [(held[name][key], tensor) for name, group in stored.items() for key, tensor in group.items()]
        connection.send(("compared", f"{sum(not torch.equal(a, b) for a, b in pairs)} of {len(pairs)}"))


def stopped_at(step: int, ranks: int, folder: Path, settings=None, parallel: str = "ddp", rank: int = 1) -> None:
    group = Group(ranks, Train(folder, settings, parallel=parallel, setup=StopAt(step, rank)))
    words = group.words()
    assert [kind for kind, _ in words] == ["Stopped"] * ranks, words
    assert f"stopped after step {step} of" in words[0][1]
    assert [process.exitcode for process in group.processes] == [75] * ranks


@pytest.mark.parametrize(
    "stages",
    [
        pytest.param([(2, "ddp"), (1, "ddp"), (3, "ddp")], id="2-1-3", marks=pytest.mark.slow),
        pytest.param([(2, "ddp"), (2, "fsdp"), (2, "ddp")], id="ddp-fsdp-ddp"),
        pytest.param([(3, "fsdp"), (2, "fsdp")], id="fsdp-3-2", marks=pytest.mark.slow),
    ],
)
def test_a_checkpoint_moves_between_sizes_and_kinds(images, alone, tmp_path, stages):
    folder = tmp_path / "run"
    settings = config(images, batch_size=32, steps=50)
    for number, (ranks, parallel) in enumerate(stages):
        if number:
            compared = Group(ranks, Compare(folder, parallel))
            said = compared.connections[0].recv()
            assert compared.words() == [("ended", "")] * ranks
            total = sum(len(group) for group in checkpoints.newest(folder / "checkpoints").tensors.values())
            assert said == ("compared", f"0 of {total}")
        if number < len(stages) - 1:
            stopped_at(15 * (number + 1), ranks, folder, None if number else settings, parallel, rank=ranks - 1)
        else:
            train_in(ranks, folder, parallel=parallel)
    assert_same_losses(folder, alone, 50)
    moved = [(e["step"], e["from"], e["processes"]) for e in events(folder, "processes")]
    sizes = [ranks for ranks, _ in stages]
    wanted = [(15 * (i + 1), a, b) for i, (a, b) in enumerate(itertools.pairwise(sizes)) if a != b]
    assert moved == wanted


@pytest.mark.parametrize(("ranks", "parallel"), [(3, "ddp"), pytest.param(2, "fsdp", marks=pytest.mark.slow)])
def test_a_run_that_was_stopped_goes_on_to_the_last_bit(images, tmp_path, ranks, parallel):
    """With three processes the order in which gradients are added up matters, and has to be the same again."""
    settings = config(images, RANDOM, STRONG, batch_size=12, steps=14, micro_batch=2, average=0.99)
    wanted, came = tmp_path / "wanted", tmp_path / "came"
    train_in(ranks, wanted, settings, parallel=parallel)
    stopped_at(5, ranks, came, settings, parallel)
    stopped_at(9, ranks, came, None, parallel, rank=0)
    train_in(ranks, came, parallel=parallel)
    assert_same_run(came, wanted)


class KillAt:
    """One process is killed at a step, like by a machine that fails."""

    def __init__(self, step: int, rank: int) -> None:
        self.step, self.rank = step, rank

    def __call__(self, session: Session, _connection: Connection) -> Watcher:
        def watcher(event: Event) -> None:
            if event == Stepped(step=self.step) and session.processes.rank == self.rank:
                os.kill(os.getpid(), signal.SIGKILL)

        return watcher


@pytest.mark.parametrize(
    ("parallel", "killed"),
    [("ddp", 1), *(pytest.param(*case, marks=pytest.mark.slow) for case in [("ddp", 0), ("fsdp", 1)])],
)
def test_when_one_is_killed_the_others_say_so_and_the_run_goes_on_to_the_last_bit(images, tmp_path, parallel, killed):
    settings = config(images, RANDOM, STRONG, batch_size=12, steps=14)
    wanted, came = tmp_path / "wanted", tmp_path / "came"
    train_in(2, wanted, settings, parallel=parallel)
    group = Group(2, Train(came, settings, parallel=parallel, setup=KillAt(9, killed)))
    words = group.words()
    kind, said = words[1 - killed]
    assert kind == "LostProcess"
    assert f"process {killed} (id {group.processes[killed].pid}) of 2 is gone" in said
    assert f"To go on: vitrail train --resume {came}" in said
    assert group.processes[1 - killed].exitcode == 7
    # The first process has a whole copy, and saves it when another is lost.
    assert fingerprint(came)["step"] == ("9" if (parallel, killed) == ("ddp", 1) else "8")
    train_in(2, came, parallel=parallel)
    assert_same_run(came, wanted)
