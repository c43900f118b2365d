"""Every test runs with the shapes in the signatures checked, and alike on every machine and in every order."""

import gc
import os
import random
import shutil
import signal
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

if "PYTEST_XDIST_WORKER" in os.environ:
    # Every core has a worker of its own; before torch is loaded, which looks at it once.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# What people set for themselves and what batch systems set changes what is printed, where it is kept and who is meant.
_PERSONAL = ("VITRAIL_", "HF_", "HUGGINGFACE_", "TRANSFORMERS_", "WANDB_", "TORCHELASTIC_", "CLICOLOR", "TTY_")
_PERSONAL_NAMES = {
    "COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
    "MASTER_ADDR", "MASTER_PORT", "XDG_CACHE_HOME", "TORCH_HOME",
}  # fmt: skip
for _name in [name for name in os.environ if name.startswith(_PERSONAL) or name in _PERSONAL_NAMES]:
    del os.environ[_name]
# Before anything is imported that looks at them once: caches, and the token that people keep beside one.
_CACHES = Path(tempfile.mkdtemp(prefix="vitrail-tests-"))
for _name in ("VITRAIL_CACHE", "HF_HOME", "TORCH_HOME"):
    os.environ[_name] = str(_CACHES / _name.lower())


def pytest_configure(config: pytest.Config) -> None:
    """Before any test imports the package: annotated functions then check their tensors' shapes on every call.

    Not on a GPU, where what is tested is the compiled network, and a compiler does not look through the checks.
    """
    if config.getoption("markexpr") != "gpu":
        # A machine with a GPU tests the same as one without.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
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
    shutil.rmtree(_CACHES, ignore_errors=True)


def _seed(config: pytest.Config, name: str) -> None:
    """Whatever was drawn before, the same is drawn next; a plugin that shuffles the tests brings other draws too."""
    import numpy as np
    import torch

    seed = zlib.crc32(name.encode()) ^ config.getoption("randomly_seed", 0)
    random.seed(seed)
    np.random.seed(seed)
    # Not `torch.manual_seed`, which notes the stack for a GPU that may come later.
    torch.default_generator.manual_seed(seed)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef, request: pytest.FixtureRequest) -> None:
    """Each fixture draws its own, although the first test that asks makes it for all."""
    _seed(request.config, fixturedef.argname)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Each test draws its own, which are not those of its fixtures."""
    _seed(item.config, "test")


@pytest.fixture(autouse=True)
def _ctrl_c() -> Iterator[None]:
    """Ctrl-C is heard in a test, although what a shell puts into the background ignores it."""
    is_ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    if is_ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    if is_ignored:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


FIXTURES = Path(__file__).parent / "data" / "fixtures"


@pytest.fixture
def fixtures() -> Path:
    """Inputs and outputs of the original code."""
    return FIXTURES
