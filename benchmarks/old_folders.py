"""Makes `tests/data/folders-0.1/`: folders of every kind as version 0.1 wrote them, and later ones must go on with.

    PYTHONPATH=PLACE-OF-0.1/src python benchmarks/old_folders.py      with the code of 0.1; others are refused

`runs/` has a run of each kind that was killed at half, and two that came to their end; beside it lies what they were
made from. `expected.json` says how each killed one ended when 0.1 itself resumed it, and what 0.1 measured of the
finished ones. Pages, figures and cards are left out: they are made anew from what is there. Files name others by
their whole path, of which `PLACE` stands for what changes; `move` brings a copy to where it is.
"""

import hashlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file

TREE = Path(__file__).parents[1] / "tests" / "data" / "folders-0.1"
PLACE = "@PLACE@"

_TINY = "--model.depth 1 --model.width 16 --model.num-heads 2 --model.mlp-width 16"
_TUNED = "--batch-size 12 --micro-batch 6 --image-size 16"
_QUIET = "--device cpu --workers 0"
COMMANDS = {
    "train": f"train vit-digits {_TINY} --steps 60 --batch-size 64 --micro-batch 32 --augment.mixup 0.4"
    f" --train.average 0.9 --name train {_QUIET}",
    "masked": f"train mpp-digits {_TINY} --steps 60 --batch-size 64 --micro-batch 32 --held-out 0.09 --name masked"
    f" {_QUIET}",
    "finetune": f"finetune start --data photos --steps 20 {_TUNED} --rates 0.01 0.03 --seeds 2 --name finetune"
    f" {_QUIET}",
    "transfer": f"transfer start --data photos digits --steps 10 {_TUNED} --rates 0.01 --seeds 2 --name transfer"
    f" {_QUIET}",
    "vtab": f"vtab start --data-root data --tasks kitti-distance --steps 20 {_TUNED} --seeds 2 --name vtab {_QUIET}",
    "selftrain": f"selftrain start --data digits --split train[:10%] --unlabelled digits"
    f" --unlabelled-split train[10%:30%] --student vit-digits {_TINY} --steps 60 --batch-size 32 --micro-batch 16"
    f" --rounds 2 --threshold 0 --name selftrain {_QUIET}",
}
"""What was typed, by the name of the folder."""
EVALUATIONS = {
    "finished-train": "evaluate runs/finished-train --data digits --split test --device cpu --json",
    "finished-finetune": "evaluate runs/finished-finetune --data photos --split train --device cpu --json",
}
"""What is measured of the folders that came to their end."""
_START = f"train vit-digits --split train[:10%] --batch-size 32 {_TINY} --steps 300 --name start {_QUIET}"

# The share of all records after which it is killed; half where nothing is said, which is between the two rounds here.
_KILLED_AT = {"selftrain": 0.75}
_LEFT_OUT = ("*.html", "figures", "README.md", ".*")
# What a clock decides.
_TIMES = {"seconds", "images_per_second", "data_wait"}
# A process that dies by itself dies at the same record every time; one that is watched from outside does not.
_KILLED = """
import os, signal, sys
from vitrail.cli import main
from vitrail.train.log import Log

left, write = int(sys.argv.pop(1)), Log.write
sys.argv[0] = "vitrail"

def counted(log, record):
    global left
    write(log, record)
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

Log.write = counted
sys.exit(main(sys.argv[1:]))
"""


def move(tree: Path, before: str, after: str) -> None:
    """Let the files of a tree name what lies at `after` instead of `before`, with the checksums that come of it."""
    for path in (path for path in tree.rglob("*") if path.is_file() and path.suffix not in (".png", ".npz")):
        content = path.read_bytes()
        if path.suffix == ".safetensors":
            moved = _with_header(content, lambda header: header.replace(before.encode(), after.encode()))
        else:
            moved = content.replace(before.encode(), after.encode())
        if path.name == "state.json":
            state = json.loads(moved)
            stored = state.pop("checksum")
            fresh = hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
            moved = moved.replace(stored.encode(), fresh.encode())
        if moved != content:
            path.write_bytes(moved)


