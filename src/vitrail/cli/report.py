"""`vitrail report`: the page of a run or a model, made anew, or of several runs beside each other."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from vitrail.cli.terminal import console, megabytes, printable
from vitrail.cli.words import in_front
from vitrail.errors import DataError, UsageError
from vitrail.experiments.kinds import ensure_outside_known, kind_of

if TYPE_CHECKING:
    from vitrail.data.check.findings import Findings
    from vitrail.experiments.selftrain import SelftrainFolder
    from vitrail.reports.story import Story

_SUFFIXES = (".html", ".htm")
_WEIGHTS = (".safetensors", ".npz", ".pt", ".pth", ".bin")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Write the page of a run: curves, results, confusions, mistakes, calibration, figures, how to do it again.

    It is made from what the folder holds, also while the run is still going on, after it was cut off, or when its data
    has gone. Of several runs one page shows what differs, and the images that only one of them has right.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]
    """Folders of runs, of fine-tunings, of a transfer or a VTAB; or a model folder, or a file of weights."""
    out: Path | None = None
    """The .html file to write; report.html in the folder of the run, or ./comparison.html for several, if not said."""
    check: Path | None = None
    """What `vitrail data check DATA --json` printed, to be shown with the run."""


def run_words(words: Sequence[str]) -> None:
    """Run `vitrail report RUN [RUN ...]`."""
    run(tyro.cli(Options, args=in_front(Options, words), prog="vitrail report"))


def run(options: Options) -> None:
    """Find out what the folders hold, and write the one page."""
    if not options.runs:
        raise UsageError("there is no run", wanted="vitrail report RUN [RUN ...]", fix="`ls runs` shows yours.")
    runs = [run.expanduser() for run in options.runs]
    if len({run.resolve() for run in runs}) < len(runs):
        raise UsageError("the same run is given twice", wanted="each run once")
    _ensure_few(runs)
    kinds = [_kind(run) for run in runs]
    _ensure_compared(list(zip(runs, kinds, strict=True)))
    if options.check is not None and (len(runs) > 1 or kinds[0] not in ("run", "finetune")):
        raise UsageError("--check is told with one run", wanted="one run or fine-tuning")
    out = options.out.expanduser() if options.out is not None else _default_out(runs, kinds)
    if out is not None:
        _writable(out)
        for run in runs:
            ensure_outside_known(run, out)
    findings = _findings(options.check)
    if len(runs) > 1:
        assert out is not None
        page = _compared(runs, out)
    else:
        page = _single(runs[0], kinds[0], out, findings)
    _say(page)


def _ensure_few(runs: Sequence[Path]) -> None:
    if len(runs) > 1:
        from vitrail.reports.versus import MOST_RUNS

        if len(runs) > MOST_RUNS:
            raise UsageError(
                f"there are {len(runs)} runs", wanted=f"at most {MOST_RUNS}: more lines cannot be told apart in a chart"
            )


def _default_out(runs: Sequence[Path], kinds: Sequence[str]) -> Path | None:
    """Where the page goes when nothing is said: with the run, but a model may be anyone's, and several are no one's."""
    if len(runs) > 1:
        return Path("comparison.html")
    path = runs[0].resolve()
    return Path(f"{path.stem if path.is_file() else path.name}.html") if kinds[0] == "model" else None


def _single(path: Path, kind: str, out: Path | None, findings: "Findings | None") -> Path:
    from vitrail.reports import write_report
    from vitrail.training.folder import RunFolder

    if kind == "finetune":
        return _finetuning(path, out, findings)
    if kind == "experiment":
        return _runs(path, out, findings, "The runs of this experiment beside each other.")
    if kind == "selftrain":
        return _selftraining(path, out, findings)
    if kind in ("transfer", "vtab"):
        return _table(path, kind, out)
    if kind == "model":
        assert out is not None
        return _model(path, out)
    # The folder that one stands in is called "." and has no name.
    here = path if path.name else path.absolute()
    if kind_of(here.parent) == "vitrail-selftrain":
        return _student(here, out, findings)
    return write_report(RunFolder(path), findings=findings, out=out)


def _student(path: Path, out: Path | None, findings: "Findings | None") -> Path:
    """The page of a round: its student, beside its teacher and the other ones."""
    from vitrail.experiments.selftrain import SelftrainFolder
    from vitrail.experiments.selftrain_page import teaching_section
    from vitrail.reports import write_report
    from vitrail.training.folder import RunFolder

    folder = SelftrainFolder(path.parent)
    begun = _begun(folder)
    number = next((one for one in begun if folder.round(one).path.name == path.name), None)
    if number is None:
        return write_report(RunFolder(path), findings=findings, out=out)
    first = teaching_section(folder, begun[-1], shown=number)
    return write_report(folder.round(number), findings=findings, first=first, out=out)


def _begun(folder: "SelftrainFolder") -> list[int]:
    """The rounds of a self-training whose students have begun to learn."""
    from vitrail.experiments.selftrain import read_selftraining

    return [number for number in range(1, read_selftraining(folder).rounds + 1) if folder.round(number).log.is_file()]


def _finetuning(path: Path, out: Path | None, findings: "Findings | None") -> Path:
    """The page of the whole; before its end, the runs so far beside each other."""
    from vitrail.experiments.finetune import FinetuneFolder, read_result, summary_of
    from vitrail.reports import write_report

    folder = FinetuneFolder(path)
    if folder.result.is_file():
        result = read_result(folder.result)
        first = folder.run(result.seeds[0].folder)
        return write_report(first, summary=summary_of(folder, result), findings=findings, out=out)
    return _runs(path, out, findings, "A fine-tuning that has not come to its end: the newest runs that have begun.")


def _runs(path: Path, out: Path | None, findings: "Findings | None", lead: str) -> Path:
    """The newest runs in a folder beside each other; a single one as itself."""
    from vitrail.experiments.kinds import resume_command
    from vitrail.reports import write_report
    from vitrail.reports.versus import MOST_RUNS, versus_page
    from vitrail.reports.write import write_page
    from vitrail.training.folder import PartFolder

    begun = sorted((log.parent for log in path.rglob("log.jsonl")), key=lambda run: (run / "log.jsonl").stat().st_mtime)
    goes_on, target = resume_command(path), out or path / "report.html"
    if not begun:
        raise UsageError("none of its runs has begun", where=str(path), fix=f"Go on with it: {goes_on}")
    if len(begun) == 1:
        return write_report(PartFolder(begun[0], goes_on), findings=findings, out=target)
    stories = [_story(run) for run in begun[-MOST_RUNS:]]
    write_page(target, versus_page(stories, title=path.resolve().name, lead=lead))
    return target


def _selftraining(path: Path, out: Path | None, findings: "Findings | None") -> Path:
    """Teacher and students, and the page of its student; of several rounds, their students beside each other."""
    from vitrail.experiments.selftrain import SelftrainFolder
    from vitrail.experiments.selftrain_page import teaching_section
    from vitrail.reports import write_report
    from vitrail.reports.versus import MOST_RUNS, versus_page
    from vitrail.reports.write import write_page

    folder = SelftrainFolder(path)
    begun = _begun(folder)
    if not begun:
        raise UsageError("no student has begun", where=str(path), fix=f"Go on with it: {folder.resume_command}")
    first = teaching_section(folder, begun[-1])
    if len(begun) == 1:
        return write_report(folder.round(1), findings=findings, first=first, out=out or folder.report)
    stories = [_story(folder.round(number).path) for number in begun[-MOST_RUNS:]]
    lead = "A self-training: the students of its rounds, each taught by the one before it."
    write_page(out or folder.report, versus_page(stories, title=path.resolve().name, lead=lead, first=first))
    return out or folder.report


def _table(path: Path, kind: str, out: Path | None) -> Path:
    """The page of a transfer or a VTAB, as its table stands."""
    from vitrail.reports.write import write_page

    if kind == "transfer":
        from vitrail.experiments.transfer import TransferFolder, read_pairs
        from vitrail.experiments.transfer_table import make_table, transfer_page

        folder = TransferFolder(path)
        table = make_table(folder, read_pairs(folder), {})
        content = transfer_page(table, path.resolve().name)
    else:
        from vitrail.experiments.vtab_folder import VtabFolder, read_table, read_vtab
        from vitrail.experiments.vtab_table import vtab_page

        folder = VtabFolder(path)
        content = vtab_page(read_table(folder), read_vtab(folder).command)
    write_page(out or folder.report, content)
    return out or folder.report


def _model(path: Path, out: Path) -> Path:
    """The page of a model alone; it is not written into the model folder, which may be anyone's."""
    from vitrail.reports.model_page import model_page
    from vitrail.reports.write import write_page
    from vitrail.weights.load import load_model

    write_page(out, model_page(load_model(path), path))
    return out


