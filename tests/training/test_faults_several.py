"""Faults of one process among several: each is told once, no process waits for ever, and nothing saved is lost."""

import errno
import os
import shutil
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
from tests.training.several import Group, Train, train_in
from tests.training.tiny_run import PLAIN, assert_same_run, config, events, fingerprint, make_images

from vitrail.config import ConvLayerConfig, ConvStemConfig, RunConfig, replace
from vitrail.data import Batch
from vitrail.errors import DataError
from vitrail.runtime.processes import Processes
from vitrail.training import checkpoint as checkpoints
from vitrail.training import memory, sources
from vitrail.training.events import Done, Event, Stepped
from vitrail.training.log import Watcher
from vitrail.training.session import Session

# Each of these starts several processes several times.
pytestmark = pytest.mark.slow

KINDS = ["ddp", "fsdp"]


def _silent(_event: Event) -> None:
    return


class Poison:
    """The losses that one process sees at some steps are not numbers."""

    def __init__(self, rank: int, *calls: int) -> None:
        self.rank, self.calls = rank, calls

    def __call__(self, session: Session, _connection: Connection) -> Watcher:
        objective, count = session.engine._objective, iter(range(1, 10**6))

        def poisoned(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            losses = objective(logits, targets)
            return losses * float("nan") if next(count) in self.calls else losses

        if session.processes.rank == self.rank:
            session.engine._objective = poisoned
        return _silent


@pytest.mark.parametrize("parallel", KINDS)
def test_a_loss_that_one_process_finds_not_finite_is_skipped_by_all(images, tmp_path, parallel):
    folder = tmp_path / "run"
    train_in(2, folder, config(images, steps=12), parallel=parallel, setup=Poison(1, 4))
    assert [e["step"] for e in events(folder, "skipped")] == [4]
    assert [e["step"] for e in events(folder, "train")] == [1, 2, 3, *range(5, 13)]


def test_three_in_a_row_take_all_processes_back(images, tmp_path):
    folder = tmp_path / "run"
    train_in(2, folder, config(images, steps=12), setup=Poison(0, 8, 9, 10))
    (back,) = events(folder, "rollback")
    assert (back["from"], back["rate_factor"]) == (10, 0.5)
    assert events(folder, "train")[-1]["step"] == 12


class BadFile:
    """One process comes to an image that cannot be read."""

    def __init__(self, rank: int, step: int) -> None:
        self.rank, self.step = rank, step

    def __call__(self, session: Session, _connection: Connection) -> Watcher:
        batches = session.batches

        def failing() -> Iterator[Batch]:
            for batch in batches():
                if batch.step == self.step and session.processes.rank == self.rank:
                    raise DataError("the file is damaged", where="dog/007.png")
                yield batch

        session.batches = failing  # type: ignore[method-assign]
        return _silent


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.filterwarnings("ignore::vitrail.errors.Notice")
def test_a_bad_file_in_one_share_ends_all_with_everything_saved(images, tmp_path, rank):
    wanted, came, settings = tmp_path / "wanted", tmp_path / "came", config(images, steps=12)
    train_in(2, wanted, settings)
    words = Group(2, Train(came, settings, setup=BadFile(rank, 7))).words()
    assert words[rank] == ("DataError", "dog/007.png: the file is damaged.")
    assert words[1 - rank][0] == "LostProcess"
    assert fingerprint(came)["step"] == "7"
    train_in(2, came)
    assert_same_run(came, wanted)


class NoMemory:
    """One process runs out of memory at a step."""

    def __init__(self, rank: int, step: int) -> None:
        self.rank, self.step = rank, step

    def __call__(self, session: Session, _connection: Connection) -> Watcher:
        accumulate = session.step.accumulate

        def failing(*arguments, **named) -> None:
            if session.progress.step == self.step and session.processes.rank == self.rank:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
            accumulate(*arguments, **named)

        session.step.accumulate = failing  # type: ignore[method-assign]
        return _silent


def test_memory_that_runs_out_in_one_process_says_how_to_go_on(images, tmp_path):
    folder = tmp_path / "run"
    group = Group(2, Train(folder, config(images, steps=12), setup=NoMemory(1, 7)))
    words = group.words()
    assert words[0][0] == "LostProcess"
    assert words[1] == (
        "OutOfMemory",
        "memory ran out in process 1 with 4 images at a time (CUDA out of memory. Tried to allocate 2 GiB.). "
        f"To go on with fewer: vitrail train --resume {folder} --micro-batch 2.",
    )
    assert [process.exitcode for process in group.processes] == [7, 6]
    train_in(2, folder, micro_batch=2)
    (event,) = events(folder, "processes")
    assert (event["step"], event["from"], event["processes"], event["micro_batch"]) == (7, 2, 2, 4)
    assert events(folder, "train")[-1]["step"] == 12


class FullDisk:
    """The disk of the first process is full from a step on."""

    def __call__(self, session: Session, _connection: Connection) -> Watcher:
        def watcher(event: Event) -> None:
            if event == Stepped(step=7) and session.processes.is_first:
                checkpoints.write_safetensors = _no_space

        return watcher


def _no_space(path: Path, *_rest: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


@pytest.mark.filterwarnings("ignore::vitrail.errors.Notice")
@pytest.mark.parametrize("parallel", KINDS)
def test_a_full_disk_ends_all_and_the_last_checkpoint_is_whole(images, tmp_path, parallel):
    wanted, came, settings = tmp_path / "wanted", tmp_path / "came", config(images, steps=14)
    train_in(2, wanted, settings, parallel=parallel)
    words = Group(2, Train(came, settings, parallel=parallel, setup=FullDisk())).words()
    assert [kind for kind, _ in words] == ["DiskError", "LostProcess"], words
    assert fingerprint(came)["step"] == "6"
    train_in(2, came, parallel=parallel)
    assert_same_run(came, wanted)


def test_data_that_one_machine_does_not_have(tmp_path):
    """The second process reads another folder, as on a machine where the data is not mounted."""
    images = make_images(tmp_path / "images")
    group = Group(2, _Missing(images, tmp_path / "run"))
    assert [kind for kind, _ in group.words()] == ["Elsewhere", "DataError"]
    assert not (tmp_path / "run" / "log.jsonl").exists()


class _Missing:
    def __init__(self, images: Path, folder: Path) -> None:
        self.images, self.folder = images, folder

    def __call__(self, processes: Processes, connection: Connection) -> None:
        here = self.images if processes.is_first else self.images.parent / "nowhere"
        Train(self.folder, config(here))(processes, connection)


def test_a_batch_that_does_not_reach_all_processes(images, tmp_path):
    words = Group(3, Train(tmp_path / "run", config(images, batch_size=2))).words()
    assert words[0] == (
        "UsageError",
        "batch_size is 2; wanted at least 1 for each of the 3 processes. Give train.batch_size=3 or more, or start "
        "fewer processes.",
    )
    assert [kind for kind, _ in words[1:]] == ["Elsewhere"] * 2


class _LessMemory:
    """One process has room for a few images only."""

    def __init__(self, folder: Path, settings: RunConfig) -> None:
        self.train = Train(folder, settings)

    def __call__(self, processes: Processes, connection: Connection) -> None:
        if processes.rank == 1:
            memory._free_bytes = lambda _device: 3 * memory._bytes_per_image(PLAIN, self.train.settings.train) / 0.7
        self.train(processes, connection)


def test_processes_with_different_room_take_equally_many_images(images, tmp_path):
    group = Group(2, _LessMemory(tmp_path / "run", config(images, batch_size=24, steps=3)))
    assert group.words() == [("ended", "")] * 2
    state = checkpoints.newest(tmp_path / "run" / "checkpoints").state
    assert state["progress"]["micro_batch"] == 6
    assert state["config"]["train"]["micro_batch"] == 3


class _OtherData:
    """The second process finds one image less, as in a copy of the data that is not whole."""

    def __init__(self, images: Path, fewer: Path, folder: Path) -> None:
        self.images, self.fewer, self.folder = images, fewer, folder

    def __call__(self, processes: Processes, connection: Connection) -> None:
        mine = config(self.images, steps=6)
        if processes.rank == 1:
            sources.open_data = _from(self.fewer, sources.open_data)
        Train(self.folder, mine)(processes, connection)


def _from(folder: Path, open_data):
    return lambda _data, split, options=None: open_data(str(folder), split, options=options)


def test_processes_with_different_data_do_not_begin(tmp_path):
    images = make_images(tmp_path / "images")
    fewer = Path(shutil.copytree(images, tmp_path / "fewer"))
    (fewer / "dog" / "000.png").unlink()
    words = Group(2, _OtherData(images, fewer, tmp_path / "run")).words()
    assert [kind for kind, _ in words] == ["Elsewhere", "UsageError"]
    assert "the data of process 1 is not what the first process has" in words[1][1]


class _BadRead:
    """One process cannot read the newest checkpoint, which the others can."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, processes: Processes, connection: Connection) -> None:
        if processes.rank == 1:
            checkpoints._sha256 = _no_input
        Train(self.folder)(processes, connection)


def _no_input(path: Path) -> str:
    raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))


def test_no_process_goes_back_to_an_older_checkpoint_by_itself(images, tmp_path):
    settings, folder = config(images, steps=14), tmp_path / "run"
    Group(2, Train(folder, settings, setup=BadFile(1, 9))).words()
    words = Group(2, _BadRead(folder)).words()
    assert [kind for kind, _ in words] == ["Elsewhere", "DataError"]
    assert "cannot be read (Input/output error)" in words[1][1]
    train_in(2, folder)


class _NoRoomToEvaluate:
    """Memory runs out in one process, in its first evaluation."""

    def __call__(self, session: Session, _connection: Connection) -> Watcher:
        forward, calls = session.model.forward, []

        def failing(images: torch.Tensor) -> torch.Tensor:
            if not session.model.training and not calls:
                calls.append(1)
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
            return forward(images)

        if session.processes.rank == 1:
            session.model.forward = failing  # type: ignore[method-assign]
        return _silent


def test_memory_that_runs_out_in_an_evaluation_leaves_nobody_waiting(images, tmp_path):
    """A copy sends fewer images at a time; a network that lies in all processes ends them all."""
    settings = config(images, steps=6)
    train_in(2, tmp_path / "ddp", settings, setup=_NoRoomToEvaluate())
    words = Group(2, Train(tmp_path / "fsdp", settings, parallel="fsdp", setup=_NoRoomToEvaluate())).words()
    assert [kind for kind, _ in words] == ["LostProcess", "OutOfMemory"]


def test_one_process_that_was_launched_halves_its_pieces_too(images, tmp_path):
    folder = tmp_path / "run"
    train_in(1, folder, config(images, steps=4), parallel="auto", setup=NoMemoryOnce(2))
    assert [e["micro_batch"] for e in events(folder, "micro_batch")] == [4]


class NoMemoryOnce:
    """Memory runs out once, in the backward pass."""

    def __init__(self, step: int) -> None:
        self.step, self.calls = step, 0

    def __call__(self, session: Session, _connection: Connection) -> Watcher:
        objective = session.engine._objective

        def failing(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            if session.progress.step == self.step and not self.calls:
                self.calls += 1
                logits.register_hook(_no_memory)
            return objective(logits, targets)

        session.engine._objective = failing
        session._objective = failing
        return _silent


def _no_memory(_gradient: torch.Tensor) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")


STEM = replace(
    PLAIN,
    {"patch_size": 1, "backbone": ConvStemConfig(layers=(ConvLayerConfig(channels=8, stride=2),) * 2)},
    kind="model",
)


class _Statistics:
    """Sends the statistics of BatchNorm after the last step."""

    def __call__(self, session: Session, connection: Connection) -> Watcher:
        def watcher(event: Event) -> None:
            if isinstance(event, Done):
                held = {name: value.tolist() for name, value in session.model.state_dict().items() if "running" in name}
                connection.send(held)

        return watcher


@pytest.mark.parametrize("parallel", KINDS)
def test_statistics_of_batch_norm_are_the_same_everywhere_and_of_all_images(images, tmp_path, parallel):
    folder = tmp_path / "run"
    group = Group(2, Train(folder, config(images, STEM, steps=3), parallel=parallel, setup=_Statistics()))
    first, second = (connection.recv() for connection in group.connections)
    assert group.words() == [("ended", "")] * 2
    assert first == second
    assert first
    stored = checkpoints.newest(folder / "checkpoints").tensors["model"]
    for name, values in first.items():
        torch.testing.assert_close(stored[name], torch.tensor(values))


@pytest.mark.parametrize("parallel", KINDS)
def test_half_the_precision_and_fewer_held_out_images_than_processes(tmp_path, parallel):
    images = make_images(tmp_path / "images", per_class=4)
    shutil.rmtree(images / "dog")
    shutil.rmtree(images / "cow")
    settings = config(images, replace(PLAIN, {"num_classes": 2}, kind="model"), steps=4, precision="bfloat16")
    train_in(3, tmp_path / "run", settings, parallel=parallel)
    assert [e["images"] for e in events(tmp_path / "run", "evaluated")] == [1] * len(
        events(tmp_path / "run", "evaluated")
    )
    assert all(e["loss"] < 1.5 for e in events(tmp_path / "run", "train"))


@pytest.mark.parametrize("parallel", KINDS)
@pytest.mark.parametrize("recomputed", [False, True], ids=["kept", "recomputed"])
def test_compiled_it_is_the_same_run(images, tmp_path, parallel, recomputed):
    plain, compiled = tmp_path / "plain", tmp_path / "compiled"
    for folder, compile in ((plain, False), (compiled, True)):
        settings = config(images, steps=6, compile=compile, checkpoint_activations=recomputed)
        train_in(2, folder, settings, parallel=parallel)
    for one, other in zip(events(plain, "train"), events(compiled, "train"), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-5)
