"""Memory that runs out: fewer images at a time, the same batch, and nothing lost (fault row 21)."""

from pathlib import Path

import pytest
import torch
from tests.training.test_faults_numbers import BATCH_NORM
from tests.training.test_resume import Crash, crash_at
from tests.training.tiny_run import (
    RANDOM,
    assert_same_run,
    config,
    events,
    losses,
    resumed,
    started,
    trained,
)

from vitrail.config import AugmentConfig, RunConfig
from vitrail.training.events import MicroBatchHalved, Saved, Stepped
from vitrail.training.memory import OutOfMemory
from vitrail.training.session import Session

ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    pytest.param(MemoryError("Unable to allocate 2.00 GiB"), marks=pytest.mark.slow),
    pytest.param(
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate memory: you tried to"),
        marks=pytest.mark.slow,
    ),
]


def shrink(session: Session, fits: int, error: Exception = ERRORS[0], from_step: int = 0, mode: str = "train") -> None:
    """A network that fails with more images at a time than fit."""
    forward = session.model.forward

    def limited(images):
        is_meant = session.model.training == (mode == "train") and session.progress.step >= from_step
        if is_meant and len(images) > fits:
            raise error
        return forward(images)

    session.model.forward = limited  # type: ignore[method-assign]


def begun(settings: RunConfig, folder: Path, **limit) -> Session:
    session = started(settings, folder)
    shrink(session, **limit)
    return session


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_half_as_many_at_a_time_and_the_same_batch(error, images, tmp_path):
    small, large = tmp_path / "small", tmp_path / "large"
    trained(started(config(images, micro_batch=2, average=0.9), small), small)
    session = begun(config(images, micro_batch=8, average=0.9), large, fits=3, error=error)
    trained(session, large)
    assert [(record["from"], record["micro_batch"]) for record in events(large, "micro_batch")] == [(8, 4), (4, 2)]
    assert session.accumulation == 4
    assert dict(losses(large)) == pytest.approx(dict(losses(small)), abs=1e-6)
    assert events(large, "done")[0]["metrics"]["images"] == 5


@pytest.mark.parametrize("log_every", [1, 4])
def test_in_the_middle_of_a_run_no_loss_is_forgotten(log_every, images, tmp_path):
    """Steps 1 and 2 fit; whether or not they were read when memory ran out, the log tells of them."""
    whole, halved = tmp_path / "whole", tmp_path / "halved"
    trained(started(config(images, micro_batch=8), whole), whole)
    trained(begun(config(images, micro_batch=8, log_every=log_every), halved, fits=4, from_step=2), halved)
    told, begin = [], 0
    for step, loss in losses(halved):
        told += [loss] * (step - begin)
        begin = step
    wanted = [loss for _, loss in losses(whole)]
    assert sum(told) == pytest.approx(sum(wanted), abs=1e-4)


@pytest.mark.parametrize(
    "moment",
    [
        (MicroBatchHalved, 3),
        *(pytest.param(moment, marks=pytest.mark.slow) for moment in [(Saved, 3), (Stepped, 4), (Stepped, 9)]),
    ],
)
def test_the_halving_is_replayed(moment, images, tmp_path):
    settings = config(images, model=RANDOM, micro_batch=8, average=0.9)
    wanted, came = tmp_path / "wanted", tmp_path / "came"
    trained(begun(settings, wanted, fits=4, from_step=3), wanted)
    with pytest.raises(Crash):
        trained(begun(settings, came, fits=4, from_step=3), came, crash_at(*moment))
    session = resumed(came)
    # Memory is no longer short: only what was recorded keeps the pieces small.
    shrink(session, fits=8 if session.progress.events else 4, from_step=3)
    trained(session, came)
    assert_same_run(came, wanted)
    assert events(came, "micro_batch") == events(wanted, "micro_batch")


def test_the_step_is_done_again_from_its_beginning(images, tmp_path):
    """Whether memory ran out in the first piece of a step or in the second, BatchNorm has seen each piece once."""
    found = []
    for failing in (3, 4):
        folder = tmp_path / str(failing)
        session = started(config(images, model=BATCH_NORM, micro_batch=4, steps=3), folder)
        fail_at_call(session, failing)
        trained(session, folder)
        assert [record["step"] for record in events(folder, "micro_batch")] == [1]
        found.append(session.tensors()["model"])
    for name, value in found[0].items():
        assert torch.equal(value, found[1][name]) or name.endswith("num_batches_tracked"), name


def fail_at_call(session: Session, number: int) -> None:
    forward, calls = session.model.forward, []

    def limited(images):
        calls.append(len(images))
        if len(calls) == number:
            raise ERRORS[0]
        return forward(images)

    session.model.forward = limited  # type: ignore[method-assign]


@pytest.mark.parametrize(("augment", "smallest"), [(None, 1), (AugmentConfig(crop="whole", mixup=0.2), 2)])
def test_not_even_the_smallest_piece_fits(augment, smallest, images, tmp_path):
    session = begun(config(images, augment=augment, micro_batch=8), tmp_path, fits=0)
    with pytest.raises(OutOfMemory) as caught:
        trained(session, tmp_path)
    assert caught.value.exit_code == 6
    assert f"memory ran out with {smallest} image" in str(caught.value)
    assert "image_size" in str(caught.value)
    assert resumed(tmp_path).progress.step == 0


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_evaluation_shrinks_by_itself(error, images, tmp_path):
    plain, short = tmp_path / "plain", tmp_path / "short"
    trained(started(config(images, micro_batch=8), plain), plain)
    session = begun(config(images, micro_batch=8), short, fits=2, mode="evaluation", error=error)
    trained(session, short)
    assert session.progress.micro_batch == 8
    assert events(short, "micro_batch") == []
    for came, wanted in zip(events(short, "evaluated"), events(plain, "evaluated"), strict=True):
        assert came["images"] == wanted["images"] == 5
        assert came["accuracy"] == wanted["accuracy"]
        assert came["loss"] == pytest.approx(wanted["loss"], abs=1e-5)


def test_evaluation_that_never_fits_is_no_matter_of_training(images, tmp_path):
    session = begun(config(images, micro_batch=8), tmp_path, fits=0, mode="evaluation")
    with pytest.raises(OutOfMemory):
        trained(session, tmp_path)
    assert events(tmp_path, "micro_batch") == []
    assert resumed(tmp_path).progress.micro_batch == 8
