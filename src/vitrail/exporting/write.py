"""Write a network for a runtime, compare what was written, and put it in its place only then."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import vitrail
from vitrail.data import Preparation
from vitrail.errors import DataError, DiskError, UsageError, choose, setting
from vitrail.exporting.compare import Advance, Comparison, compare
from vitrail.exporting.entries import COMPARED, EXPORT, RECORD, Entries, ascii_json, record_entry
from vitrail.exporting.exported import FORMATS, read_about
from vitrail.exporting.network import TwoOutputs, exportable
from vitrail.exporting.onnx_write import add_onnx_entry, write_onnx
from vitrail.exporting.openvino_file import add_openvino_entry, write_openvino
from vitrail.exporting.pt2_file import add_pt2_entry, write_pt2
from vitrail.exporting.samples import Samples
from vitrail.exporting.weights_hash import weights_hash
from vitrail.models import Classifier, PeerNetwork
from vitrail.weights.checkpoint import from_model, without_tensors

KINDS = ("onnx", "openvino", "torch")
SUFFIXES = {kind: FORMATS[kind].suffix for kind in KINDS}


def export_model(
    model: Classifier,
    target: Path,
    kind: str,
    preparation: Preparation,
    samples: Samples,
    *,
    any_size: bool = False,
    overwrite: bool = False,
    advance: Advance | None = None,
    written: Callable[[], None] | None = None,
) -> Comparison:
    """Write `target`, open it anew, compare it with the network, and leave nothing where they disagree.

    `written` is called between writing and comparing.
    """
    ensure_target(target, kind, overwrite)
    if kind == "torch" and isinstance(model, PeerNetwork):
        raise UsageError(
            f"{model.config.title} is no network of ours, and only files of those are opened again as .pt2",
            wanted=f"{setting('to', 'onnx')} or {setting('to', 'openvino')}",
        )
    model = model.cpu().float().eval()
    # An image that cannot be read is told before the long work.
    images = samples.prepared(preparation, samples.count)
    with _beside(target) as folder:
        draft = folder / target.name
        _write(model, draft, kind, any_size)
        if written is not None:
            written()
        comparison = compare(model, draft, preparation, samples, images, advance)
        _ADD[kind](draft, COMPARED, ascii_json(asdict(comparison)))
        if "compared" not in read_about(kind, draft)[1]:
            raise DataError("does not read back as it was written", where=str(target))
        _put_in_place(folder, target)
    return comparison


def write_unverified(
    model: Classifier,
    target: Path,
    kind: str,
    *,
    any_size: bool = False,
    verify: Callable[[Path], None] | None = None,
) -> None:
    """Write a file that appears whole or not at all; where `verify` raises an error of it, not at all."""
    ensure_target(target, kind, overwrite=True)
    with _beside(target) as folder:
        draft = folder / target.name
        _write(model, draft, kind, any_size)
        if verify is not None:
            verify(draft)
        _put_in_place(folder, target)


def ensure_target(target: Path, kind: str, overwrite: bool) -> None:
    """Refuse a place that the file cannot take."""
    suffix = SUFFIXES[choose("kind of export", kind, KINDS)]
    if target.suffix != suffix:
        raise UsageError(f"the name ends in {target.suffix!r}", wanted=f"{suffix} for {kind}", where=str(target))
    if target.is_dir():
        raise UsageError("is a folder", wanted=f"the name of a {suffix} file", where=str(target))
    taken = next((path for path in _files_of(target) if path.exists()), None)
    if taken is not None and not overwrite:
        fix = f"Choose another {setting('out')}, or add {setting('overwrite', True)}."
        raise UsageError("is there already", where=str(taken), fix=fix)


def files_of(target: Path) -> list[Path]:
    """The files that an export is made of."""
    return [path for path in _files_of(target) if path.exists()]


def _files_of(target: Path) -> list[Path]:
    # What the first file refers to comes after it.
    beside = {".xml": [target.with_suffix(".bin")], ".onnx": [target.with_name(f"{target.name}.data")]}
    return [target, *beside.get(target.suffix, [])]


def _write(model: Classifier, path: Path, kind: str, any_size: bool) -> None:
    network = exportable(model, any_size=any_size, split_attention=kind != "torch")
    checkpoint = from_model(model)
    made = {**_made(kind, any_size), "weights": weights_hash(checkpoint.state)}
    entries = {RECORD: record_entry(without_tensors(checkpoint)), EXPORT: ascii_json(made)}
    _WRITE[kind](network, path, entries, any_size)


def _made(kind: str, any_size: bool) -> dict[str, object]:
    import torch

    versions = {"vitrail": vitrail.__version__, "torch": torch.__version__}
    if kind != "torch":
        import onnx

        versions["onnx"] = onnx.__version__
    return {"kind": kind, "any_size": any_size, "versions": versions}


def _as_openvino(network: TwoOutputs, path: Path, entries: Entries, any_size: bool) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        graph = Path(scratch) / "graph.onnx"
        write_onnx(network, graph, {}, any_size=any_size)
        write_openvino(graph, path, entries)


_WRITE: dict[str, Callable[[TwoOutputs, Path, Entries, bool], None]] = {
    "onnx": lambda network, path, entries, any_size: write_onnx(network, path, entries, any_size=any_size),
    "openvino": _as_openvino,
    "torch": lambda network, path, entries, any_size: write_pt2(network, path, entries, any_size=any_size),
}
_ADD: dict[str, Callable[[Path, str, str], None]] = {
    "onnx": add_onnx_entry,
    "openvino": add_openvino_entry,
    "torch": add_pt2_entry,
}


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A folder of its own on the same disk, gone afterwards; so are folders that were made for nothing."""
    made = [folder for folder in target.absolute().parents if not folder.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=target.parent, prefix=".vitrail-"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            for empty in made:
                if not any(empty.iterdir()):
                    empty.rmdir()
    except OSError as error:
        raise DiskError(f"could not be written ({error.strerror})", where=error.filename or str(target)) from error


def _put_in_place(folder: Path, target: Path) -> None:
    """Move the files, what is referred to first."""
    for path in reversed(_files_of(folder / target.name)):
        if path.exists():
            path.replace(target.parent / path.name)
