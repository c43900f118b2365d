"""Small pictures in a terminal: two pixels in a letter where it has colours, shades of a letter where it has none."""

import numpy as np
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.text import Text

Picture = np.ndarray
"""Numbers from 0 to 1, (height, width); nothing is drawn where one is not a number."""
Colours = tuple[tuple[int, int, int], ...]
"""What the numbers from 0 to 1 look like, at equal distances."""

GREY: Colours = ((24, 26, 32), (245, 245, 240))
HEAT: Colours = ((18, 22, 58), (112, 32, 110), (215, 66, 60), (250, 170, 50), (252, 244, 170))
_SHADES, _LETTERS = "·░▒▓█", ".:+*#"


def has_unicode(out: Console) -> bool:
    """Whether block letters can be written."""
    return out.encoding.lower().startswith("utf")


def has_halves(out: Console) -> bool:
    """Whether a letter can hold two pixels, of any colour each."""
    return out.color_system is not None and has_unicode(out)


def letters_wide(out: Console, picture: Picture) -> int:
    """How wide the picture will be."""
    return picture.shape[1] if has_halves(out) else 2 * picture.shape[1]


def draw(out: Console, picture: Picture, colours: Colours = GREY) -> Text:
    """The picture as lines of text, with square pixels."""
    lines = (
        _halves(picture, colours) if has_halves(out) else _shades(picture, _SHADES if has_unicode(out) else _LETTERS)
    )
    return Text("\n", no_wrap=True).join(lines)


def enlarged(out: Console, picture: Picture) -> Picture:
    """The picture twice as large where pixels are half a letter high, so that it is as large as in shades."""
    return picture.repeat(2, axis=0).repeat(2, axis=1) if has_halves(out) else picture


def cut(picture: Picture, patch: tuple[int, int]) -> Picture:
    """The picture with its patches set apart by the width of a pixel."""
    height, width = picture.shape
    rows = np.insert(picture, range(patch[0], height, patch[0]), np.nan, axis=0)
    return np.insert(rows, range(patch[1], width, patch[1]), np.nan, axis=1)


def _halves(picture: Picture, colours: Colours) -> list[Text]:
    height, width = picture.shape
    even = np.full((height + height % 2, width), np.nan)
    even[:height] = picture
    return [
        Text.assemble(
            *(_pair(_colour(a, colours), _colour(b, colours)) for a, b in zip(above, below, strict=True)),
        )
        for above, below in zip(even[::2], even[1::2], strict=True)
    ]


def _pair(above: Color | None, below: Color | None) -> tuple[str, Style]:
    # A full square needs no letter, and fonts differ in how they draw halves.
    if above == below:
        return " ", Style(bgcolor=above)
    return ("▄", Style(color=below)) if above is None else ("▀", Style(color=above, bgcolor=below))


def _colour(value: float, colours: Colours) -> Color | None:
    if np.isnan(value):
        return None
    places = np.linspace(0, 1, len(colours))
    return Color.from_rgb(*(round(float(np.interp(value, places, channel))) for channel in zip(*colours, strict=True)))


def _shades(picture: Picture, letters: str) -> list[Text]:
    def letter(value: float) -> str:
        return " " if np.isnan(value) else letters[min(int(value * len(letters)), len(letters) - 1)]

    return [Text("".join(2 * letter(value) for value in row)) for row in picture]
