"""What `vitrail evaluate` says: one model with its weak spots, or several beside each other."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from vitrail.cli.terminal import console, printable, table
from vitrail.evaluation import Evaluation, MultiLabelEvaluation
from vitrail.evaluation.metrics import Share
from vitrail.reports.comparison import COLUMNS, shown_value, spread_value, value_of
from vitrail.reports.evaluation_folder import EvaluationFolder
from vitrail.reports.numbers import duration, percent

if TYPE_CHECKING:
    from vitrail.cli.evaluate import Done

_WORST = 5
_TOP = 5


def say_one(done: "Done", whole: dict[str, Any]) -> None:
    """How good the model is, with what was counted, and where it is weak."""
    out, found = console(), done.evaluation
    out.print(f"[bold]{_safe(done.name)}[/] on {_about(done, whole)}\n")
    is_told = done.record["matched_by"] != "order"
    lines = _lines(found) if isinstance(found, Evaluation) else _several_lines(found)
    for name, value in lines if is_told else _untold_lines(found):
        out.print(f"  {name:<16} {value}")
    out.print()
    if not is_told:
        pass
    elif isinstance(found, Evaluation):
        _say_classes(found)
    else:
        _say_labels(found)
    _say_notes(whole)
    record = done.record
    out.print(
        f"{duration(record['seconds'])}, {record['images_per_second']:,.0f} images/s on {record['device']}"
        + (f", {whole['processes']} processes" if whole["processes"] > 1 else "")
        + f"; {record['precision']}"
    )


def say_several(done: Sequence["Done"], whole: dict[str, Any]) -> None:
    """A line per model, and mean ± standard deviation."""
    out = console()
    out.print(f"{_about(done[0], whole)}\n")
    records = [one.record for one in done]
    keys = [key for key in COLUMNS if any(value_of(record, key) is not None for record in records)]
    names = (*(COLUMNS[key] for key in keys), "images", "images/s")
    shown = table("model", *names, numbers=names)
    for record in records:
        values = (shown_value(key, value_of(record, key)) for key in keys)
        speed = f"{record['images_per_second']:,.0f}"
        shown.add_row(_safe(record["model"]), *values, f"{record['images']:,}", speed)
    out.print(shown)
    if whole["summary"]:
        told = ", ".join(f"{COLUMNS[key]} {spread_value(key, value)}" for key, value in whole["summary"].items())
        out.print(f"[bold]mean ± standard deviation of {len(done)} models[/]: {told}")
    _say_notes(whole)


def say_files(folder: EvaluationFolder) -> None:
    """Where everything is."""
    out = console()
    for path, what in folder.written():
        out.print(f"{_safe(str(path))}  {what}")


def _about(done: "Done", whole: dict[str, Any]) -> str:
    data = whole["data"]
    outputs = f"; the model knows {done.outputs:,}" if done.outputs != data["classes"] else ""
    return (
        f"[bold]{_safe(data['data'])}[/], {_safe(data['split'])}: {data['images']:,} images counted, "
        f"{data['classes']:,} classes{outputs}"
    )


def _lines(found: Evaluation) -> Iterator[tuple[str, str]]:
    yield "top-1", _counted(found.top1)
    if len(found.classes) > _TOP:
        yield "top-5", _counted(found.top5)
    yield "cross-entropy", f"{found.loss:.4f}"
    calibration = found.calibration
    yield (
        "calibration",
        f"ECE {percent(calibration.ece, 2)} ({len(calibration.bins)} bins of equal width): on average "
        f"{percent(calibration.confidence)} sure, {percent(calibration.accuracy)} right",
    )
    measured = sum(one.images > 0 for one in found.classes)
    if measured < len(found.classes):
        outside = sum(one.guessed for one in found.classes if not one.images)
        yield (
            "other classes",
            f"{outside:,} first guesses are none of the {measured:,} classes of the data, and count as wrong",
        )
    yield from _real_lines(found)


def _real_lines(found: Evaluation) -> Iterator[tuple[str, str]]:
    if found.real is not None:
        real = found.real
        yield "ReaL top-1", _counted(real.top1)
        yield (
            "",
            f"{real.labelled:,} of {real.images:,} images have ReaL labels; {real.skipped:,} without are skipped",
        )


def _untold_lines(found: Evaluation | MultiLabelEvaluation) -> Iterator[tuple[str, str]]:
    """What holds whatever the order of the outputs; what does not is no headline."""
    if isinstance(found, Evaluation):
        yield from _real_lines(found)
        yield "top-1", "cannot be told: which output of the model is which class of the data is not known"
        yield "", f"({percent(found.top1.share, 2)}, were they in the same order; --classes says which they are)"
    else:
        yield "mAP", "cannot be told: which output of the model is which class of the data is not known"
        yield "", "(--classes says which they are)"


def _several_lines(found: MultiLabelEvaluation) -> Iterator[tuple[str, str]]:
    shown = sum(one.images > 0 for one in found.classes)
    if found.mean_average_precision is not None:
        value = percent(found.mean_average_precision, 2)
        yield "mAP", f"[bold]{value}[/] (mean over the {shown:,} classes that an image shows)"
    if found.hit is not None:
        yield "hit@1", f"{_counted(found.hit)}, of images with a class"
    yield "exact match", _counted(found.exact)
    for name, value in (("micro F1", found.micro_f1), ("macro F1", found.macro_f1)):
        if value is not None:
            yield name, f"{value:.4f} (probability above {found.threshold:g})"
    yield "cross-entropy", f"{found.loss:.4f} (sigmoid, summed over classes)"


def _counted(share: Share) -> str:
    """A share with what it counts."""
    return (
        f"[bold]{percent(share.share, 2)}[/] ({share.right:,} of {share.images:,} images; 95 % interval "
        f"{percent(share.low, 2)} to {percent(share.high, 2)})"
    )


def _say_classes(found: Evaluation) -> None:
    out = console()
    there = [one for one in found.classes if one.accuracy is not None]
    worst = sorted(there, key=lambda one: (one.accuracy, -one.images, one.number))
    weak = [one for one in worst if one.right < one.images][:_WORST]
    if not weak:
        out.print("No image is wrong.")
        return
    shown = table("worst classes", "images", "right", "accuracy", numbers=("images", "right", "accuracy"))
    for one in weak:
        shown.add_row(_safe(one.name), f"{one.images:,}", f"{one.right:,}", percent(one.accuracy or 0.0))
    out.print(shown)
    wrong = found.confusion[found.confusion[:, 0] != found.confusion[:, 1]]
    pairs = sorted(wrong.tolist(), key=lambda row: (-row[2], row[0], row[1]))[:_WORST]
    shown = table("is", "was taken for", "images", numbers=("images",))
    for true, guess, images in pairs:
        shown.add_row(_safe(found.classes[true].name), _safe(found.classes[guess].name), f"{images:,}")
    out.print(shown)


def _say_labels(found: MultiLabelEvaluation) -> None:
    there = [one for one in found.classes if one.average_precision is not None]
    worst = sorted(there, key=lambda one: (one.average_precision, -one.images, one.number))[:_WORST]
    numbers = ("images", "guessed", "right", "average precision")
    shown = table("worst classes", *numbers, numbers=numbers)
    for one in worst:
        value = percent(one.average_precision or 0.0)
        shown.add_row(_safe(one.name), f"{one.images:,}", f"{one.guessed:,}", f"{one.right:,}", value)
    console().print(shown)


def _say_notes(whole: dict[str, Any]) -> None:
    for note in whole["data"]["notes"]:
        console().print(f"note: {_safe(note)}")


def _safe(text: str) -> str:
    """Text from outside, as text."""
    return escape(printable(text))
