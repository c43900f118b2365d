"""Plant every fault we know in a folder of images, check it, and compare what was found with what was planted.

    python benchmarks/check_planted.py [--images 5000] [--photos DIR ...] [--output results/data-check.md]

The clean folder holds crops of the photos given (that do not overlap) and pictures drawn from a fixed seed. The planted
folder is a copy of it with the faults. Both are checked by `vitrail data check` in a process of its own.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import PIL
from PIL import Image
from planting import UNKNOWABLE, Fault, drawn_picture, plant

from vitrail.data.sources.files import shown

_SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}
_CLASSES = ("cat", "dog", "고양이", "l'été \U0001f33b", "<b>bold")
_MAIN = "import sys; from vitrail.cli import main; sys.exit(main())"


@dataclass(frozen=True)
class Run:
    """One check of one folder."""

    findings: dict
    seconds: float
    main_bytes: int
    """Peak memory of the main process."""
    all_bytes: int
    """Peak memory of all its processes together; pages that they share count once."""
    exit_code: int
    unchanged: bool
    """Whether names, bytes and times in the folder are what they were."""

    @property
    def images(self) -> int:
        """How many were checked."""
        return sum(self.findings["splits"].values())


def main() -> None:
    """Build, check, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--photos", type=Path, nargs="*", default=[])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "data-check.md")
    parser.add_argument("--keep", type=Path, help="leave the folders and the pages of the checks here")
    options = parser.parse_args()
    home = options.keep or Path(tempfile.mkdtemp(prefix="planted-"))
    try:
        clean, planted = home / "clean", home / "planted"
        _make_clean(clean, options.images, options.photos)
        shutil.copytree(clean, planted)
        faults = plant(planted)
        runs = [_check(folder, options.workers, home / f"{folder.name}.html") for folder in (clean, planted)]
    finally:
        if not options.keep:
            shutil.rmtree(home, ignore_errors=True)
    report = _report(options, runs[0], runs[1], faults)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(report, encoding="utf-8")
    print(report)


def _make_clean(folder: Path, count: int, photos: list[Path]) -> None:
    pictures = _pictures(count, [file for one in photos for file in sorted(one.iterdir())])
    homes = [split for split, share in _SHARES.items() for _ in range(round(share * count))]
    for number, (split, image) in enumerate(zip(homes, pictures, strict=False)):
        path = folder / split / _CLASSES[number % len(_CLASSES)] / f"{number:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path, quality=90)


def _pictures(count: int, photos: list[Path]) -> Iterator[Image.Image]:
    """Crops of the photos, as many as they give, then drawn pictures."""
    made = 0
    for photo in photos:
        with Image.open(photo) as image:
            crops = list(_crops(image.convert("RGB")))[: count - made]
        yield from crops
        made += len(crops)
    yield from map(drawn_picture, range(made, count))


