"""`vitrail report`: the page of a run or a model, made anew, or of several runs beside each other."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from vitrail.cli.terminal import console, megabytes, printable
from vitrail.errors import DataError, UsageError

if TYPE_CHECKING:
    from vitrail.data.check.findings import Findings
    from vitrail.report.story import Story
    from vitrail.train.folder import RunFolder

_SUFFIXES = (".html", ".htm")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Write the page of a run: curves, results, confusions, mistakes, calibration, figures, how to do it again.

    It is made from what the folder holds, also while the run is still going on, after it was cut off, or when its data
    has gone. Of several runs one page shows what differs, and the images that only one of them has right.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]
    """Folders of runs, of fine-tunings, of a transfer or a VTAB; or a model folder."""
    out: Path | None = None
    """The .html file to write; report.html in the folder of the run, or ./comparison.html for several, if not said."""
    check: Path | None = None
    """What `vitrail data check DATA --json` printed, to be shown with the run."""


def run_words(words: Sequence[str]) -> None:
    """Run `vitrail report RUN [RUN ...]`."""
    run(tyro.cli(Options, args=list(words), prog="vitrail report"))


def run(options: Options) -> None:
    """Find out what the folders hold, and write the one page."""
    if not options.runs:
        raise UsageError("there is no run", wanted="vitrail report RUN [RUN ...]", fix="`ls runs` shows yours.")
    runs = [run.expanduser() for run in options.runs]
    if len({run.resolve() for run in runs}) < len(runs):
        raise UsageError("the same run is given twice", wanted="each run once")
    out = None if options.out is None else _writable(options.out.expanduser())
    findings = _findings(options.check)
    if len(runs) > 1:
        page = _compared(runs, out or _writable(Path("comparison.html")))
    else:
        page = _single(runs[0], out, findings)
    _say(page)


def _single(path: Path, out: Path | None, findings: "Findings | None") -> Path:
    from vitrail.report import write_report
    from vitrail.train.folder import RunFolder

    kind = _kind(path)
    if kind == "finetune":
        return _finetuning(path, out, findings)
    if kind in ("transfer", "vtab"):
        return _table(path, kind, out)
    if kind == "model":
        return _model(path, out)
    folder = RunFolder(path)
    _ensure_outside_data(folder, out)
    return write_report(folder, findings=findings, out=out)


def _finetuning(path: Path, out: Path | None, findings: "Findings | None") -> Path:
    """The page of the whole; before its end, the runs so far beside each other."""
    from vitrail.report import write_report
    from vitrail.report.versus import MOST_RUNS, versus_page
    from vitrail.report.write import write_page
    from vitrail.train.folder import RunFolder
    from vitrail.transfer.folder import FinetuneFolder, summary_of
    from vitrail.transfer.result import read_result

    folder = FinetuneFolder(path)
    if folder.result.is_file():
        result = read_result(folder.result)
        first = folder.run(result.seeds[0].folder)
        _ensure_outside_data(first, out)
        return write_report(first, summary=summary_of(folder, result), findings=findings, out=out)
    begun = sorted((log.parent for log in path.rglob("log.jsonl")), key=lambda run: (run / "log.jsonl").stat().st_mtime)
    if not begun:
        raise UsageError("none of its runs has begun", where=str(path), fix=f"Go on with it: {folder.resume_command}")
    if len(begun) == 1:
        return write_report(RunFolder(begun[0]), findings=findings, out=out or folder.report)
    for run in begun:
        _ensure_outside_data(RunFolder(run), out)
    newest = begun[-MOST_RUNS:]
    stories = [_story(run) for run in newest]
    lead = f"A fine-tuning that has not come to its end: the newest {len(newest)} of the runs that have begun."
    write_page(out or folder.report, versus_page(stories, title=path.resolve().name, lead=lead))
    return out or folder.report


def _table(path: Path, kind: str, out: Path | None) -> Path:
    """The page of a transfer or a VTAB, as its table stands."""
    from vitrail.report.write import write_page

    if kind == "transfer":
        from vitrail.transfer.pairs import TransferFolder, read_pairs
        from vitrail.transfer.table import make_table
        from vitrail.transfer.table_page import transfer_page

        folder = TransferFolder(path)
        table = make_table(folder, read_pairs(folder), {})
        content = transfer_page(table, path.resolve().name)
    else:
        from vitrail.transfer.vtab_folder import VtabFolder, read_table, read_vtab
        from vitrail.transfer.vtab_page import vtab_page

        folder = VtabFolder(path)
        content = vtab_page(read_table(folder), read_vtab(folder).command)
    write_page(out or folder.report, content)
    return out or folder.report


def _model(path: Path, out: Path | None) -> Path:
    """The page of a model alone; it is not written into the model folder, which may be anyone's."""
    from vitrail.evaluate.subject import open_subject
    from vitrail.report.model_page import model_page
    from vitrail.report.write import write_page

    out = out or _writable(Path(f"{path.resolve().name}.html"))
    write_page(out, model_page(open_subject(path)))
    return out


