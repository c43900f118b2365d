"""The findings of a check on one screen: counts first, then what leaks or stops training, then the rest."""

import os
from collections.abc import Iterable, Iterator

from rich.console import Console

from vitrail.cli.terminal import printable
from vitrail.data.check.findings import Duplicates, Findings, Place
from vitrail.data.check.words import counted

_EXAMPLES = 10
_NOTES = 6
# Groups of copies inside a split, and names in each, that are shown.
_GROUPS = 5
_NAMES = 3


def print_summary(findings: Findings, out: Console) -> None:
    """Print for people."""
    out.print(printable(findings.data), style="bold", markup=False, soft_wrap=True)
    for line in _counts(findings):
        _line(out, f"  {line}")
    problems, notes = list(_problems(findings)), list(_notes(findings))
    if problems:
        out.print("\nProblems", style="bold red")
        for headline, examples, number in problems:
            _line(out, f"  {headline}", style="red")
            _examples(out, examples, number)
    elif findings.within:
        out.print("\nNothing stops training, but there are copies.", style="bold yellow")
    else:
        out.print("\nNothing is wrong with it.", style="bold green")
    if findings.within:
        _say_copies(findings, out)
    if notes:
        out.print("\nNotes", style="bold")
        for note in notes[:_NOTES]:
            _line(out, f"  {note}")
        if len(notes) > _NOTES:
            _line(out, f"  and {len(notes) - _NOTES:,} more")


def problem_counts(findings: Findings) -> str:
    """What a check failed for, in one line."""
    parts = [
        (len(findings.bad), "bad file", "bad files"),
        (len(findings.across), "group of copies across splits", "groups of copies across splits"),
        (len(findings.conflicts), "picture with two labels", "pictures with two labels"),
        (len(findings.class_faults), "class at fault", "classes at fault"),
    ]
    return ", ".join(counted(number, one, many) for number, one, many in parts if number)


def _counts(findings: Findings) -> Iterator[str]:
    splits = ", ".join(f"{split} {count:,}" for split, count in findings.splits.items())
    home = next(iter(findings.splits))
    per_class = [one.images[home] for one in findings.classes if one.images[home]]
    each = f", {min(per_class):,} to {max(per_class):,} images each in {home}" if per_class else ""
    classes = counted(len(findings.classes), "class", "classes") if findings.classes else "no classes"
    yield f"{counted(findings.images, 'image')} ({splits}); {classes}{each}"
    if findings.sizes:
        formats = ", ".join(f"{name} {count:,}" for name, count in findings.formats.items())
        yield f"pixels: {_range(findings.sizes.width)} wide, {_range(findings.sizes.height)} high; {formats}"


def _range(sides: tuple[int, int, int]) -> str:
    low, middle, high = sides
    return f"{low:,} to {high:,} (median {middle:,})"


def _problems(findings: Findings) -> Iterator[tuple[str, list[str], int]]:
    """A headline, some examples, and how many there are."""

    def short(place: Place) -> str:
        return _path(place.path, findings.data)

    if findings.across:
        exact = sum(group.kind == "exact" for group in findings.across)
        kinds = f"{exact:,} exact, {len(findings.across) - exact:,} near"
        groups = counted(len(findings.across), "group of copies lies", "groups of copies lie")
        headline = f"{groups} in more than one split ({kinds}): a model would be measured on what it has seen"
        yield headline, [_copies(group, findings.data) for group in findings.across[:_EXAMPLES]], len(findings.across)
    if findings.bad:
        lines = [f"{short(one.image)}: {printable(one.reason)}" for one in findings.bad[:_EXAMPLES]]
        yield counted(len(findings.bad), "file") + " cannot be used", lines, len(findings.bad)
    if findings.conflicts:
        lines = [_copies(group, findings.data, labels=True) for group in findings.conflicts[:_EXAMPLES]]
        headline = counted(len(findings.conflicts), "picture has", "pictures have") + " two labels"
        yield headline, lines, len(findings.conflicts)
    if findings.class_faults:
        lines = [f"{one.name!r} in {one.split} {one.reason}" for one in findings.class_faults[:_EXAMPLES]]
        headline = counted(len(findings.class_faults), "class", "classes") + " at fault"
        yield headline, lines, len(findings.class_faults)


def _notes(findings: Findings) -> Iterator[str]:
    if findings.within:
        for group in [group for group in findings.within if group.labels_differ and group.kind == "near"][:_EXAMPLES]:
            yield f"look alike and have two labels: {_copies(group, findings.data, labels=True)}"
    if findings.several_frames:
        files = counted(len(findings.several_frames), "animated or multi-page file")
        yield f"{files}: the first frame is used"
    if findings.strange_names:
        first = findings.strange_names[0]
        names = counted(len(findings.strange_names), "strange name")
        yield f"{names}, such as {_path(first.path, findings.data)!r}: {first.reason}"
    yield from map(printable, findings.notes)


def _say_copies(findings: Findings, out: Console) -> None:
    """The copies inside a split, and what they mean for images that are held out."""
    found = findings.within
    exact = sum(group.kind == "exact" for group in found)
    groups = counted(len(found), "group of copies lies", "groups of copies lie")
    images = len({(place.split, place.index) for group in found for place in group.images})
    out.print("\nCopies", style="bold")
    _line(out, f"  {groups} inside a split ({exact:,} exact, {len(found) - exact:,} near; {images:,} images)")
    _examples(out, [_copies(group, findings.data) for group in found[:_GROUPS]], len(found), _GROUPS)
    _line(
        out,
        "  Each copy counts again in training. What `vitrail train` holds out, and parts such as train[:90%], have all "
        "copies of an image or none; a split made elsewhere may measure on what was learnt.",
    )


def _copies(group: Duplicates, data: str, *, labels: bool = False) -> str:
    # One of each split, or of each label, says what is wrong; then others, as far as there is room.
    seen: dict[object, Place] = {}
    for place in group.images:
        seen.setdefault(place.labels if labels else place.split, place)
    shown = [*seen.values(), *(place for place in group.images if place not in seen.values())]
    shown = shown[: max(len(seen), _NAMES)]
    sign = " = " if group.kind == "exact" else " ~ "
    told = [_path(one.path, data) + (f" ({printable(', '.join(one.labels))})" if labels else "") for one in shown]
    more = len(group.images) - len(shown)
    return sign.join(told) + (f" and {more:,} more" if more else "")


def _examples(out: Console, lines: Iterable[str], number: int, most: int = _EXAMPLES) -> None:
    for line in lines:
        _line(out, f"      {line}")
    if number > most:
        _line(out, f"      and {number - most:,} more")


def _path(path: str, data: str) -> str:
    return printable(path.removeprefix(data.rstrip(os.sep) + os.sep))


def _line(out: Console, text: str, style: str | None = None) -> None:
    out.print(text, style=style, markup=False, soft_wrap=True)
