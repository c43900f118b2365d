"""The frame of a page that needs nothing but itself."""

import base64
import hashlib

import vitrail
from vitrail.data.check.page_style import LOGO
from vitrail.data.check.words import text
from vitrail.report.classes import SORTING
from vitrail.report.style import STYLE


def document(title: str, header: str, body: str, *, generator: str) -> str:
    """The whole page around its parts, which are markup already."""
    # Only this style and this script may act, whatever a class or a file is called.
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(STYLE)}; script-src {_hash(SORTING)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="generator" content="{generator}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head><body><main>"
        f"<header>{LOGO}{header}</header>{body}"
        f"<footer>Made by vitrail {text(vitrail.__version__)}. Everything on this page is in this one file.</footer>"
        f"</main><script>{SORTING}</script></body></html>\n"
    )


def section(anchor: str, title: str, lead: str, body: str) -> str:
    """A part of the page with its heading and what it says first."""
    words = f'<p class="lead">{lead}</p>' if lead else ""
    return f'<section id="{anchor}"><h2>{title}</h2>{words}{body}</section>'


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}'"
