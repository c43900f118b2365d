"""What four libraries do with bad images and folders: makes the inputs, runs each library, writes what happened.

Every cell is measured in this run: each library reads each folder in a process of its own, with a time limit.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from bad_inputs import BadInput, bad_inputs
from machine import describe_machine, describe_versions

_COLUMNS = {
    "torchvision": "torchvision ImageFolder",
    "timm": "timm",
    "datasets": "Hugging Face datasets",
    "vitrail": "vitrail",
}
_EXPLANATION = """\
Each input is a folder with the classes `a` and `b`, a sound image in each and the file in question in `a`; or a folder
whose classes are in question. torchvision: `ImageFolder(folder)`. timm: `create_dataset("", root=folder)`. Hugging
Face: `load_dataset("imagefolder", data_dir=folder)` and `.convert("RGB")`. vitrail: `open_folder(folder)`, then
`preflight`, the check before training, then `decode`.

"Dies in training" means that the file is listed and raises when it is read; "named" that the error says which file (or
class), "no file name" that it does not. Bare numbers are means of pixels from 0 to 1, beside the true one where they
differ by more than 0.01. Milliseconds and megabytes are those of reading the one file; megabytes are by how much it
raised the peak of the resident memory."""

Outcome = dict[str, Any]


def cell(bad: BadInput, outcome: Outcome | None) -> str:
    """What a library did with an input, in a few words."""
    if outcome is None:
        return "no answer within a minute, or the process died"
    if outcome["opening"]:
        return f"stops at opening: {_error(bad, outcome['opening'])}"
    if not bad.file:
        return _classes(bad, outcome)
    if not outcome["listed"]:
        return f"left out, {_word(outcome)}"
    if outcome["before"]:
        return f"stops before training: {_error(bad, outcome['before'])}{_cost(bad, outcome)}"
    if outcome["reading"]:
        return f"dies in training: {_error(bad, outcome['reading'])}{_cost(bad, outcome)}"
    if outcome["label"] != "a":
        return f"another image instead, label {outcome['label']} (true a), {_word(outcome)}"
    if bad.is_bomb:
        return f"decoded, {_word(outcome)}{_cost(bad, outcome)}"
    return _pixels(bad, outcome)


def _error(bad: BadInput, error: list[str]) -> str:
    kind, message = error
    return f"{kind}, {bad.calls[bad.named not in message]}"


def _word(outcome: Outcome) -> str:
    return "with a warning" if outcome["warned"] else "one line in the log" if outcome["logged"] else "no word"


def _cost(bad: BadInput, outcome: Outcome) -> str:
    return f" ({outcome['seconds'] * 1000:,.1f} ms, {max(0, outcome['megabytes']):,.0f} MB)" if bad.is_bomb else ""


def _pixels(bad: BadInput, outcome: Outcome) -> str:
    mean, size, frames = outcome["mean"], tuple(outcome["size"]), outcome["frames"]
    right = abs(mean - bad.mean) < 0.01 if bad.size is None else size == bad.size
    if bad.size is not None:
        shown, true = (f"{width}x{height}" for width, height in (size, bad.size))
        fact = f"{shown}, upright" if right else f"{shown} (true {true})"
    else:
        fact = f"{mean:.2f}" if right else f"{mean:.4f} (true {bad.mean:.2f})"
    if "frames" in bad.name:
        return f"{fact}, first frame, {f'{frames} counted' if frames else _word(outcome)}"
    return fact if right and not outcome["warned"] else f"{fact}, {_word(outcome)}"


def _classes(bad: BadInput, outcome: Outcome) -> str:
    found, images = outcome["classes"], outcome["images"]
    if found is None:
        return f"read without labels, {_word(outcome)}"
    facts = ", ".join(f"`{name}`" if name else "a class without a name" for name in found)
    if tuple(found) != bad.classes:
        facts = f"{len(found)} class{'' if len(found) == 1 else 'es'} (true {len(bad.classes)}): {facts}"
    if images != bad.images:
        facts += f"; {images} images (true {bad.images})"
    return f"{facts}; {_word(outcome)}"


def observe_all(inputs: list[BadInput], home: Path) -> dict[str, dict[str, Outcome | None]]:
    """Make every input below `home` and let every library read it."""
    plan = {}
    for number, bad in enumerate(inputs):
        folder = home / "inputs" / str(number)
        folder.mkdir(parents=True)
        bad.make(folder)
        plan[bad.name] = [str(folder), bad.file]
    (home / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    # Nothing is fetched, and every cache goes away with the folder.
    quiet = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    environment = os.environ | quiet | {"HF_HOME": str(home / "hf"), "VITRAIL_CACHE": str(home / "cache")}
    outcomes = {}
    for library in _COLUMNS:
        target = home / f"{library}.json"
        program = [sys.executable, str(Path(__file__).with_name("bad_readers.py")), library]
        subprocess.run([*program, str(home / "plan.json"), str(target)], env=environment, check=True, timeout=600)
        outcomes[library] = json.loads(target.read_text(encoding="utf-8"))
        print(f"{library}: {len(inputs)} inputs", flush=True)
    return outcomes


def document(inputs: list[BadInput], outcomes: dict[str, dict[str, Outcome | None]], arguments: list[str]) -> str:
    """The results file."""
    versions = describe_versions(["torchvision", "timm"])
    others = [f"{name} {importlib.metadata.version(name)}" for name in ("datasets", "pillow")]
    facts = {
        "Machine": describe_machine(torch.device("cpu")),
        "Versions": ", ".join([versions, *others]),
        "Date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "Command": f"`{' '.join(['python benchmarks/bad_images.py', *arguments])}`",
    }
    listed = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    rows = [["input", *_COLUMNS.values()], ["---"] * (len(_COLUMNS) + 1)]
    rows += [[bad.name, *(cell(bad, outcomes[library][bad.name]) for library in _COLUMNS)] for bad in inputs]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return "\n\n".join(["# Bad images beside other libraries", listed, _EXPLANATION, table]) + "\n"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description="What four libraries do with bad images and folders.")
    default = Path(__file__).parent / "results" / "bad-images.md"
    parser.add_argument("--output", type=Path, default=default, help="Markdown file")
    parser.add_argument("--raw", type=Path, help="JSON file for everything that was observed")
    options = parser.parse_args()
    inputs = bad_inputs()
    with tempfile.TemporaryDirectory(prefix="bad-images-") as home:
        outcomes = observe_all(inputs, Path(home))
    text = document(inputs, outcomes, sys.argv[1:])
    options.output.write_text(text, encoding="utf-8")
    if options.raw:
        options.raw.write_text(json.dumps(outcomes, indent=2, ensure_ascii=False), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
