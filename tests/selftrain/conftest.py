"""Images that no test may change, and a cache of their own."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.data.conftest import state_of
from tests.selftrain.small import teacher_folder
from tests.tiny_fixtures import _one_thread as _one_thread
from tests.tiny_fixtures import _own_cache as _own_cache
from tests.train.tiny_run import make_images


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`labelled` in class folders, `loose` without classes, and a `teacher`."""
    home = tmp_path_factory.mktemp("place")
    make_images(home / "labelled", per_class=6)
    make_images(home / "more", per_class=9, first=100)
    (home / "loose" / "deep").mkdir(parents=True)
    for number, file in enumerate(sorted((home / "more").rglob("*.png"))):
        shutil.copy(file, home / "loose" / ("deep" if number % 2 else ".") / f"{number:02}.png")
    teacher_folder(home / "teacher")
    return home


@pytest.fixture(autouse=True)
def _untouched(place: Path) -> Iterator[None]:
    before = [state_of(place / name) for name in ("labelled", "loose", "more")]
    yield
    assert [state_of(place / name) for name in ("labelled", "loose", "more")] == before
