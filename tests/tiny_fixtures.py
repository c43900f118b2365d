"""What tests that train tiny networks have in common; a conftest or a test file takes it by importing it."""

from collections.abc import Iterator

import pytest

from vitrail.runtime.threads import one_thread


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Networks this small are slower with two, and ten times slower where threads wait on a busy machine."""
    with one_thread():
        yield


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One for all, inherited by the processes that are started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VITRAIL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
