"""Signals of runs within runs, and of several processes."""

import os
import signal

import pytest

from vitrail.runtime.processes import ALONE, Processes
from vitrail.training.stopping import Interrupted, Stopping


def ask(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


def test_what_was_heard_around_a_run_counts_in_it():
    outer, inner = Stopping(), Stopping()
    with outer.listening():
        ask()
        with inner.listening():
            assert inner.is_asked


def test_what_was_heard_in_a_run_counts_around_it():
    outer, inner = Stopping(), Stopping()
    with outer.listening():
        with inner.listening():
            ask()
        assert outer.is_asked
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_one_of_several_is_never_interrupted_but_obeys_where_all_meet():
    stopping = Stopping(is_alone=False)
    with stopping.listening(), stopping.interruptible():
        ask()
    assert stopping.is_asked
    with pytest.raises(Interrupted):
        stopping.obey(Processes(ranks=2))
    Stopping(is_alone=False).obey(Processes(ranks=2))
    alone = Stopping()
    alone.is_asked = True
    alone.obey(ALONE)


def test_a_ctrl_c_that_the_launcher_repeats_is_one():
    stopping = Stopping(is_alone=False)
    with stopping.listening():
        ask(signal.SIGINT)
        ask(signal.SIGINT)
        assert stopping.is_asked
        stopping._asked_at -= 10
        with pytest.raises(KeyboardInterrupt):
            ask(signal.SIGINT)
