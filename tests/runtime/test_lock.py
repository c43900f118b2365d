"""A lock is held by one process, and by no dead one."""

import subprocess
import sys
from pathlib import Path

import pytest

from vitrail.errors import UsageError
from vitrail.runtime.lock import only_one


def test_the_second_is_told(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "lock"
    with (
        only_one(path, busy="it is being written"),
        pytest.raises(UsageError, match="it is being written"),
        only_one(path, busy="it is being written"),
    ):
        pass
    assert not path.exists()
    with only_one(path, busy="again"):
        assert path.exists()


def test_an_error_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with pytest.raises(ValueError, match="stop"), only_one(path, busy="busy"):
        raise ValueError("stop")
    with only_one(path, busy="busy"):
        pass


def test_a_dead_process_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    program = (
        "import os, sys; from pathlib import Path; from vitrail.runtime.lock import only_one\n"
        "only_one(Path(sys.argv[1]), busy='busy').__enter__(); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=False, timeout=60)
    with only_one(path, busy="busy"):
        pass
