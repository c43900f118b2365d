"""Words and numbers for people; text from files inside a page is always text, never markup."""

import html
import os

_JOINER = "\u200d"


def text(value: str) -> str:
    """Escape what comes from outside; control characters are shown instead of sent."""
    # The joiner inside emoji counts as unprintable and is harmless.
    shown = "".join(one if one.isprintable() or one == _JOINER else repr(one)[1:-1] for one in value)
    return html.escape(shown, quote=True)


def path(value: str, data: str) -> str:
    """A path, without the data folder when it lies inside, with places where a line may break."""
    inside = value.removeprefix(data.rstrip(os.sep) + os.sep)
    return text(inside).replace("/", "/<wbr>").replace("_", "_<wbr>")


def number(value: int) -> str:
    """A count for people."""
    return f"{value:,}"


def counted(value: int, one: str, many: str | None = None) -> str:
    """A count with its noun."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"
