import io
import os
import re
import select
import subprocess
import sys
import threading
import time
import timeit
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.file_proxy import FileProxy
from rich.live import Live

from vitrail.cli import live as module
from vitrail.cli import live_state
from vitrail.cli.live import print_events, watching
from vitrail.cli.live_state import Seen
from vitrail.cli.live_view import View, braille
from vitrail.training.events import (
    Done,
    Evaluated,
    Evaluating,
    LengthSet,
    Measuring,
    MicroBatchHalved,
    PieceDone,
    RolledBack,
    Saved,
    Skipped,
    Stepped,
    Trained,
    to_record,
)

SKIPPED = Skipped(step=1204, reason="loss or gradient is not finite")
ROLLBACK = RolledBack(step=1000, before=1206, rate_factor=0.5)
HALVED = MicroBatchHalved(step=7, before=64, micro_batch=32)
SENTENCES = [
    (SKIPPED, "Step 1,204 was skipped: loss or gradient is not finite."),
    (
        ROLLBACK,
        "Back from step 1,206 to step 1,000, because losses were not finite; "
        "the learning rate is 0.5 times the planned one from here on.",
    ),
    (
        HALVED,
        "Memory ran out at step 7: 32 images at a time instead of 64 from here on, in batches as large as before.",
    ),
    (LengthSet(step=30, steps=12345), "The time limit leaves room for 12,345 steps."),
    (LengthSet(step=30, steps=30), "The time limit is reached after step 30."),
]


def trained(step: int, loss: float = 1.25, **values) -> Trained:
    seen = {"epoch": step / 20, "loss": loss, "accuracy": 0.625, "learning_rate": 0.0018, "gradient_norm": 0.8}
    speed = {"images_per_second": 3941.6, "data_wait": 0.0114, "seconds": 1.0}
    return Trained(step=step, **{**seen, **speed, **values})


def evaluated(step: int, accuracy: float, is_best: bool = True) -> Evaluated:
    return Evaluated(step=step, images=144, accuracy=accuracy, top5=1.0, loss=1.0, is_best=is_best)


def done(split: str = "test") -> Done:
    metrics = {"images": 1359, "accuracy": 0.8133704, "top5": 1.0, "loss": 0.7}
    return Done(step=200, split=split, metrics=metrics, best=None, seconds=65.2)


def updates(hear, first: int, last: int) -> None:
    for step in range(first, last + 1):
        hear(Stepped(step=step))


def seen_of(title: str = "vit-digits", steps: int = 200, epochs: float = 10, start: int = 0, **counts) -> Seen:
    return Seen(title, steps, epochs, start=start, seconds=0.0, **{"held_out": 144, "test": 359, **counts})


def rendered(seen: Seen, width: int = 100, height: int = 30, **options) -> list[str]:
    out = Console(file=io.StringIO(), width=width, height=height, **options)
    out.print(View(seen))
    return out.file.getvalue().splitlines()  # type: ignore[attr-defined]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(live_state, "time", made)
    return made


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch) -> Terminal:
    made = Terminal()
    # pytest puts its own standard output back before the test begins, so the module is given another `sys`.
    monkeypatch.setattr(module, "sys", SimpleNamespace(stdout=made, stderr=made))
    monkeypatch.setattr(module, "console", lambda: Console(file=made, force_terminal=True, width=80, height=30))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("TTY_INTERACTIVE", raising=False)
    return made


# Plain lines


def test_a_line_says_how_far_how_good_how_fast_and_how_long(capsys, clock):
    with watching("vit-digits on digits", 200, 10, held_out=144) as hear:
        updates(hear, 1, 1)
        clock.now += 6
        updates(hear, 2, 61)
        hear(trained(61, loss=1.3449))
        hear(Evaluating(step=61, images=144))
        hear(evaluated(61, 0.7986))
    assert capsys.readouterr().out.splitlines() == [
        "vit-digits on digits",
        "epoch 3/10  step 61/200  loss 1.345  accuracy 62.5 %  held-out 79.86 % (best)  3,942 images/s  "
        "data wait 1 %  0:00:14 left",
    ]


