"""What the model card says about exported files: what each was compared with, and how far it is from torch."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vitrail.config import from_json
from vitrail.errors import VitrailError, notice
from vitrail.exporting.compare import Comparison
from vitrail.exporting.exported import exported_files, read_about
from vitrail.exporting.weights_hash import weights_hash
from vitrail.exporting.write import files_of
from vitrail.runtime.atomic import atomic_file
from vitrail.weights.card import CARD_FILE, may_write_card, model_card, plain
from vitrail.weights.checkpoint import Checkpoint
from vitrail.weights.folder import CONFIG_FILE, WEIGHTS_FILE, read_folder, sidecar
from vitrail.weights.record import FORMAT


def write_cards(checkpoint: Checkpoint, target: Path, model_folder: Path | None) -> list[Path]:
    """Tell about an export beside it, and in the card of the model folder that it was made from; returns the cards."""
    written = []
    exports = _exports_of(weights_hash(checkpoint.state), target.parent)
    if _is_for_exports(target.parent) and _write(target.parent, checkpoint, exports, _use(target, checkpoint)):
        written.append(target.parent / CARD_FILE)
    if model_folder is not None and sidecar(model_folder).get("format") == FORMAT:
        # The model as it lies there: what was exported may have another image size.
        stored = read_folder(model_folder)
        if _write(model_folder, stored, exports, None):
            written.append(model_folder / CARD_FILE)
    return written


def _exports_of(weights: str, folder: Path) -> dict[Path, dict[str, str]]:
    """What is to be told of every file of a folder that was exported from these weights."""
    found = {}
    for kind, path in exported_files(folder):
        try:
            described, export = read_about(kind, path)
            if export.get("weights") == weights:
                found[path] = _facts(kind, path, export, has_classes=described.config.num_classes > 0)
            else:
                notice(f"{path} was exported from other weights: the card leaves it out. Export it anew or delete it.")
        except VitrailError:  # not one of ours
            continue
    return found


def _section(exports: dict[Path, dict[str, str]], seen_from: Path) -> str:
    """A table for each of them."""
    parts = []
    for path, facts in exports.items():
        rows = "\n".join(f"| {plain(name)} | {plain(value)} |" for name, value in facts.items())
        name = plain(Path(os.path.relpath(path, seen_from)).as_posix())
        parts.append(f"### {name}\n\n| part | value |\n|---|---|\n{rows}")
    return "\n\n".join(parts)


def accuracies(compared: dict[str, Any]) -> str:
    """Both accuracies for people; empty where no label is known."""
    labelled = compared.get("labelled")
    if not labelled or None in (compared["right_torch"], compared["right_exported"]):
        return ""
    torch, exported = (compared[name] / labelled for name in ("right_torch", "right_exported"))
    return f"{torch:.2%} in torch, {exported:.2%} in the file, of {labelled:,} images"


def _facts(kind: str, path: Path, export: dict[str, Any], *, has_classes: bool) -> dict[str, str]:
    told, versions = export.get("compared"), export.get("versions")
    compared = asdict(from_json(Comparison, told, where=str(path))) if told else {}
    facts = {
        "kind": kind,
        "size": f"{sum(file.stat().st_size for file in files_of(path)) / 1e6:,.1f} MB",
        "image size": "any" if export.get("any_size") else ", ".join(compared.get("sizes", [])),
        "made with": ", ".join(f"{name} {version}" for name, version in versions.items())
        if isinstance(versions, dict)
        else "",
    }
    if not compared:
        return {**facts, "compared with": "nothing"}
    batches = ", ".join(map(str, compared["batch_sizes"]))
    what = "logit" if has_classes else "feature"
    difference = f"{compared['difference']:.1e}, of {what}s up to {compared['largest_logit']:.3g}"
    facts |= {
        "compared with": f"float32 torch on {compared['images']}",
        "batch sizes": batches,
        "sizes compared": ", ".join(compared["sizes"]),
        f"largest difference of a {what}": difference,
        "same first class": f"{compared['same_top1']:,} of {compared['count']:,}" if has_classes else "",
        "accuracy": accuracies(compared),
        "computed by": compared["runtime"],
    }
    return {name: value for name, value in facts.items() if value}


def _use(target: Path, checkpoint: Checkpoint) -> str:
    """How to ask an exported file; a network without classes has only features to give."""
    name = json.dumps(target.name, ensure_ascii=False)
    has_classes = checkpoint.config.num_classes > 0
    ask = 'answers = predictor(["photo.jpg"])' if has_classes else 'features = predictor.embed(["photo.jpg"])'
    python = f"import vitrail\npredictor = vitrail.Predictor({name})\n{ask}"
    embed = "" if has_classes else " --embed features.npz"
    return f"```python\n{python}\n```\n\n```console\n$ vitrail predict {target.name} photo.jpg{embed}\n```"


def _write(folder: Path, checkpoint: Checkpoint, exports: dict[Path, dict[str, str]], use: str | None) -> bool:
    if not may_write_card(folder):
        notice(f"{folder / CARD_FILE} is not a card of ours and stays as it is.")
        return False
    with atomic_file(folder / CARD_FILE) as temporary:
        text = model_card(checkpoint, exports=_section(exports, folder), use=use)
        temporary.write_text(text, encoding="utf-8")
    return True


def _is_for_exports(folder: Path) -> bool:
    """Whether nothing but exports lies in a folder: a card is no gift to a folder of other things."""
    ours = {file.name for _, path in exported_files(folder) for file in files_of(path)} | {CARD_FILE}
    if (folder / CONFIG_FILE).exists() or (folder / WEIGHTS_FILE).exists():
        return False
    return all(path.name in ours or path.name.startswith(".") for path in folder.iterdir())
