"""The frame of a page that needs nothing but itself."""

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import vitrail
from vitrail.data.check.page_style import LOGO
from vitrail.data.check.words import text
from vitrail.reports.script import SCRIPT
from vitrail.reports.style import STYLE

# A short page needs no list of its parts.
_FEW = 3
MARKED = 2000
"""Bytes at the beginning of a page that say which command made it."""


@dataclass(frozen=True)
class Section:
    """A part of a page: its heading, what it says first, and the rest; title, lead and body are markup already."""

    anchor: str
    title: str
    lead: str
    body: str

    @property
    def html(self) -> str:
        """As it stands in the page."""
        words = f'<p class="lead">{self.lead}</p>' if self.lead else ""
        heading = f'<h2 id="{self.anchor}-title">{self.title}</h2>'
        opening = f'<section id="{self.anchor}" aria-labelledby="{self.anchor}-title">'
        return f"{opening}{heading}{words}{self.body}</section>"


def document(title: str, header: str, top: str, sections: Iterable[Section], *, generator: str) -> str:
    """The whole page around its parts, which are markup already."""
    # Only this style and this script may act, whatever a class or a file is called.
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(STYLE)}; script-src {_hash(SCRIPT)}; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = list(sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"{_mark(generator)}"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head><body><main>"
        f"<header>{LOGO}{header}</header>{_contents(parts)}{top}{''.join(part.html for part in parts)}"
        f"<footer>Made by vitrail {text(vitrail.__version__)}. Everything on this page is in this one file.</footer>"
        f"</main><script>{SCRIPT}</script></body></html>\n"
    )


def wide(label: str, table: str) -> str:
    """A table that may be wider or longer than its place: it scrolls by itself, also by the keys."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">{table}</div>'


def is_ours(content: bytes, generator: str) -> bool:
    """Whether a file is a page of this generator, which may be written anew."""
    return _mark(generator).encode() in content[:MARKED]


def _mark(generator: str) -> str:
    return f'<meta name="generator" content="{generator}">'


def _contents(parts: list[Section]) -> str:
    if len(parts) <= _FEW:
        return ""
    links = "".join(f'<a href="#{part.anchor}">{part.title}</a>' for part in parts)
    return f'<nav aria-label="Parts of this page">{links}</nav>'


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}'"