def test_quick_epochs_get_a_line_every_five_seconds_and_the_last_is_not_lost(capsys, clock):
    with watching("t", 200, 10) as hear:
        for step in range(1, 201):
            clock.now += 0.125
            hear(Stepped(step=step))
            if step % 2 == 0:
                hear(trained(step, epoch=step))
            if step == 200:
                hear(evaluated(step, 0.5, is_best=False))
        lines = capsys.readouterr().out.splitlines()
        hear(done())
    assert len(lines) == 1 + 5
    title, *lines = [*lines, *capsys.readouterr().out.splitlines()]
    assert title == "t"
    assert lines[-2].startswith("epoch 10/10  step 200/200  ")
    assert "held-out 50.00 %  " in lines[-2]
    assert lines[-1] == "done in 0:01:05: 81.34 % of 1,359 test images are right"


def test_one_line_tells_the_epoch_and_its_evaluation(capsys, clock):
    with watching("t", 200, 10, held_out=144) as hear:
        for epoch in range(1, 4):
            clock.now += 4
            updates(hear, 20 * epoch - 19, 20 * epoch)
            hear(trained(20 * epoch))
            if epoch != 2:
                clock.now += 2
                hear(Evaluating(step=20 * epoch, images=144))
                hear(evaluated(20 * epoch, 0.5))
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split("  ")[1] for line in lines] == ["step 20/200", "step 41/200", "step 60/200"]
    assert ["held-out" in line for line in lines] == [True, False, True]


def test_silence_is_broken_after_a_while_in_training_and_in_evaluation(capsys, clock):
    with watching("t", 10**6, 0.5, held_out=50_000) as hear:
        for step in range(1, 20_001):
            clock.now += 0.001
            hear(Stepped(step=step))
        assert capsys.readouterr().out.splitlines() == ["t", "epoch 0.01/0.5  step 15,000/1,000,000  0:16:25 left"]
        for _ in range(30):
            clock.now += 1
            hear(Evaluating(step=20_000, images=100))
    lines = capsys.readouterr().out.splitlines()
    assert [line.rsplit("  ")[-1] for line in lines] == [
        "evaluating 1,000/50,000 images",
        "evaluating 2,500/50,000 images",
    ]


def test_a_first_step_that_takes_long_is_told_piece_by_piece(capsys, clock):
    with watching("t", 100, 10) as hear:
        for piece in range(1, 5):
            clock.now += 20
            hear(PieceDone(step=1, images=16 * piece, of=512))
    assert capsys.readouterr().out.splitlines() == [
        "t",
        "epoch 0/10  step 0/100  16 of 512 images of step 1",
        "epoch 0/10  step 0/100  32 of 512 images of step 1  17:46:00 left",
        "epoch 0/10  step 0/100  48 of 512 images of step 1  17:45:40 left",
        "epoch 0/10  step 0/100  64 of 512 images of step 1  17:45:20 left",
    ]


def test_a_first_step_that_begins_again_in_smaller_pieces_is_not_over_before_it_began(clock):
    seen = seen_of()
    for images in (256, 128):
        clock.now += 20
        seen.hear(PieceDone(step=1, images=images, of=512))
    assert seen.seconds_left() is None


def test_a_view_of_the_first_step_says_how_far_it_is():
    seen = seen_of()
    assert "preparing the first step" in rendered(seen)[-1]
    seen.hear(PieceDone(step=1, images=16, of=512))
    assert "16 of 512 images of step 1" in rendered(seen)[-1]
    updates(seen.hear, 1, 1)
    assert "images of step" not in "".join(rendered(seen))


@pytest.mark.parametrize(("event", "wanted"), SENTENCES)
def test_events_are_sentences(capsys, event, wanted):
    print_events(event)
    assert capsys.readouterr().out == wanted + "\n"
    with watching("t", 20_000, 10) as hear:
        hear(event)
        assert capsys.readouterr().out.splitlines() == ["t", wanted]


def test_what_was_expected_is_not_told(capsys):
    expected = [Stepped(step=1), trained(10), evaluated(20, 0.5), Saved(step=20), Measuring(step=200, images=64)]
    for event in [*expected, done()]:
        print_events(event)
    assert capsys.readouterr().out == ""


def test_a_save_is_told_only_when_nothing_else_explains_it(capsys):
    with watching("t", 20_000, 10) as hear:
        hear(Saved(step=0))
        updates(hear, 1, 20)
        hear(evaluated(20, 0.5))
        hear(Saved(step=20))
        hear(HALVED)
        hear(trained(7))
        hear(Saved(step=7))
        assert "Saved" not in capsys.readouterr().out
        hear(Saved(step=1234))
        assert capsys.readouterr().out == "Saved at step 1,234.\n"


