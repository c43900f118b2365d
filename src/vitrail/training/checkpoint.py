"""Complete, checksummed checkpoints: safetensors and JSON, whole or not there at all.

A folder is written beside its place, flushed, renamed, read back and compared with its checksums; only then does the
text file `last` name it, and only then are older ones removed. At every moment one verified checkpoint is on disk.
"""

import errno
import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from vitrail.errors import DataError, DiskError, marked, notice, setting
from vitrail.runtime.atomic import atomic_file, atomic_folder
from vitrail.runtime.json_text import json_text
from vitrail.weights.safetensors_file import read_safetensors, write_safetensors

FORMAT = "vitrail-checkpoint/1"
STATE_FILE = "state.json"
LAST_FILE = "last"
# The newest and the one before it: a disk may turn out bad after the check.
KEPT = 2
_NAME = re.compile(r"step-\d{9}(-r\d+)?")

Tensors = dict[str, dict[str, Tensor]]
"""Tensors by file and by name: "model", "optimizer", "average"."""


@dataclass(frozen=True)
class Checkpoint:
    """What was read back."""

    path: Path
    tensors: Tensors
    state: dict[str, Any]


def save(folder: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> Path:
    """Write a checkpoint of this step, verify it, name it as the last, and remove what is older than the one before."""
    path = folder / _free_name(folder, step)
    with atomic_folder(path) as temporary:
        for name, group in tensors.items():
            write_safetensors(temporary / f"{name}.safetensors", {key: t.cpu() for key, t in group.items()}, {})
        sums = {file.name: _sha256(file) for file in sorted(temporary.iterdir())}
        record = {"format": FORMAT, "step": step, "sha256": sums, **state}
        text = json_text({**record, "checksum": _checksum(record)}, indent=2)
        (temporary / STATE_FILE).write_text(text + "\n", encoding="utf-8")
    try:
        verify(path)
    except DataError as error:
        raise DiskError(
            f"what was written is not what is read back ({marked(error)})",
            where=str(path),
            fix="The checkpoint before it is intact; check the disk.",
        ) from None
    with atomic_file(folder / LAST_FILE) as temporary:
        temporary.write_text(path.name + "\n", encoding="utf-8")
    _remove_older(folder)
    return path


def newest(folder: Path) -> Checkpoint:
    """The newest checkpoint that is whole; a damaged one is told and passed over."""
    problems = []
    for path in reversed(listed(folder)):
        try:
            return read(path)
        except DataError as error:
            problems.append(error)
            notice(f"{marked(error)} Going back to the checkpoint before it.")
    raise DataError(
        "none of its checkpoints can be read" if problems else "there is no checkpoint",
        where=str(folder),
        fix="Start the run again under another name.",
    )


def read(path: Path) -> Checkpoint:
    """Read a checkpoint and compare every file with its checksum."""
    state = verify(path)
    tensors = {name.removesuffix(".safetensors"): read_safetensors(path / name)[0] for name in state["sha256"]}
    return Checkpoint(path, tensors, state)


def verify(path: Path) -> dict[str, Any]:
    """The state of a checkpoint whose files are all there and unchanged."""
    where = path / STATE_FILE
    try:
        if where.is_symlink() or not where.is_file():
            raise OSError(errno.EINVAL, "not a plain file")
        state = json.loads(where.read_text(encoding="utf-8"))
        found, sums, checksum = state["format"], state["sha256"], state.pop("checksum")
        is_intact = checksum == _checksum(state) and isinstance(sums, dict)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"the checkpoint is not complete ({error})", where=str(where)) from None
    if found != FORMAT:
        raise DataError(f"the format tag is {found!r}", wanted=repr(FORMAT), where=str(where))
    if not is_intact:
        raise DataError("the file is damaged: its checksum is not the one it was saved with", where=str(where))
    for name, wanted in sums.items():
        if Path(name).name != name:
            raise DataError(f"it names the file {name!r}", wanted="names without folders", where=str(where))
        try:
            came = _sha256(path / name)
        except (OSError, ValueError) as error:
            raise DataError(f"cannot be read ({getattr(error, 'strerror', error)})", where=str(path / name)) from None
        if came != wanted:
            raise DataError(
                "the file is damaged: its checksum is not the one it was saved with", where=str(path / name)
            )
    return state


def listed(folder: Path) -> list[Path]:
    """The checkpoints of a run, oldest first; one that repeats a step after a rollback is the newer."""
    found = [path for path in folder.glob("step-*") if _NAME.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(found, key=lambda path: (path.name[:14], len(path.name), path.name))


def clean(folder: Path, newest: Path) -> None:
    """Remove what a killed process left half written, and put aside what is newer than `newest` but damaged."""
    for leftover in folder.glob(".step-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    for leftover in folder.glob(f".{LAST_FILE}.*"):
        leftover.unlink(missing_ok=True)
    paths = listed(folder)
    for damaged in paths[paths.index(newest) + 1 :]:
        shutil.rmtree(folder / f"damaged-{damaged.name}", ignore_errors=True)
        damaged.replace(folder / f"damaged-{damaged.name}")


def ensure_space(folder: Path, needed: int) -> None:
    """Refuse to start where the checkpoints of a run and its model do not fit."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fix = f"Choose another folder with {setting('out')}."
        raise DiskError(f"could not be written ({error.strerror})", where=str(folder), fix=fix) from error
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DiskError(
            f"{free / 1e6:,.1f} MB are free",
            wanted=f"{needed / 1e6:,.1f} MB for two checkpoints, one that is being written, and the model",
            where=str(folder),
            fix=f"Free some space, or write to another disk with {setting('out')}.",
        )


def _free_name(folder: Path, step: int) -> str:
    name = f"step-{step:09}"
    again = [int(path.name[len(name) + 2 :] or 0) for path in listed(folder) if path.name.startswith(name)]
    return f"{name}-r{max(again) + 1}" if again else name


def _remove_older(folder: Path) -> None:
    for path in listed(folder)[:-KEPT]:
        # Renamed first, so that one removed by half is never taken for a checkpoint.
        leftover = folder / f".{path.name}"
        path.replace(leftover)
        shutil.rmtree(leftover, ignore_errors=True)


def _checksum(state: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _sha256(path: Path) -> str:
    if path.is_symlink() or not path.is_file():
        raise OSError(errno.EINVAL, "not a plain file")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
