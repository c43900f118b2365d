"""What the tests of training share: images that no test may change, and a cache of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.data.conftest import state_of
from tests.train.tiny_run import make_images, start_own_forkserver


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


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Networks this small are slower with two."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One for all, inherited by the processes that are started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VITRAIL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module", autouse=True)
def _own_forkserver() -> None:
    """One that has loaded what training needs; tests of other rooms may have come between."""
    start_own_forkserver()
