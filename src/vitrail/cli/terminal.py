"""What the verbs share about printing for people and for programs."""

import json
import sys
import textwrap
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

# Wide enough for every table of ours, so that a file or a pipe gets whole rows.
_PLAIN_WIDTH = 200
READABLE_WIDTH = 80
"""What every terminal has room for."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave `vitrail list | head` to the one place that handles it; rich would exit with an error."""
        raise BrokenPipeError


def console() -> Console:
    """The terminal, or plain wide lines when the output goes elsewhere."""
    return _Console(highlight=False) if sys.stdout.isatty() else _Console(highlight=False, width=_PLAIN_WIDTH)


def table(*columns: str, numbers: tuple[str, ...] = ()) -> Table:
    """A light table whose columns named in `numbers` are aligned to the right."""
    made = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        # What people have to type, and numbers, are never cut.
        whole = index == 0 or column in numbers
        made.add_column(column, justify="right" if column in numbers else "left", no_wrap=whole)
    return made


def is_narrow() -> bool:
    """Whether a wide table would be folded into many lines."""
    return console().width < 110


def print_json(value: Any) -> None:
    """One JSON document on standard output, with letters as they are where it can take them."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=2)
    print(text)


def folded(text: str) -> str:
    """A long line as several that every terminal has room for, those below indented; no word, so no path, is cut."""
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    return textwrap.fill(text, READABLE_WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def megabytes(size: int) -> str:
    """A number of bytes for people, in units of 1000."""
    return (
        f"{size / 1e9:,.2f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:,.1f} kB"
    )


def printable(text: str) -> str:
    """Text from a file, with control characters shown instead of sent to the terminal."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def short_count(count: int) -> str:
    """A number of parameters for people: 86.6 M."""
    return f"{count / 1e6:,.1f} M" if count >= 1e6 else f"{count / 1e3:,.1f} k"


def operations(count: int, unit: str = "MACs") -> str:
    """A number of operations for people."""
    for scale, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if count >= scale:
            return f"{count / scale:,.2f} {letter}{unit}"
    return f"{count:,} {unit}"