def test_many_skipped_steps_do_not_flood(capsys):
    with watching("t", 20_000, 10) as hear:
        for _ in range(1000):
            hear(SKIPPED)
    assert len(capsys.readouterr().out.splitlines()) == 11


def test_a_run_that_goes_on_counts_from_where_it_is(capsys, clock):
    with watching("t", 200, 10, start=100, seconds=50.0) as hear:
        updates(hear, 101, 101)
        clock.now += 10
        updates(hear, 102, 121)
        hear(trained(121))
        updates(hear, 122, 122)
        assert capsys.readouterr().out.endswith(
            "  step 122/200  loss 1.250  accuracy 62.5 %  3,942 images/s  data wait 1 %  0:00:37 left\n"
        )


def test_a_reader_that_has_gone_does_not_end_the_run(monkeypatch):
    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Gone())
    heard = []
    with watching("t", 20_000, 10) as hear:
        for event in [SKIPPED, trained(20), evaluated(20, 0.5), done()]:
            hear(event)
            heard.append(event)
    assert len(heard) == 4


def test_an_output_that_cannot_write_the_title(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    with watching("개와 고양이\x1b[2J\nend", 200, 10) as hear:
        hear(trained(20))
        hear(done(split="held_out"))
    title, *lines = raw.getvalue().decode("ascii").splitlines()
    assert title == r"?? ???\x1b[2J\nend"
    assert lines[-1] == "done in 0:01:05: 81.34 % of 1,359 held-out images are right"


def test_a_dumb_terminal_gets_plain_lines(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "dumb")
    with watching("t", 200, 10) as hear:
        hear(trained(20))
    assert "\x1b" not in terminal.getvalue()
    assert "step 0/200  loss 1.250" in terminal.getvalue()


# The view


def full_state(title: str = "vit-digits", **counts) -> Seen:
    """A run in which everything that can be shown is there, with long numbers."""
    seen = seen_of(title, steps=1_234_567, epochs=300, **counts)
    for step in range(1000, 1_000_000, 1000):
        seen.hear(trained(step, loss=30_000 / step, memory_bytes=112_345_678_901, data_wait=0.34))
    updates(seen.hear, 999_999, 1_000_001)
    for step in range(100_000, 1_000_000, 100_000):
        seen.hear(evaluated(step, step / 1_200_000))
    seen.hear(SKIPPED)
    seen.hear(Saved(step=999_999))
    seen._begin -= 200_000
    return seen


@pytest.mark.parametrize("width", [20, 40, 60, 61, 80, 100, 200])
@pytest.mark.parametrize("last", [None, Evaluating(step=1, images=64), Measuring(step=1, images=64), done()])
def test_the_view_fits(width, last):
    seen = full_state("vit-b16 on " + "아주 긴 이름의 데이터 [bold]" * 10)
    if last is not None:
        seen.hear(last)
    lines = rendered(seen, width=width)
    assert len(lines) <= (12 if width >= 60 else 18)
    assert all(Console().measure(line).maximum <= width for line in lines)


def test_the_view_shows_the_numbers():
    text = "\n".join(rendered(full_state()))
    for wanted in (
        "step 1,000,001/1,234,567   epoch 243/300   time 2 days, 7:33:20",
        "loss 0.030   accuracy 62.5 %   rate 0.0018   3,942 images/s   data wait 34 %   memory 112.35 GB",
        "skipped 1",
        "held-out 75.00 %   best 75.00 % at step 900,000",
        "training loss",
        "75.0 % ",
        "8.3 % ",
        "saved at step 999,999; Ctrl-C stops and saves",
    ):
        assert wanted in text


def test_the_view_before_anything_has_happened():
    seen = seen_of()
    seen.hear(Saved(step=0))
    lines = rendered(seen)
    assert lines[0] == "vit-digits"
    assert lines[2].startswith("step 0/200   epoch 0/10   time 0:00:00")
    assert "left" not in lines[2]
    assert lines[-1] == "preparing the first step"


def test_an_evaluation_has_a_bar_that_starts_anew():
    seen = seen_of()
    for _ in range(2):
        updates(seen.hear, 1, 2)
        seen.hear(Evaluating(step=2, images=72))
        line = rendered(seen)[-1]
        assert line.endswith(" evaluating 72/144 images")
        bar = line.removesuffix(" evaluating 72/144 images")
        assert abs(bar.count("━") - len(bar) / 2) <= 1
        seen.hear(evaluated(2, 0.5))
        assert "evaluating" not in rendered(seen)[-1]
    seen.hear(Measuring(step=200, images=359))
    assert rendered(seen)[-1].endswith("━ measuring the kept model on 359/359 images")


def test_an_evaluation_of_unknown_size_has_a_count():
    seen = seen_of(held_out=0, test=0)
    seen.hear(Evaluating(step=2, images=72))
    assert rendered(seen)[-1].endswith("─ evaluating 72 images")


@pytest.mark.parametrize(("wait", "is_coloured"), [(0.0999, False), (0.11, True)])
def test_slow_data_is_coloured(wait, is_coloured):
    seen = seen_of()
    seen.hear(trained(10, data_wait=wait))
    text = "\n".join(rendered(seen, force_terminal=True, color_system="standard"))
    assert (f"\x1b[1;33m{100 * wait:.0f} %" in text) == is_coloured


def test_no_color_is_respected(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    text = "\n".join(rendered(full_state(), force_terminal=True))
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", text)
    assert "data wait" in re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_a_terminal_of_ascii_gets_ascii():
    raw = io.BytesIO()
    out = Console(file=io.TextIOWrapper(raw, encoding="ascii"), width=60, height=30)
    out.print(View(full_state()))
    out.file.flush()
    assert "#----" in raw.getvalue().decode("ascii")


def test_a_low_terminal_has_no_room_for_curves():
    assert len(rendered(full_state(), height=12)) == len(rendered(full_state(), height=30)) - 4


def test_a_rollback_forgets_what_is_done_again():
    seen = seen_of(steps=2000)
    for step in (500, 1000, 1100, 1200):
        updates(seen.hear, step, step)
        seen.hear(trained(step, loss=step / 100))
        seen.hear(evaluated(step, step / 2000))
    seen.hear(ROLLBACK)
    assert seen.losses == [(500, 5.0), (1000, 10.0)]
    assert seen.step == 1000
    assert "best 50.00 % at step 1,000" in "\n".join(rendered(seen))


def test_a_new_length_changes_steps_and_epochs():
    seen = seen_of(steps=200, epochs=10)
    updates(seen.hear, 1, 20)
    seen.hear(LengthSet(step=20, steps=50))
    assert "step 20/50   epoch 1/2.5" in rendered(seen)[2]


def test_history_draws_the_curves_up_to_where_the_run_goes_on():
    seen = seen_of(start=40)
    before = [trained(20), evaluated(20, 0.75), trained(40), evaluated(40, 0.5, is_best=False), SKIPPED]
    after = [trained(60), evaluated(60, 0.9), done()]
    strange = [{"event": "moved", "step": 1}, {"event": "train", "step": 30}]
    seen.remember([*strange, *map(to_record, [*before, *after])])
    assert [step for step, _ in seen.losses] == [20, 40]
    assert not seen.news
    text = "\n".join(rendered(seen))
    assert "held-out 50.00 %   best 75.00 % at step 20" in text
    assert "preparing the first step" in text


def test_long_runs_are_thinned_and_keep_their_mean():
    seen = seen_of(steps=10**6)
    for step in range(1, 50_001):
        seen.hear(trained(step, loss=float(step % 2)))
    assert len(seen.losses) < 1024
    assert seen.losses[0][1] == 0.5
    assert seen.losses[0][0] < seen.losses[-1][0] == 50_000


def test_curves():
    rising = {column: float(column) for column in range(8)}
    assert braille(rising, 4, 2) == ["⠀⠀⣠⠞", "⣠⠞⠁⠀"]
    assert braille({0: 1.0, 1: 1.0}, 2, 1) == ["⠤⠀"]
    assert braille({0: 0.0, 1: 1.0}, 1, 1) == ["⣸"]
    assert braille({3: 2.0}, 2, 1) == ["⠀⠠"]
    assert braille({}, 2, 2) == ["⠀⠀", "⠀⠀"]


# The terminal


def cost_of_an_update(hear) -> float:
    """In calls of a function that does nothing, by the clock of this thread: neither speed nor load of the machine."""
    event = Stepped(step=5)

    def seconds(function) -> float:
        return min(timeit.repeat(lambda: function(event), number=2000, repeat=5, timer=time.thread_time))

    return seconds(hear) / seconds(lambda _event: None)


def test_an_update_costs_next_to_nothing_on_a_terminal(terminal):
    with watching("t", 200, 10) as hear:
        assert cost_of_an_update(hear) < 30
    assert "step 5/200" in re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())


def test_an_update_costs_next_to_nothing_without_one():
    with watching("t", 200, 10) as hear:
        assert cost_of_an_update(hear) < 30


def test_pictures_are_drawn_seldom_and_in_another_thread(terminal, monkeypatch):
    drawn = []
    refresh = Live.refresh
    monkeypatch.setattr(Live, "refresh", lambda self: (drawn.append(threading.current_thread()), refresh(self)))
    begin = time.monotonic()
    with watching("t", 10**9, 10) as hear:
        step = 0
        while time.monotonic() - begin < 1.2:
            updates(hear, step + 1, step := step + 100)
        during = list(drawn)
    assert 1 <= len(during) <= 5 * (time.monotonic() - begin)
    assert threading.main_thread() not in during
    assert f"step {step:,}/1,000,000,000" in re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())