def _with_header(content: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The header is JSON behind its length, filled up with blanks so that the tensors are aligned."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = change(content[8:start].rstrip(b" "))
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[start:]


def weights(folder: Path) -> dict[str, str]:
    """A digest of the tensors of each model in a folder, by its path."""
    return {
        str(path.relative_to(folder)): _digest(load_file(path))
        for path in sorted(folder.rglob("model/model.safetensors"))
    }


def _digest(tensors: dict[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def last_records(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What each run in a folder logged last, without times: of an update, of an evaluation and of its end."""
    found = {}
    for path in sorted(folder.rglob("log.jsonl")):
        newest = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            record = {name: value for name, value in json.loads(line).items() if name not in _TIMES}
            newest[record["event"]] = record
        kept = [newest[event] for event in ("train", "evaluated", "done") if event in newest]
        found[str(path.parent.relative_to(folder))] = kept
    return found


def rounding() -> str:
    """How this machine rounds: one layer of a Transformer, with its gradients, to the last bit."""
    torch_version, kernels = torch.__version__, torch.backends.cpu.get_cpu_capability()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(16, 2, 16, dropout=0.0, activation="gelu", batch_first=True)
        images = torch.nn.functional.unfold(torch.randn(32, 1, 8, 8), 2, stride=2).transpose(1, 2)
        out = layer(images.repeat(1, 1, 4))
        out.logsumexp(2).sum().backward()
    found = {name: value.grad for name, value in layer.named_parameters() if value.grad is not None}
    return f"torch {torch_version}, {kernels}, {_digest({'out': out.detach(), **found})[:16]}"


def _vitrail(place: Path, words: str, killed_after: int | None = None) -> str:
    """What a command printed; it must end well, or else be killed after so many records."""
    begin = ["-m", "vitrail"] if killed_after is None else ["-c", _KILLED, str(killed_after)]
    settings = {"OMP_NUM_THREADS": "1", "VITRAIL_CACHE": str(place / "cache"), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, *begin, *words.split()],
        cwd=place,
        env=os.environ | settings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode != (0 if killed_after is None else -signal.SIGKILL):
        sys.exit(f"{words} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def _photos(folder: Path, per_class: int, classes: int) -> None:
    """Coloured noise of which a class can be learnt, no two alike; few colours, so that the files are small."""
    random = np.random.default_rng([per_class, classes])
    for label in range(classes):
        place = folder / f"class-{label}"
        place.mkdir(parents=True)
        for number in range(per_class):
            pixels = random.integers(0, 3, (20, 20, 3), dtype=np.uint8) * 50
            pixels[..., label % 3] |= 64 + 64 * (label // 3)
            Image.fromarray(pixels).save(place / f"{number}.png")


def _inputs(place: Path) -> None:
    """Data, and a model to begin from, which is also the teacher."""
    _photos(place / "photos", 8, 3)
    for split, count in (("train", 4), ("val", 2), ("test", 1)):
        _photos(place / "data" / "vtab" / "kitti-distance" / split, count, 4)
    _vitrail(place, _START)
    shutil.move(place / "runs" / "start" / "model", place / "start")
    shutil.rmtree(place / "runs")


def _made(place: Path, kept: Path) -> dict[str, Any]:
    """Fill a tree that is to be kept, and tell what is expected of it."""
    _inputs(place)
    expected: dict[str, Any] = {"rounding": rounding(), "resumed": {}, "evaluated": {}}
    for name, words in COMMANDS.items():
        folder = place / "runs" / name
        _vitrail(place, words)
        records = sum(len(log.read_text().splitlines()) for log in folder.rglob("log.jsonl"))
        shutil.rmtree(folder)
        _vitrail(place, words, killed_after=int(records * _KILLED_AT.get(name, 0.5)) + 2)
        shutil.copytree(folder, kept / "runs" / name, ignore=shutil.ignore_patterns(*_LEFT_OUT))
        _vitrail(place, f"{words.split()[0]} --resume runs/{name}")
        expected["resumed"][name] = {"weights": weights(folder), "records": last_records(folder)}
        shutil.rmtree(folder)
    for name, words in EVALUATIONS.items():
        kind = name.removeprefix("finished-")
        _vitrail(place, COMMANDS[kind].replace(f"--name {kind}", f"--name {name}"))
        [found] = json.loads(_vitrail(place, words))["models"]
        expected["evaluated"][name] = {
            "right": found["top1"]["right"],
            "images": found["images"],
            "loss": found["loss"],
        }
        # Of a run that came to its end nobody needs the state of its optimizer.
        ignored = shutil.ignore_patterns(*_LEFT_OUT, "checkpoints")
        shutil.copytree(place / "runs" / name, kept / "runs" / name, ignore=ignored)
    for name in ("photos", "data", "start"):
        shutil.copytree(place / name, kept / name, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    return expected


def main() -> int:
    if importlib.util.find_spec("vitrail.train") is None:
        sys.exit(f"{TREE.name} is made with the code of 0.1, and this is a later one")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        place, kept = Path(temporary).resolve() / "place", Path(temporary) / "kept"
        place.mkdir()
        expected = _made(place, kept)
        move(kept, str(place), PLACE)
        text = json.dumps(expected, indent=1, sort_keys=True)
        (kept / "expected.json").write_text(text + "\n", encoding="utf-8")
        shutil.rmtree(TREE, ignore_errors=True)
        shutil.copytree(kept, TREE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
