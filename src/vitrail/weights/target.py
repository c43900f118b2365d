"""Where a layout may be written: the name must fit, and nothing that is no model is ever replaced."""

from pathlib import Path

from vitrail.errors import UsageError
from vitrail.weights.folder import CONFIG_FILE, WEIGHTS_FILE, read_text
from vitrail.weights.torch_file import SUFFIXES

_FILE_ENDINGS = (".npz", ".safetensors", *SUFFIXES)


def check_file(layout: str, suffix: str, path: Path) -> None:
    """A layout that is one file needs its ending."""
    if path.suffix != suffix:
        came = f"the {layout} layout cannot be written to {str(path)!r}"
        raise UsageError(came, wanted=f"a name that ends in {suffix}")
    if path.is_dir():
        raise UsageError("is there already and is a folder", where=str(path), fix="Choose another target.")


def check_folder(layout: str, mark: str, path: Path) -> None:
    """A layout that is a folder takes a new name, an empty folder, or one whose config.json bears its mark."""
    if path.suffix in _FILE_ENDINGS:
        fix = "Name a folder, or choose a layout that is one file."
        raise UsageError(f"the {layout} layout cannot be written to {str(path)!r}", wanted="a folder", fix=fix)
    if path.exists() and not (path.is_dir() and (_is_marked(path, mark) or not any(path.iterdir()))):
        raise UsageError("is there already and is not a model folder", where=str(path), fix="Choose another target.")


def _is_marked(path: Path, mark: str) -> bool:
    config = path / CONFIG_FILE
    return (path / WEIGHTS_FILE).is_file() and config.is_file() and mark in read_text(config)
