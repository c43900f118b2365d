"""SIGTERM and Ctrl-C: everything is saved within seconds, and going on is exact (fault row 15)."""

import functools
import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from tests.training.test_faults_numbers import BATCH_NORM
from tests.training.tiny_run import (
    RANDOM,
    assert_same_run,
    config,
    in_process,
    last_word,
    resumed,
    started,
    trained,
    when_free,
)

from vitrail.config import RunConfig
from vitrail.data.sources.files import Files
from vitrail.training import checkpoint as checkpoints
from vitrail.training import run as running
from vitrail.training.log import Watcher
from vitrail.training.session import Session
from vitrail.training.stopping import Stopped

# Ten times what `last_word` waits for: who does not hear a signal there is still there when it gives up.
LONG = 600.0
SHORT = 0.4
PLACES = ["step", "evaluation", "data wait", "save", "test"]


def settings_for(images: Path, workers: int = 0) -> RunConfig:
    return config(images, model=RANDOM, workers=workers, average=0.9, micro_batch=4)


@pytest.fixture(scope="module")
def unbroken(shared_images, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    trained(started(settings_for(shared_images), folder), folder)
    return folder


def linger_in(session: Session, connection: Connection, place: str, errors: Path, moment: float = SHORT) -> Watcher:
    """Stay in one place of the run, after saying so: where nothing is lost for long, elsewhere for a moment."""
    os.setsid()
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)

    def linger(function, seconds: float, when=lambda: True):
        def lingering(*arguments, **names):
            if when():
                connection.send(("now", place))
                time.sleep(seconds)
            return function(*arguments, **names)

        return lingering

    step = session.engine
    late = lambda: session.progress.step == 7  # noqa: E731
    if place == "step":
        step.accumulate = linger(step.accumulate, moment, late)  # type: ignore[method-assign]
    elif place == "evaluation":
        session.evaluate = linger(session.evaluate, LONG)  # type: ignore[method-assign]
    elif place == "save":
        checkpoints.verify = linger(checkpoints.verify, moment, lambda: session.progress.step > 0)  # type: ignore
    elif place == "test":
        running.finish = linger(running.finish, LONG)  # type: ignore[assignment]
    else:
        held = errors.parent / "held"
        Files.read = linger(Files.read, LONG, lambda: held.exists())  # type: ignore[method-assign]
        return lambda event: held.touch() if event.step == 4 else None
    return lambda _event: None


def stopped(folder: Path, settings: RunConfig, place: str, number: signal.Signals, group: bool = False) -> str:
    """The message of a run that was sent a signal in some place."""
    errors = folder.parent / "errors.txt"
    process, connection = in_process(folder, settings, functools.partial(linger_in, place=place, errors=errors))
    assert connection.poll(60)
    assert connection.recv() == ("now", place)
    time.sleep(0.1)
    assert process.pid is not None
    os.killpg(process.pid, number) if group else os.kill(process.pid, number)
    kind, message = last_word(process, connection)
    if process.is_alive():
        os.killpg(process.pid, signal.SIGKILL)
    assert (kind, process.exitcode) == ("Stopped", 75)
    assert message.endswith(f"To go on: vitrail train --resume {folder}.")
    assert errors.read_text() == ""
    return message


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("place", PLACES)
def test_stop_and_go_on(place, number, images, unbroken, tmp_path):
    folder = tmp_path / "run"
    message = stopped(folder, settings_for(images), place, number)
    if place == "test":
        assert message.startswith("stopped while the finished model was being measured.")
    else:
        assert "of 11, and everything is saved." in message
    (tmp_path / "held").unlink(missing_ok=True)
    trained(resumed(folder), folder)
    assert_same_run(folder, unbroken)


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("place", [pytest.param("step", marks=pytest.mark.slow), "data wait"])
def test_a_signal_that_the_workers_hear_too(place, number, images, unbroken, tmp_path):
    """As a terminal and a cluster send it: to the whole group."""
    folder = tmp_path / "run"
    stopped(folder, settings_for(images, workers=2), place, number, group=True)
    (tmp_path / "held").unlink(missing_ok=True)
    when_free(folder)
    trained(resumed(folder, workers=0), folder)
    assert_same_run(folder, unbroken)


def test_a_second_interrupt_quits_at_once(images, unbroken, tmp_path):
    folder = tmp_path / "run"
    setup = functools.partial(linger_in, place="save", errors=tmp_path / "errors.txt", moment=LONG)
    process, connection = in_process(folder, settings_for(images), setup)
    assert connection.poll(60)
    assert connection.recv() == ("now", "save")
    assert process.pid is not None
    for _ in range(60):
        # Two that come before the process has run again are one.
        os.kill(process.pid, signal.SIGINT)
        process.join(1)
        if not process.is_alive():
            break
    if process.is_alive():
        process.kill()
    assert process.exitcode == 1
    assert "KeyboardInterrupt" in (tmp_path / "errors.txt").read_text()
    trained(resumed(folder), folder)
    assert_same_run(folder, unbroken)


def test_a_stop_between_the_pieces_of_a_step_forgets_the_first(images, tmp_path):
    """BatchNorm has seen the first piece, which the step will see again."""
    settings = config(images, model=BATCH_NORM, micro_batch=4)
    wanted, came = tmp_path / "wanted", tmp_path / "came"
    trained(started(settings, wanted), wanted)
    session = started(settings, came)
    accumulate, calls = session.engine.accumulate, []

    def asked(*arguments, **named) -> None:
        accumulate(*arguments, **named)
        calls.append(arguments)
        if len(calls) == 7:
            os.kill(os.getpid(), signal.SIGTERM)

    session.engine.accumulate = asked  # type: ignore[method-assign]
    with pytest.raises(Stopped, match="stopped after step 3 of 11"):
        trained(session, came)
    trained(resumed(came), came)
    assert_same_run(came, wanted)