def _compared(paths: Sequence[Path], out: Path) -> Path:
    from vitrail.reports.versus import versus_page
    from vitrail.reports.write import write_page

    stories = [_story(path) for path in paths]
    write_page(out, versus_page(stories))
    return out


def _story(path: Path) -> "Story":
    """What there is to tell about a run, or about the first seed of a fine-tuning."""
    from vitrail.experiments.finetune import FinetuneFolder, read_result, summary_of
    from vitrail.reports.story import gather
    from vitrail.training.folder import RunFolder

    if _kind(path) == "finetune":
        folder = FinetuneFolder(path)
        if not folder.result.is_file():
            raise UsageError(
                "is a fine-tuning that has not come to its end",
                where=str(path),
                fix=f"Compare its runs ({path}/*), or go on with it: {folder.resume_command}",
            )
        result = read_result(folder.result)
        return gather(folder.run(result.seeds[0].folder), None, None, summary_of(folder, result))
    return gather(RunFolder(path), None, None)


_KINDS = {
    "vitrail-run/": "run",
    "vitrail-finetune/": "finetune",
    "vitrail-selftrain/": "selftrain",
    "vitrail-transfer/": "transfer",
    "vitrail-vtab/": "vtab",
    "vitrail/": "model",
}
_OTHERS = {"result.json": "vitrail-evaluation/", "inspection.json": "vitrail-inspection/"}


