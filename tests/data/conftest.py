"""What the tests of the data room share: no test may change a data folder, and none may leave a cache behind."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

State = dict[str, tuple[object, ...]]


def state_of(folder: Path) -> State:
    """Names, kinds, modes, times and content hashes of a folder and everything below it; links are not followed."""
    state: State = {}
    for path in [folder, *folder.rglob("*")]:
        status = path.lstat()
        content = ""
        if path.is_symlink():
            content = str(path.readlink())
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        state[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns, content)
    return state


@pytest.fixture
def folder_state() -> Callable[[Path], State]:
    """A function that describes a folder, to be compared before and after."""
    return state_of


@pytest.fixture
def watched() -> Iterator[Callable[[Path], Path]]:
    """A function that takes a finished data folder; when the test ends, the folder must be as it was."""
    before: dict[Path, State] = {}

    def watch(folder: Path) -> Path:
        before[folder] = state_of(folder)
        return folder

    yield watch
    for folder, state in before.items():
        assert state_of(folder) == state


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path_factory.mktemp("cache")))
