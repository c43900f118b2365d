"""Copies of a network in other formats: made once, compared with torch, kept in the cache, and gone with its weights.

A copy answers without torch.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from vitrail import __version__
from vitrail.data.sources.files import state_of
from vitrail.errors import DataError, UsageError
from vitrail.exporting.exported import FORMATS, Exported, open_exported
from vitrail.runtime.cache import cache_folder, cache_key

if TYPE_CHECKING:
    from vitrail.models import Classifier

_WEIGHTS = ("", "model.safetensors", "model/model.safetensors", "pytorch_model.bin")
# What lies beside weights and says how to read them, what their classes are and how images are prepared.
_BESIDE = ("config.json", "preprocessor_config.json")


def copy_place(source: str | Path, kind: str, image_size: object, preprocessing: str | None) -> Path | None:
    """Where a copy of a model on this disk is kept; another file, another setting or another version has its own."""
    folder = Path(source)
    try:
        file = next((folder / name for name in _WEIGHTS if (folder / name).is_file()), None)
        if file is None:
            return None
        states = [_state(path) for path in (file, *(file.parent / name for name in _BESIDE))]
    except OSError:  # a name that no file system takes
        return None
    which = cache_key(str(file.resolve()), kind, image_size, preprocessing)
    return cache_folder("copies") / f"{which}-{cache_key(states, __version__)}{FORMATS[kind].suffix}"


def kept_copy(place: Path) -> Exported | None:
    """A copy that is there; none where it is damaged, and then it goes, or where its runtime is not installed."""
    try:
        return open_exported(place)
    except DataError:
        _remove(place)
    except UsageError:
        pass
    return None


def keep_copy(model: "Classifier", place: Path, kind: str, compare: Callable[[Path], None]) -> None:
    """Write a copy that appears only once it was compared; those of other weights of this file go."""
    from vitrail.exporting.write import write_unverified

    write_unverified(model, place, kind, verify=compare)
    for older in place.parent.glob(f"{place.name.partition('-')[0]}-*{place.suffix}"):
        if older != place:
            _remove(older)


def _remove(place: Path) -> None:
    for file in (place, place.with_suffix(".bin"), place.with_name(f"{place.name}.data")):
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)


def _state(path: Path) -> tuple[int, ...] | None:
    return state_of(path.stat()) if path.is_file() else None
