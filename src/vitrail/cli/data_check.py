"""`vitrail data check`: what is wrong with a data set."""

import shlex
from pathlib import Path
from typing import Annotated

import tyro

from vitrail.cli.check_summary import print_summary, problem_counts
from vitrail.cli.terminal import console, print_json
from vitrail.config.decoding import DecodePolicy
from vitrail.config.values import to_json
from vitrail.data.check import Findings, check, open_splits
from vitrail.data.check.page import GENERATOR, page
from vitrail.data.check.split import ensure_files, nameless, suggest_split, write_split
from vitrail.data.check.words import counted
from vitrail.data.open import OpenOptions
from vitrail.data.outside import ensure_outside
from vitrail.data.sources.files import user_path
from vitrail.data.sources.folder import is_flat
from vitrail.data.sources.source import Source
from vitrail.errors import DataError, UsageError, notice
from vitrail.runtime.atomic import atomic_file
from vitrail.runtime.progress import progress


def run(
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    /,
    split: str = "all",
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    page: Path | None = None,
    write_split: Path | None = None,
    workers: int | None = None,
    near: bool = True,
    root: Path | None = None,
    download: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    max_pixels: int = DecodePolicy.max_pixels,
    allow_empty: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    labelled: bool = True,
) -> None:
    """Decode every image and tell what is wrong: bad files, copies across splits, labels that contradict each other.

    The exit code is 3 when there are problems and 0 when there are none. Nothing is written into the data folder.

    Args:
        data: A folder, a .csv, a known name, hf:NAME or wds:SHARDS.
        split: train, val, test, a part such as train[:90%], or all that are there.
        json: Print everything that was found as JSON.
        page: Also write a page with pictures, for a browser, to this .html file.
        write_split: Also write a split that keeps copies together, to this .csv file, which is data in its own right.
        workers: Processes that decode; as many as there are cores if not said, 0 for none.
        near: Look for copies that were re-encoded, resized or mirrored, not only for equal pixels.
        root: Where the files of a known data set are.
        download: Fetch a known data set that is not there.
        max_pixels: Images with more pixels are refused.
        allow_empty: A class without images is no problem.
        labelled: Whether a folder is read as class folders. One without any is every image below it.
    """
    policy = DecodePolicy(max_pixels=max_pixels)
    _ensure_writable(page, write_split)
    labelled = labelled and not _tell_flat(data)
    splits = open_splits(data, split, options=OpenOptions(root=root, download=download, labelled=labelled))
    for target in filter(None, (page, write_split)):
        ensure_outside(splits.values(), target)
    if write_split:
        ensure_files(splits)
    with progress("checking", sum(map(len, splits.values()))) as advance:
        findings = check(
            splits,
            policy=policy,
            workers=workers,
            near=near,
            allow_empty=allow_empty,
            labelled=labelled,
            advance=advance,
        )
    _tell(findings, as_json=json)
    if page:
        _write_page(page, findings, splits, policy)
    if write_split:
        _write_split(write_split, findings, splits, labelled)
    if findings.has_problems:
        raise DataError(
            problem_counts(findings), where=findings.data, fix=_next_step(data, findings, page, write_split)
        )


def _tell(findings: Findings, *, as_json: bool) -> None:
    if as_json:
        print_json(to_json(findings))
    else:
        print_summary(findings, console())


def _tell_flat(data: str) -> bool:
    """Whether a folder has images and no classes: they are checked as a run without labels would take them."""
    if not is_flat(user_path(data)):
        return False
    notice(
        f"Images lie in {data} itself, so nothing says what they show: they are checked without classes. "
        f"`vitrail train mae-folder --data {shlex.quote(data)}` learns from such images."
    )
    return True


def _ensure_writable(page: Path | None, split: Path | None) -> None:
    """Refuse a target that would overwrite something, before minutes are spent on decoding."""
    if page and page.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"the page is {str(page)!r}", wanted="a name that ends in .html")
    if page and page.exists() and not _is_ours(page):
        raise UsageError("is there already and is no page of ours", where=str(page), fix="Choose another name.")
    if split and split.suffix.lower() != ".csv":
        raise UsageError(f"the split is to be written to {str(split)!r}", wanted="a name that ends in .csv")
    if split and split.exists():
        raise UsageError("is there already", where=str(split), fix="Choose another name.")


def _is_ours(path: Path) -> bool:
    return path.is_file() and GENERATOR.encode() in path.read_bytes()[:1000]


def _write_page(path: Path, findings: Findings, splits: dict[str, Source], policy: DecodePolicy) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(page(findings, splits, policy), encoding="utf-8")
    notice(f"The page is {path}.")


def _write_split(path: Path, findings: Findings, splits: dict[str, Source], labelled: bool) -> None:
    left_out = nameless(splits)
    # Without labels there is nothing to test, and every image is there to learn from.
    suggestion = suggest_split(splits, findings, without=left_out, shares=None if labelled else {"train": 1.0})
    write_split(path, splits, suggestion)
    counts = ", ".join(f"{split} {count:,}" for split, count in suggestion.counts().items())
    notice(
        f"{path}: {counts}; {counted(suggestion.moved, 'image')} put into another split. Use it in place of the folder."
    )
    if dropped := findings.images - len(suggestion.splits) - len(left_out):
        notice(f"{counted(dropped, 'image')} that training could not use left out of {path}.")
    if left_out:
        notice(f"{counted(len(left_out), 'image')} left out of {path}: a table cannot name files that are not UTF-8.")


def _next_step(data: str, findings: Findings, page: Path | None, split: Path | None) -> str:
    steps = [f"Open {page}" if page else f"`vitrail data check {shlex.quote(data)} --page check.html` shows them"]
    if split:
        steps.append(f"{split} is without bad files and copies across splits")
    elif findings.bad or findings.across:
        steps.append("--write-split split.csv writes a table without bad files and copies across splits")
    return "; ".join(steps)
