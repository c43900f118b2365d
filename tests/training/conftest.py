"""What the tests of training share: images that no test may change, and a cache of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.data.conftest import state_of
from tests.tiny_fixtures import _one_thread as _one_thread
from tests.tiny_fixtures import _own_cache as _own_cache
from tests.training.tiny_run import make_images, start_own_forkserver


@pytest.fixture(scope="session")
def shared_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """48 images of four classes."""
    return make_images(tmp_path_factory.mktemp("data") / "images")


@pytest.fixture
def images(shared_images: Path) -> Iterator[Path]:
    """The same, watched: when the test ends, the folder must be as it was."""
    before = state_of(shared_images)
    yield shared_images
    assert state_of(shared_images) == before


@pytest.fixture(scope="module", autouse=True)
def _own_forkserver() -> None:
    """One that has loaded what training needs; tests of other rooms may have come between."""
    start_own_forkserver()
