"""An ONNX file: looked at before anything runs it, then computed by onnxruntime."""

import mmap
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vitrail.errors import DataError
from vitrail.exporting.protobuf import fields
from vitrail.exporting.runtimes import Opened, first_line, needs

METADATA = 14
# Where tensors can be in a file: the number of a field and what it holds, from the model down.
_BELOW = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "external"},
}
_DEEPEST = 50


def read_onnx_entries(path: Path) -> dict[str, str]:
    """What is written beside the graph, by name; weights that lie outside the file's own folder are refused."""
    file = _mapped(path)
    for location in _external(file, "model", str(path)):
        ensure_beside(path, location)
    found = {}
    for number, value in fields(file, str(path)):
        if number == METADATA and isinstance(value, memoryview):
            pair = {key: _text(text, path) for key, text in fields(value, str(path))}
            found[pair.get(1, "")] = pair.get(2, "")
    return found


def open_onnx(path: Path, threads: int | None) -> Opened:
    """Load an ONNX file that was looked at."""
    with needs("onnxruntime"):
        import onnxruntime

    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        [shape] = [one.shape for one in session.get_inputs() if one.name == "images"]
    except Exception as error:  # onnxruntime's errors have no common kind
        raise DataError(f"onnxruntime cannot load it ({first_line(error)})", where=str(path)) from None

    def run(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        logits, features = session.run(["logits", "features"], {"images": images})
        return np.asarray(logits), np.asarray(features)

    takes = tuple(side if isinstance(side, int) else None for side in shape)
    return Opened(runtime=f"onnxruntime {onnxruntime.__version__}", takes=takes, run=run)


def ensure_beside(path: Path, location: str) -> None:
    """Refuse weights that are not in a file of a plain name beside this one: they could be any file, or no file."""
    if not location or location in (".", "..") or set(location) & set('/\\*:"<>|\0'):
        raise DataError(
            f"its weights are said to be in {location!r}", wanted="the name of a file beside it", where=str(path)
        )
    if not (path.parent / location).is_file():
        fix = "Copy both files together."
        raise DataError(f"its weights are in {location!r}, which is not beside it", where=str(path), fix=fix)


def _external(message: memoryview, kind: str, where: str, depth: int = 0) -> Iterator[str]:
    """Every place outside the file that a tensor says it lies in."""
    if depth > _DEEPEST:
        raise DataError(f"its graph is more than {_DEEPEST} levels deep", where=where)
    for number, value in fields(message, where):
        below = _BELOW[kind].get(number)
        if below is None or isinstance(value, int):
            continue
        if below != "external":
            yield from _external(value, below, where, depth + 1)
            continue
        pair = {
            key: bytes(text).decode(errors="replace") for key, text in fields(value, where) if not isinstance(text, int)
        }
        if pair.get(1) == "location":
            yield pair.get(2, "")


def _mapped(path: Path) -> memoryview:
    """The bytes of a file, read where they are looked at; it is closed with the last part of them that is held."""
    try:
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except ValueError:  # what is empty cannot be mapped
        raise DataError("is empty", where=str(path)) from None
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", where=str(path)) from None


def _text(value: int | memoryview, path: Path) -> str:
    try:
        return bytes(value).decode() if isinstance(value, memoryview) else str(value)
    except UnicodeDecodeError:
        raise DataError("is damaged: it holds names that are no text", where=str(path)) from None
