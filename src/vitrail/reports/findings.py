"""What `vitrail data check` found in the data of a run, in short: its own page shows the images."""

import json
from pathlib import Path

from vitrail.config import from_json
from vitrail.data.check.findings import Findings
from vitrail.data.check.words import counted, number, path, text
from vitrail.errors import DataError, command

_EXAMPLES = 5


def read_findings(file: Path) -> Findings:
    """Read what `vitrail data check DATA --json` printed."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        wanted = f"what `{command('data check', json=True)}` prints"
        raise DataError(f"cannot be read ({error})", wanted=wanted, where=str(file)) from None
    return from_json(Findings, values, where=str(file))


def findings_parts(found: Findings) -> str:
    """A line for each kind of thing that was found, with some examples of it."""

    def short(place: str) -> str:
        return f'<span class="path">{path(place, found.data)}</span>'

    kinds = [
        (
            len(found.across),
            ("group of copies lies in more than one split", "groups of copies lie in more than one split"),
            [short(group.images[0].path) for group in found.across],
        ),
        (
            len(found.bad),
            ("file cannot be used", "files cannot be used"),
            [f"{short(one.image.path)} ({text(one.reason)})" for one in found.bad],
        ),
        (
            len(found.conflicts),
            ("picture has two labels", "pictures have two labels"),
            [short(group.images[0].path) for group in found.conflicts],
        ),
        (
            len(found.class_faults),
            ("class is at fault", "classes are at fault"),
            [f"{text(one.name)} in {text(one.split)} {text(one.reason)}" for one in found.class_faults],
        ),
        (len(found.within), ("group of copies lies inside a split", "groups of copies lie inside a split"), []),
        (len(found.several_frames), ("file is animated", "files are animated"), []),
        (len(found.strange_names), ("name is strange", "names are strange"), []),
    ]
    rows = "".join(f"<li>{counted(count, *words)}{_listed(examples)}</li>" for count, words, examples in kinds if count)
    notes = "".join(f"<li>{text(note)}</li>" for note in found.notes[:_EXAMPLES])
    verdict = (
        '<span class="verdict bad">problems found</span>'
        if found.has_problems
        else '<span class="verdict fine">clean</span>'
    )
    splits = ", ".join(f"{text(split)} {number(count)}" for split, count in found.splits.items())
    return (
        f'<h3>What the check of the data found</h3><p class="lead">{verdict} &nbsp;{text(found.data)}: {splits}</p>'
        f"<ul>{rows}{notes}</ul>"
    )


def _listed(examples: list[str]) -> str:
    if not examples:
        return ""
    more = f", and {number(len(examples) - _EXAMPLES)} more" if len(examples) > _EXAMPLES else ""
    return f": {', '.join(examples[:_EXAMPLES])}{more}"
