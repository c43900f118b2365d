"""Every test runs with the shapes in the signatures checked."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

if "PYTEST_XDIST_WORKER" in os.environ:
    # Every core has a worker of its own; before torch is loaded, which looks at it once.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    """Before any test imports the package: annotated functions then check their tensors' shapes on every call.

    Not on a GPU, where what is tested is the compiled network, and a compiler does not look through the checks.
    """
    if config.getoption("markexpr") != "gpu":
        install_import_hook("vitrail.models", "beartype.beartype")


# The first draw of a text strategy builds a table of characters, which takes longer than hypothesis likes.
settings.register_profile("vitrail", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("vitrail")


@pytest.fixture(autouse=True, scope="module")
def _only_new_garbage() -> Iterator[None]:
    """What a test releases is looked for among its own objects, and not among those of every library there is."""
    gc.collect()
    gc.freeze()
    yield


def pytest_unconfigure() -> None:
    """Libraries that count what they are left with at the end complain otherwise."""
    gc.unfreeze()


FIXTURES = Path(__file__).parent / "data" / "fixtures"


@pytest.fixture
def fixtures() -> Path:
    """Inputs and outputs of the original code."""
    return FIXTURES
