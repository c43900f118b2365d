"""Which letters the installed fonts can draw: a name in a PNG is drawn, or told by its number."""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from matplotlib.font_manager import fontManager, get_font

FIRST_FONT = "DejaVu Sans"
"""It comes with matplotlib."""

_LONGEST = 28
_MOST_FONTS = 400
_NO_LETTER = 0x10FFFD


@dataclass(frozen=True)
class Naming:
    """What stands for a class in a drawing."""

    labels: Mapping[int, str]
    """Names as they are; a class that is missing here has none."""
    only_drawable: bool
    """Whether a name with a letter that no font has becomes its number, as in a PNG; SVG keeps it as text."""

    def __call__(self, number: int) -> str:
        """The name, shortened where it is long, or the number of the class."""
        name = one_line(self.labels.get(number, ""))
        if not name or (self.only_drawable and not is_drawable(name)):
            return f"class {number}"
        return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def one_line(name: str) -> str:
    """A name without new lines and control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in name).strip()


def is_drawable(text: str) -> bool:
    """Whether an installed font has every letter."""
    return all(letter.isspace() or font_of(letter) for letter in text)


def font_families(texts: Iterable[str]) -> list[str]:
    """The fonts that draw these texts together: ours first, then whatever has the letters that it lacks."""
    found = [FIRST_FONT]
    for letter in sorted({letter for text in texts for letter in text if not letter.isspace()}):
        family = font_of(letter)
        if family and family not in found:
            found.append(family)
    return found


@functools.cache
def font_of(letter: str) -> str | None:
    """The family of an installed font that draws this letter; none when no font does."""
    return next((family for family, path in _fonts() if _draws(path, ord(letter))), None)


@functools.cache
def _fonts() -> list[tuple[str, str]]:
    """Families and files, the first font before all others and plain faces only."""
    plain = {
        entry.name: entry.fname
        for entry in sorted(fontManager.ttflist, key=lambda entry: entry.fname)
        if entry.style == "normal" and str(entry.weight) in ("400", "normal", "regular", "book")
    }
    names = sorted(plain, key=lambda name: (name != FIRST_FONT, name))
    return [(name, plain[name]) for name in names[:_MOST_FONTS]]


@functools.cache
def _letters(path: str) -> frozenset[int]:
    try:
        found = frozenset(get_font(path).get_charmap())
    except Exception:
        # A font that cannot be opened draws nothing; FreeType's complaints come as several kinds of errors.
        return frozenset()
    # A font that claims what is no letter of any script draws a box for all of them.
    return frozenset() if _NO_LETTER in found else found


def _draws(path: str, code: int) -> bool:
    """Whether there is a glyph, and something is seen of it: fonts of coloured bitmaps leave a blank."""
    if code not in _letters(path):
        return False
    try:
        glyph = get_font(path).load_char(code)
    except Exception:
        return False
    return glyph.width > 0 and glyph.height > 0