def _kind(path: Path) -> str:
    """What a folder holds, by the format that it names; a file of weights is a model."""
    if path.is_file() and path.name in ("config.json", "log.jsonl", "report.html"):
        raise UsageError(
            "is a file", wanted="the folder of a run", where=str(path), fix=f"vitrail report {path.parent}"
        )
    if path.is_file() and path.suffix.lower() in _WEIGHTS:
        return "model"
    if not path.is_dir():
        came = "is no folder and no file of weights" if path.exists() else "there is no such folder"
        raise UsageError(came, where=str(path), fix="`ls runs` shows yours.")
    if (file := path / "config.json").is_file():
        stored = str(_read(file).get("format"))
        found = next((kind for prefix, kind in _KINDS.items() if stored.startswith(prefix)), None)
        if found is None and stored.startswith("vitrail-"):
            return "experiment"
        if found is None:
            raise DataError(f"says format {stored!r}", wanted="a run, a fine-tuning or a model", where=str(file))
        return found
    for name, format in _OTHERS.items():
        if (file := path / name).is_file() and str(_read(file).get("format")).startswith(format):
            return format.removeprefix("vitrail-").rstrip("/")
    raise _no_run(path)


def _no_run(path: Path) -> UsageError:
    """What to say of a folder that names no format."""
    if (path / "log.jsonl").is_file():
        return UsageError(
            "the config.json of this run is not there any more",
            wanted="what the run was asked to do, beside its log",
            where=str(path),
            fix=f"Without it there is no page; `vitrail report {shlex.quote(str(path / 'model'))}` shows its model.",
        )
    inside = sorted(run.parent.name for run in path.glob("*/config.json"))
    fix = f"Name one of them: vitrail report {shlex.quote(str(path / inside[-1]))}" if inside else ""
    return UsageError(
        "is a folder of runs" if inside else "there is no config.json",
        wanted="the folder of a run",
        where=str(path),
        fix=fix or "`ls runs` shows yours.",
    )


def _ensure_compared(runs: Sequence[tuple[Path, str]]) -> None:
    """Refuse what has no page of this kind, with the command that makes the one that was meant."""
    for path, kind in runs:
        if kind == "inspection":
            raise UsageError(
                "is an inspection, which has no page: captions.md shows its figures",
                where=str(path),
                fix=f"Make it again: {_read(path / 'inspection.json').get('command') or 'vitrail inspect'}",
            )
        if kind == "evaluation":
            made = _read(path / "result.json")
            again = f"Make it again: {made.get('command') or 'vitrail evaluate'}"
            fix = again if len(runs) == 1 else f"Models are compared by measuring them together: {_measured(runs)}"
            raise UsageError("is an evaluation, whose page needs the model and the images", where=str(path), fix=fix)
        if len(runs) > 1 and kind not in ("run", "finetune"):
            raise UsageError(f"is a {kind}, and only runs and fine-tunings are compared", where=str(path))


def _measured(runs: Sequence[tuple[Path, str]]) -> str:
    """The command that measures the models of some evaluations on the images of the first."""
    models: list[str] = []
    data = "DATA"
    for path, kind in runs:
        if kind != "evaluation":
            models.append(str(path))
            continue
        made = _read(path / "result.json")
        models += [str(one["model"]) for one in made.get("models") or () if isinstance(one, dict) and "model" in one]
        if data == "DATA" and isinstance(made.get("data"), dict):
            data = str(made["data"].get("data", data))
    return shlex.join(["vitrail", "evaluate", *dict.fromkeys(models), "--data", data])


def _read(file: Path) -> dict:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot be read ({error})", where=str(file)) from None
    if not isinstance(values, dict):
        raise DataError("is not the record of a run", where=str(file))
    return values


def _findings(check: Path | None) -> "Findings | None":
    from vitrail.reports.findings import read_findings

    return None if check is None else read_findings(check.expanduser())


def _writable(out: Path) -> None:
    """Refuse a target that would overwrite something else than a page of ours."""
    from vitrail.reports.document import MARKED, is_ours
    from vitrail.reports.page import GENERATOR

    if out.suffix.lower() not in _SUFFIXES:
        raise UsageError(f"the page is {str(out)!r}", wanted="a name that ends in .html")
    if out.is_symlink() or (out.exists() and not out.is_file()):
        raise UsageError("is there already and is no plain file", where=str(out), fix="Choose another --out.")
    if out.exists():
        with out.open("rb") as file:
            begins = file.read(MARKED)
        if not is_ours(begins, GENERATOR):
            raise UsageError("is there already and is no page of ours", where=str(out), fix="Choose another --out.")


def _say(page: Path) -> None:
    size = megabytes(page.stat().st_size)
    console().print(f"{printable(str(page))}  {size}, all in one file: open it", markup=False, soft_wrap=True)