def test_a_blocked_terminal_does_not_hold_training_up(terminal, monkeypatch):
    is_blocked, may_go_on = threading.Event(), threading.Event()
    write = terminal.write

    def slow(text: str) -> int:
        if threading.current_thread() is not threading.main_thread():
            is_blocked.set()
            may_go_on.wait(20)
        return write(text)

    monkeypatch.setattr(terminal, "write", slow)
    with watching("t", 200, 10) as hear:
        assert is_blocked.wait(10)
        begin = time.monotonic()
        for event in [SKIPPED, HALVED, trained(20), evaluated(20, 0.5), Saved(step=20)]:
            hear(event)
        assert time.monotonic() - begin < 10
        may_go_on.set()
    assert "was skipped" in terminal.getvalue()


def test_a_terminal_that_has_gone_does_not_end_the_run(terminal, monkeypatch):
    failed = threading.Event()

    def gone(_text: str) -> int:
        failed.set()
        raise OSError(5, "Input/output error")

    with watching("t", 200, 10) as hear:
        monkeypatch.setattr(terminal, "write", gone)
        assert failed.wait(10)
        hear(done())
    assert not isinstance(sys.stdout, FileProxy)


def test_a_run_that_ends_early_says_so(terminal):
    with pytest.raises(KeyError), watching("t", 200, 10) as hear:
        updates(hear, 1, 7)
        raise KeyError
    assert "stopped at step 7" in terminal.getvalue()
    assert terminal.getvalue().rstrip().endswith("\x1b[?25h")


