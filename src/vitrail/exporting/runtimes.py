"""The runtimes that compute exported files: brought along by an extra, and told to keep what they see to themselves."""

import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from vitrail.errors import UsageError

Run = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Opened:
    """A file that a runtime has loaded."""

    runtime: str
    """Its name and version."""
    takes: tuple[int | None, ...]
    """The shape of its input; none where a side may vary."""
    run: Run


@contextmanager
def needs(package: str) -> Iterator[None]:
    """Say which extra brings a package that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{package} is needed for this and not installed (there is no module {error.name!r})",
            fix="pip install 'vitrail[export]'",
        ) from None


def import_openvino() -> ModuleType:
    """OpenVINO, which tells its maker of every import unless its messenger is not there."""
    messenger = "openvino_telemetry"
    if "openvino" not in sys.modules and messenger not in sys.modules:
        sys.modules[messenger] = None  # type: ignore[assignment]
        try:
            with needs("openvino"):
                import openvino
        finally:
            del sys.modules[messenger]
        return openvino
    with needs("openvino"):
        import openvino
    return openvino


@contextmanager
def quietly() -> Iterator[None]:
    """Torch's exporters say much to themselves; what matters is told by our comparison."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def first_line(error: Exception) -> str:
    """What an error of a runtime says, in short, and as text: it may quote names from the file."""
    text = str(error).strip()
    line = text.splitlines()[0][:200] if text else type(error).__name__
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in line)
