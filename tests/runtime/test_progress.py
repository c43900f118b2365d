import io
import sys
import types

import pytest

from vitrail.runtime import progress as module
from vitrail.runtime.progress import progress, showing


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def asked():
    with showing(True):
        yield


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_say_how_far_how_fast_and_how_long(capsys, clock):
    with progress("checking", 1000) as advance:
        clock.now += 2
        advance(200)
        clock.now += 2
        advance(300)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "checking: 200 of 1,000 images (20%), 100/s, 0:08 left",
        "checking: 500 of 1,000 images (50%), 125/s, 0:04 left",
    ]


def test_fast_work_says_nothing_and_slow_work_speaks_every_ten_seconds(capsys, clock):
    with progress("packing", 100_000, unit="files") as advance:
        for _ in range(50):
            clock.now += 0.01
            advance(100)
        assert capsys.readouterr().err == ""
        for _ in range(21):
            clock.now += 1
            advance(1)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("packing: 5,010 of 100,000 files (5%), ")


def test_nothing_is_said_while_nothing_is_done(capsys, clock):
    with progress("checking", 1000) as advance:
        clock.now += 30
        advance(0)
        assert capsys.readouterr().err == ""
        clock.now += 10
        advance(40)
    assert capsys.readouterr().err == "checking: 40 of 1,000 images (4%), 1/s, 16:00 left\n"


def test_hours_are_hours(capsys, clock):
    with progress("checking", 1_000_000) as advance:
        clock.now += 10
        advance(1000)
    assert "2:46:30 left" in capsys.readouterr().err


def test_nothing_to_do_shows_nothing(capsys):
    with progress("checking", 0) as advance:
        advance(0)
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar_on_standard_error(monkeypatch, capsys):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress("checking", 10) as advance:
        advance(4)
        advance(6)
    shown = terminal.getvalue()
    assert "checking" in shown
    assert "10/10" in shown
    assert capsys.readouterr().out == ""


def test_a_library_is_silent_unless_it_is_asked(capsys, clock):
    with showing(False), progress("checking", 1000) as advance:
        clock.now += 20
        advance(500)
    assert capsys.readouterr().err == ""
    # Where nothing is said, whoever asked further out is heard.
    with showing(None), progress("checking", 1000) as advance:
        clock.now += 20
        advance(500)
    assert "500 of 1,000" in capsys.readouterr().err


def test_a_notebook_gets_a_bar_that_goes_away(monkeypatch, clock):
    shown = []

    class Handle:
        def update(self, what):
            shown.append(what)

    def display(what, display_id):
        shown.append(what)
        return Handle()

    shell = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(HTML=str, display=display))
    with showing(True), progress("checking <b>", 10) as advance:
        clock.now += 2
        advance(4)
    assert 'max="10"' in shown[0]
    assert "checking &lt;b&gt;: 4 of 10 images, 2/s, 0:03 left" in shown[1]
    assert shown[-1] == ""
