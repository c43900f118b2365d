"""Runs of every kind, also killed and resumed and in two processes, whose records a change of the code must not change.

    python benchmarks/golden_runs.py record BEFORE          with the code before the change (PYTHONPATH says which)
    python benchmarks/golden_runs.py record AFTER           with the code after it
    python benchmarks/golden_runs.py compare BEFORE AFTER   names every setting, log line and tensor that differs

`record` keeps, run by run, what lies in the folder of runs: configs, logs without times, tables, weights as digests. A
run that was killed and resumed must also end as its straight twin did: `record` says so where it does not.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

# What a clock, a folder or a machine decides.
VOLATILE = {
    "time", "date", "seconds", "elapsed", "duration", "images_per_second", "rate", "started", "finished", "at", "when",
    "host", "machine", "pid", "memory", "wait", "bytes", "path", "folder", "checksum", "version", "created", "versions",
    "data_wait", "records", "command",
}  # fmt: skip
# What only tells how often a run was begun.
RETOLD = {"resumed", "stopped", "started"}
QUIET = ["--device", "cpu", "--workers", "0"]


@dataclass(frozen=True)
class Case:
    """One command; `resume` goes on with it; `processes` where it is also tried in two."""

    words: tuple[str, ...]
    resume: tuple[str, ...]
    processes: bool


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


CASES = {
    "train": Case(
        _words(
            "train vit-digits --steps 60 --batch-size 64 --micro-batch 32 --augment.mixup 0.4 --train.average 0.9"
            " --name golden"
        ),
        _words("train --resume runs/golden"),
        True,
    ),
    "masked": Case(
        _words("train mpp-digits --steps 60 --batch-size 64 --micro-batch 32 --held-out 0.09 --name golden"),
        _words("train --resume runs/golden"),
        True,
    ),
    "finetune": Case(
        _words(
            "finetune model --data photos --steps 20 --batch-size 12 --micro-batch 6 --image-size 16 --rates 0.01 0.03"
            " --seeds 2 --name golden"
        ),
        _words("finetune --resume runs/golden"),
        True,
    ),
    "transfer": Case(
        _words(
            "transfer model --data photos digits --steps 10 --batch-size 12 --micro-batch 6 --image-size 16"
            " --rates 0.01 --seeds 2 --name golden"
        ),
        _words("transfer --resume runs/golden"),
        True,
    ),
    "vtab": Case(
        _words(
            "vtab model --data-root data --tasks kitti-distance --steps 20 --batch-size 16 --micro-batch 8"
            " --image-size 16 --seeds 2 --name golden"
        ),
        _words("vtab --resume runs/golden"),
        False,
    ),
    "selftrain": Case(
        _words(
            "selftrain teacher --data digits --split train[:10%] --unlabelled digits --unlabelled-split train[10%:30%]"
            " --student vit-digits --steps 30 --batch-size 32 --micro-batch 16 --rounds 2 --threshold 0 --name golden"
        ),
        _words("selftrain --resume runs/golden"),
        False,
    ),
}


def _vitrail(place: Path, words: tuple[str, ...], log: Path) -> subprocess.Popen[bytes]:
    settings = {"OMP_NUM_THREADS": "1", "VITRAIL_CACHE": str(place / "cache"), "CUDA_VISIBLE_DEVICES": ""}
    with log.open("ab") as told:
        return subprocess.Popen(
            [sys.executable, "-m", "vitrail", *words],
            cwd=place,
            env=os.environ | settings,
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=told,
            start_new_session=True,
        )


def _finish(place: Path, words: tuple[str, ...]) -> None:
    log = place / "said.txt"
    if code := _vitrail(place, words, log).wait(timeout=900):
        sys.exit(f"{' '.join(words)} ended with {code}:\n{log.read_text()[-2000:]}")


def _photos(folder: Path, per_class: int, classes: int) -> None:
    """Coloured noise of which a class can be learnt, no two alike."""
    random = np.random.default_rng([per_class, classes])
    for label in range(classes):
        place = folder / f"class-{label}"
        place.mkdir(parents=True)
        for number in range(per_class):
            pixels = random.integers(0, 160, (20, 20, 3), dtype=np.uint8)
            pixels[..., label % 3] |= 96
            Image.fromarray(pixels).save(place / f"{number}.png")


def _prepare(place: Path) -> None:
    """Data, a model to begin from and a teacher, alike for every recording."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    _photos(place / "photos", 14, 3)
    for split, count in (("train", 8), ("val", 3), ("test", 2)):
        _photos(place / "data" / "vtab" / "kitti-distance" / split, count, 4)
    begin = "train vit-digits --split train[:10%] --batch-size 32 --micro-batch 32 --model.depth 1"
    _finish(place, (*_words(f"{begin} --steps 30 --name teacher"), *QUIET))
    shutil.copytree(place / "runs" / "teacher" / "model", place / "model")
    (place / "runs" / "teacher").rename(place / "teacher")
    shutil.rmtree(place / "runs")