SCRIPT = """
import os, sys, time
from rich.file_proxy import FileProxy
from vitrail.cli.live import watching
from vitrail.training.events import Done, Evaluated, Skipped, Stepped

with watching("on a real terminal", 40, 2, held_out=8) as hear:
    for step in range(1, 41):
        hear(Stepped(step=step))
        time.sleep(0.02)
    assert isinstance(sys.stderr, FileProxy)
    print("note: from the run", file=sys.stderr)
    worker = os.fork()
    if not worker:
        print("from a worker", file=sys.stderr, flush=True)
        os._exit(3 if isinstance(sys.stderr, FileProxy) else 0)
    assert os.waitpid(worker, 0)[1] == 0
    hear(Skipped(step=39, reason="loss or gradient is not finite"))
    hear(Evaluated(step=40, images=8, accuracy=0.875, top5=1.0, loss=1.0, is_best=True))
    hear(Done(step=40, split=None, metrics=None, best=None, seconds=1.0))
print("afterwards")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs pseudo-terminals")
def test_on_a_real_terminal():
    import pty

    ours, theirs = pty.openpty()
    names = ("NO_COLOR", "FORCE_COLOR", "TTY_INTERACTIVE", "TTY_COMPATIBLE")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment.update(TERM="xterm-256color", COLUMNS="60", LINES="30", PYTHONIOENCODING="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    shown = b""
    while select.select([ours], [], [], 30)[0]:
        try:
            shown += (piece := os.read(ours, 65536))
        except OSError:
            break
        if not piece:
            break
    os.close(ours)
    assert process.wait(timeout=10) == 0, shown.decode()
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    last = [line.rstrip() for line in text.splitlines() if line.strip()]
    assert last[-1] == "afterwards"
    assert last[-2] == "done in 0:00:01"
    assert "step 40/40  epoch 2/2" in text
    assert "best 87.50 % at step 40" in text
    for told in ("note: from the run", "from a worker", "Step 39 was skipped: loss or gradient is not finite."):
        assert text.count(told) == 1
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")
    assert shown.count(b"on a real terminal") < 12