def _compared(paths: Sequence[Path], out: Path) -> Path:
    from vitrail.report.versus import MOST_RUNS, versus_page
    from vitrail.report.write import write_page
    from vitrail.train.folder import RunFolder

    if len(paths) > MOST_RUNS:
        raise UsageError(
            f"there are {len(paths)} runs", wanted=f"at most {MOST_RUNS}: more lines cannot be told apart in a chart"
        )
    stories = [_story(path) for path in paths]
    for story in stories:
        _ensure_outside_data(RunFolder(story.path), out)
    write_page(out, versus_page(stories))
    return out


def _story(path: Path) -> "Story":
    """What there is to tell about a run, or about the first seed of a fine-tuning."""
    from vitrail.report.story import gather
    from vitrail.train.folder import RunFolder
    from vitrail.transfer.folder import FinetuneFolder, summary_of
    from vitrail.transfer.result import read_result

    kind = _kind(path)
    if kind == "finetune":
        folder = FinetuneFolder(path)
        if not folder.result.is_file():
            raise UsageError(
                "is a fine-tuning that has not come to its end",
                where=str(path),
                fix=f"Compare its runs ({path}/*), or go on with it: {folder.resume_command}",
            )
        result = read_result(folder.result)
        return gather(folder.run(result.seeds[0].folder), None, None, summary_of(folder, result))
    if kind != "run":
        raise UsageError(f"is a {kind}, and only runs and fine-tunings are compared", where=str(path))
    return gather(RunFolder(path), None, None)


_KINDS = {
    "vitrail-run/": "run",
    "vitrail-finetune/": "finetune",
    "vitrail-transfer/": "transfer",
    "vitrail-vtab/": "vtab",
    "vitrail/": "model",
}


def _kind(path: Path) -> str:
    """What a folder holds, by the format that it names."""
    if path.is_file() and path.name in ("config.json", "log.jsonl", "report.html"):
        raise UsageError(
            "is a file", wanted="the folder of a run", where=str(path), fix=f"vitrail report {path.parent}"
        )
    if not path.is_dir():
        raise UsageError("there is no such folder", where=str(path), fix="`ls runs` shows yours.")
    for name, formats in (("config.json", _KINDS), ("result.json", {"vitrail-evaluation/": "evaluation"})):
        if (file := path / name).is_file():
            values = _read(file)
            found = next((kind for prefix, kind in formats.items() if str(values.get("format")).startswith(prefix)), "")
            if found == "evaluation":
                raise UsageError(
                    "is an evaluation, whose page needs the model and the images",
                    where=str(path),
                    fix=f"Make it again: {values.get('command') or 'vitrail evaluate'}",
                )
            if found:
                return found
            raise DataError(
                f"says format {values.get('format')!r}", wanted="a run, a fine-tuning or a model", where=str(file)
            )
    inside = sorted(run.parent.name for run in path.glob("*/config.json"))
    fix = f"vitrail report {shlex.quote(str(path / inside[-1]))}" if inside else "`ls runs` shows yours."
    raise UsageError("there is no config.json", wanted="the folder of a run", where=str(path), fix=fix)


def _read(file: Path) -> dict:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot be read ({error})", where=str(file)) from None
    if not isinstance(values, dict):
        raise DataError("is not the record of a run", where=str(file))
    return values


def _findings(check: Path | None) -> "Findings | None":
    from vitrail.report.findings import read_findings

    return None if check is None else read_findings(check.expanduser())


def _writable(out: Path) -> Path:
    """Refuse a target that would overwrite something else than a page of ours."""
    from vitrail.report.document import is_ours
    from vitrail.report.page import GENERATOR

    if out.suffix.lower() not in _SUFFIXES:
        raise UsageError(f"the page is {str(out)!r}", wanted="a name that ends in .html")
    if out.is_symlink() or (out.exists() and not out.is_file()):
        raise UsageError("is there already and is no plain file", where=str(out), fix="Choose another --out.")
    if out.exists() and not is_ours(out.read_bytes(), GENERATOR):
        raise UsageError("is there already and is no page of ours", where=str(out), fix="Choose another --out.")
    return out


def _ensure_outside_data(folder: "RunFolder", out: Path | None) -> None:
    """Refuse to write where the images of the run lie."""
    from vitrail.data.sources.files import user_path
    from vitrail.train.folder import read_run

    if out is None:
        return
    data = user_path(read_run(folder).config.data.data)
    home = data.resolve() if data.is_dir() else None
    if home is not None and out.resolve().is_relative_to(home):
        raise UsageError(
            f"it would lie inside the data, {home}",
            where=str(out),
            fix="Choose a place outside: data is never touched.",
        )


def _say(page: Path) -> None:
    size = megabytes(page.stat().st_size)
    console().print(f"{printable(str(page))}  {size}, all in one file: open it", markup=False, soft_wrap=True)