def _steps(place: Path) -> int:
    """How many lines of steps all logs hold; folders come and go meanwhile, which `os.walk` does not mind."""
    logs = [Path(folder) / "log.jsonl" for folder, _, files in os.walk(place / "runs") if "log.jsonl" in files]
    return sum(log.read_text(errors="replace").count('"step"') for log in logs)


def _family(pid: int) -> list[int]:
    """A process and all that it started, as Linux tells it."""
    children = [child for tasks in Path(f"/proc/{pid}/task").glob("*/children") for child in tasks.read_text().split()]
    return [pid, *(member for child in children for member in _family(int(child)))]


def _kill(place: Path, words: tuple[str, ...], after: int) -> bool:
    """Whether the run was killed; it may have been faster than that."""
    run = _vitrail(place, words, place / "said.txt")
    while run.poll() is None:
        if _steps(place) >= after:
            for pid in _family(run.pid):
                os.kill(pid, signal.SIGKILL)
            run.wait()
            return True
        time.sleep(0.01)
    return False


def _without_times(value: object) -> object:
    if isinstance(value, dict):
        return {
            name: _without_times(inner)
            for name, inner in value.items()
            if name not in VOLATILE and not name.endswith(("_seconds", "_per_second", "_bytes", "_time"))
        }
    if isinstance(value, list):
        return [_without_times(inner) for inner in value]
    return value


def _records(runs: Path) -> Iterator[tuple[str, object]]:
    """Each file by its name: JSON as it is without times, tables and lists as text, weights by their digest."""
    for path in sorted(runs.rglob("*")):
        # A checkpoint that is written again has a number of its own.
        name = re.sub(r"(step-\d+)-r\d+", r"\1", str(path.relative_to(runs)))
        if path.suffix == ".json":
            yield name, _without_times(json.loads(path.read_text()))
        elif path.suffix == ".jsonl":
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            yield name, [_without_times(line) for line in lines if line.get("event") not in RETOLD]
        elif path.suffix == ".csv":
            yield name, path.read_text()
        elif path.suffix == ".safetensors":
            yield name, hashlib.sha256(path.read_bytes()).hexdigest()


def _differences(before: object, after: object, where: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            yield from _differences(before.get(name, "absent"), after.get(name, "absent"), f"{where} {name}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, pair in enumerate(zip(before, after, strict=True)):
            yield from _differences(*pair, f"{where} [{number}]")
    elif before != after:
        yield f"{where}: {str(before)[:120]} -> {str(after)[:120]}"


def _tell(differences: list[str], what: str) -> int:
    print(f"{what}: {'the same' if not differences else f'{len(differences)} differences'}")
    for line in differences[:20]:
        print(f"  {line}")
    return len(differences)


def record(folder: Path, cases: list[str]) -> int:
    """Run all, keep what they wrote, and compare the killed with the straight."""
    differ = 0
    folder.mkdir(parents=True, exist_ok=True)
    # Records name files by their whole path: one place for all of them.
    place = Path(tempfile.gettempdir()) / "vitrail-golden"
    _prepare(place)
    shutil.rmtree(folder / "begin", ignore_errors=True)
    place.rename(folder / "begin")
    for name in cases:
        case = CASES[name]
        for way in ("one", "two") if case.processes else ("one",):
            processes = ("--processes", "2") if way == "two" else ()
            kept = {}
            for end in ("straight", "killed"):
                shutil.rmtree(place, ignore_errors=True)
                shutil.copytree(folder / "begin", place)
                if end == "straight":
                    _finish(place, (*case.words, *QUIET, *processes))
                    whole = _steps(place)
                else:
                    killed = _kill(place, (*case.words, *QUIET, *processes), whole // 2)
                    print(f"{name} in {way}: {'killed at half' if killed else 'was done before it could be killed'}")
                    _finish(place, (*case.resume, *processes))
                kept[end] = dict(_records(place / "runs"))
                (folder / f"{name}-{way}-{end}.json").write_text(json.dumps(kept[end], indent=1, sort_keys=True))
                shutil.rmtree(place)
            what = f"{name} in {way} process{'es' if way == 'two' else ''}, killed and resumed"
            differ += _tell(list(_differences(kept["straight"], kept["killed"], "")), what)
    return differ


def compare(before: Path, after: Path) -> int:
    """Name what differs between two recordings."""
    names = sorted({path.name for folder in (before, after) for path in folder.glob("*-*.json")})
    differ = 0
    for name in names:
        both = [json.loads(path.read_text()) if path.exists() else {} for path in (before / name, after / name)]
        differ += _tell(list(_differences(*both, "")), name.removesuffix(".json"))
    return differ


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    comparing = verbs.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    chosen = parser.parse_args()
    if chosen.verb == "record":
        return min(record(chosen.folder.absolute(), chosen.cases), 1)
    return min(compare(chosen.before, chosen.after), 1)


if __name__ == "__main__":
    sys.exit(main())
