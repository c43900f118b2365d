"""Work in several processes: every image once, and a process that dies has a name and a remedy."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from vitrail.config.decoding import DecodePolicy
from vitrail.data.check import preflight
from vitrail.data.check.pool import over_images, pieces_of, worker_count
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.source import Arrays, Source
from vitrail.errors import DataError, UsageError


class Deadly(Source):
    """An image that kills whoever reads it."""

    name, split, classes = "deadly", "train", ("a",)

    def __init__(self, count: int) -> None:
        self.labels = Labels.of([0] * count, 1)

    def read(self, index: int) -> bytes:
        if index == 40:
            os.kill(os.getpid(), signal.SIGKILL)
        return b""

    def where(self, index: int) -> str:
        return f"image {index}"

    def manifest(self):
        yield b"deadly"


def test_a_process_that_dies_is_an_error_with_a_remedy():
    begin = time.monotonic()
    with pytest.raises(DataError, match=r"deadly: a process that reads images died.*data\.workers=0"):
        preflight(Deadly(100), policy=DecodePolicy(), workers=2)
    assert time.monotonic() - begin < 30


def test_a_script_without_a_main_guard_is_told_so(tmp_path):
    for label in ("a", "b"):
        (tmp_path / "data" / label).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "data" / label / "0.png")
    script = tmp_path / "script.py"
    script.write_text(
        "from vitrail.data.check import check, open_splits\n"
        f"check(open_splits({str(tmp_path / 'data')!r}), workers=1)\n"
    )
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode != 0
    assert "UsageError" in ran.stderr.splitlines()[-1]
    assert 'if __name__ == "__main__":' in ran.stderr.splitlines()[-1]


def test_pieces_cover_everything_once():
    indices = np.asarray([5, 3, 9, *range(100, 200)])
    pieces = pieces_of(0, indices)
    assert np.array_equal(np.concatenate([piece.indices for piece in pieces]), indices)
    assert max(len(piece.indices) for piece in pieces) <= 32
    assert pieces_of(0, np.asarray([], dtype=int)) == []


def doubled(source: Source, _policy: DecodePolicy, indices: np.ndarray) -> list[int]:
    return [2 * int(index) for index in indices]


def test_results_come_with_their_piece_and_progress_adds_up():
    sources = [
        Arrays(f"{count}", "train", ("a",), Labels.of([0] * count, 1), np.zeros((count, 1, 1), np.uint8))
        for count in (3, 50)
    ]
    pieces = [piece for number, source in enumerate(sources) for piece in pieces_of(number, np.arange(len(source)))]
    done: list[int] = []
    seen = {
        (piece.source, int(index)): value
        for piece, values in over_images(
            doubled, sources, pieces, policy=DecodePolicy(), workers=0, advance=done.append
        )
        for index, value in zip(piece.indices, values, strict=True)
    }
    assert seen == {(number, index): 2 * index for number, count in ((0, 3), (1, 50)) for index in range(count)}
    assert sum(done) == 53


def test_the_number_of_workers():
    assert worker_count(3, 1) == 3
    assert worker_count(0, 10**6) == 0
    assert worker_count(None, 10) == 0
    assert worker_count(None, 10**6) >= 1
    with pytest.raises(UsageError, match="workers is -1"):
        worker_count(-1, 10)


class Stuck(Deadly):
    """A drive that no longer answers."""

    name = "stuck"

    def read(self, index: int) -> bytes:
        time.sleep(120)
        return b""


def test_control_c_does_not_wait_for_a_worker_that_hangs(capfd):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 2.0)
    begin = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            preflight(Stuck(100), policy=DecodePolicy(), workers=2)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - begin < 30
    assert multiprocessing.active_children() == []
    assert "Traceback" not in capfd.readouterr().err