def _crops(image: Image.Image) -> Iterator[Image.Image]:
    """Parts that do not overlap, each at least 96 pixels wide and high."""
    across, down = (min(4, max(1, side // 96)) for side in image.size)
    width, height = image.width // across, image.height // down
    for left in range(0, across * width, width):
        for top in range(0, down * height, height):
            yield image.crop((left, top, left + width, top + height))


def _check(folder: Path, workers: int, page: Path) -> Run:
    before = _state(folder)
    words = ["data", "check", str(folder), "--json", "--page", str(page), "--workers", str(workers)]
    main_bytes = all_bytes = 0
    with tempfile.TemporaryFile() as output:
        begin = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-c", _MAIN, *words], stdout=output, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            main, everything = _memory(process.pid)
            main_bytes, all_bytes = max(main_bytes, main), max(all_bytes, everything)
            time.sleep(0.1)
        seconds = time.perf_counter() - begin
        output.seek(0)
        findings = json.load(output)
    return Run(findings, seconds, main_bytes, all_bytes, process.returncode, _state(folder) == before)


def _state(folder: Path) -> str:
    """A hash of names, bytes and times of everything below."""
    record = hashlib.sha256()
    for path in sorted(folder.rglob("*"), key=os.fsencode):
        stat = path.lstat()
        content = path.read_bytes() if path.is_file() and os.access(path, os.R_OK) else b""
        record.update(os.fsencode(path) + f"\0{stat.st_mtime_ns}\0{stat.st_mode}\0".encode() + content)
    return record.hexdigest()


def _memory(process: int) -> tuple[int, int]:
    """Bytes of a process, and of it and all it started: a shared page counts in parts (Pss)."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            children.setdefault(_parent(folder), []).append(int(folder.name))
    family = [process]
    for one in family:
        family += children.get(one, [])
    sizes = [_pages(one) for one in family]
    return sizes[0][0], sum(pss for _, pss in sizes)


def _parent(folder: Path) -> int:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _pages(process: int) -> tuple[int, int]:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return 0, 0
    sizes = {line.split(":")[0]: 1024 * int(line.split()[1]) for line in lines}
    return sizes.get("Rss", 0), sizes.get("Pss", 0)


def _told(findings: dict) -> dict[str, list[set[str]]]:
    """What a check said, by heading: each finding is the set of the files it names."""
    groups = [(group, {one["path"] for one in group["images"]}) for group in findings["exact"] + findings["near"]]
    told: dict[str, list[set[str]]] = {
        "bad": [{one["image"]["path"]} for one in findings["bad"]],
        "frames": [{one["path"]} for one in findings["several_frames"]],
        "name": [{one["path"]} for one in findings["strange_names"]],
        "class": [{one["name"]} for one in findings["class_faults"]],
        "conflict": [paths for group, paths in groups if group["labels_differ"]],
        "note": [{note} for note in findings["notes"]],
    }
    for kind in ("exact", "near"):
        for place, across in (("across", True), ("within", False)):
            told[f"{kind} {place}"] = [
                paths for group, paths in groups if group["kind"] == kind and group["across_splits"] == across
            ]
    return told


def _is_told(fault: Fault, told: dict[str, list[set[str]]]) -> bool:
    files = set(map(shown, fault.files))
    if fault.heading == "fine":
        return not any(files & one for heading, many in told.items() if heading != "note" for one in many)
    if fault.heading == "note":
        return any(word in next(iter(one)) for word in files for one in told["note"])
    if fault.heading == "name":
        # Names are told relative to the folder.
        return any(file.endswith(f"/{name}") for file in files for one in told["name"] for name in one)
    return files in told["bad" if fault.heading == UNKNOWABLE else fault.heading]


def _alarms(told: dict[str, list[set[str]]], faults: Iterable[Fault]) -> dict[str, int]:
    """Findings about files that no fault was planted in."""
    planted = {shown(file) for fault in faults for file in fault.files}

    def known(name: str) -> bool:
        return name in planted or any(file.endswith(f"/{name}") for file in planted)

    extra = {
        heading: sum(not all(map(known, one)) for one in many) for heading, many in told.items() if heading != "note"
    }
    return {heading: count for heading, count in extra.items() if count}


def _report(options: argparse.Namespace, clean: Run, planted: Run, faults: list[Fault]) -> str:
    told = _told(planted.findings)
    total = Counter((fault.kind, fault.heading) for fault in faults)
    found = Counter((fault.kind, fault.heading) for fault in faults if _is_told(fault, told))
    rows = "\n".join(f"| {kind} | {heading} | {n} | {found[kind, heading]} |" for (kind, heading), n in total.items())
    knowable = sum(n for (_, heading), n in total.items() if heading != UNKNOWABLE)
    known = sum(n for (_, heading), n in found.items() if heading != UNKNOWABLE)
    quiet, loud = _alarms(_told(clean.findings), []), _alarms(told, faults)
    photos = f"crops of {sum(len(list(one.iterdir())) for one in options.photos):,} photos" if options.photos else ""
    made = ", ".join(filter(None, [photos, "pictures drawn from a fixed seed"]))
    return f"""# `vitrail data check` on planted faults

{clean.images:,} images ({made}); {sum(total.values())} faults of {len(total)} kinds planted in a copy.
Pillow {PIL.__version__}, {options.workers} workers, {os.cpu_count()} cores. Made by `benchmarks/check_planted.py`.

| | clean | planted |
| --- | --- | --- |
| images checked | {clean.images:,} | {planted.images:,} |
| faults told, of those that can be known | | {known} of {knowable} |
| false alarms | {_alarm_text(quiet)} | {_alarm_text(loud)} |
| exit code | {clean.exit_code} | {planted.exit_code} |
| seconds, start and page included | {clean.seconds:.1f} | {planted.seconds:.1f} |
| images/s | {clean.images / clean.seconds:,.0f} | {planted.images / planted.seconds:,.0f} |
| peak memory, main process | {clean.main_bytes / 2**20:,.0f} MiB | {planted.main_bytes / 2**20:,.0f} MiB |
| peak memory, all processes | {clean.all_bytes / 2**20:,.0f} MiB | {planted.all_bytes / 2**20:,.0f} MiB |
| data folder unchanged (names, bytes, times) | {_yes(clean.unchanged)} | {_yes(planted.unchanged)} |

"fine" means that nothing may be said of the file. Near copies are planted of pictures that are not nearly blank: those
look like each other, and are compared by their exact pixels only. "{UNKNOWABLE}" is a byte changed inside a JPEG, which
has no checksum: most such files decode without an error, with other pixels, and pass every check that reads them.

| planted | told as | planted | right |
| --- | --- | ---: | ---: |
{rows}
"""


def _alarm_text(alarms: dict[str, int]) -> str:
    return ", ".join(f"{count} {heading}" for heading, count in alarms.items()) or "0"


def _yes(value: bool) -> str:
    return "yes" if value else "NO"


if __name__ == "__main__":
    main()
