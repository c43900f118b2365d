"""What a person reads when something is wrong: one sentence each for what came, what was wanted, where, and the fix."""

import difflib
import warnings
from collections.abc import Iterable

# More names than this are for `vitrail list`, not for a sentence.
_LISTED = 30


class VitrailError(Exception):
    """A mistake the user can mend; it is shown without a traceback."""

    exit_code = 2
    is_shared = False
    """Whether all processes of a run come to it alike, so that one of them tells it."""

    def __init__(self, came: str, *, wanted: str = "", where: str = "", fix: str = "") -> None:
        self.came, self.wanted, self.where, self.fix = came, wanted, where, fix
        problem = f"{where}: {came}" if where else came
        if wanted:
            whole = problem if problem.endswith("...") else problem.removesuffix(".")
            problem = f"{whole}; wanted {wanted}"
        sentences = [problem, fix] if fix else [problem]
        super().__init__(" ".join(_finished(sentence) for sentence in sentences))


class UsageError(VitrailError):
    """A name, an option or an argument that does not exist or does not fit."""


class DataError(VitrailError):
    """A file that is damaged, missing or not what it claims to be."""

    exit_code = 3


class TooManyPixels(DataError):
    """An image that is too large to decode."""


class DamagedImage(DataError):
    """An image of a known kind whose data is broken, or ends too early."""


class NoMemory(DataError):
    """An image for whose pixels there is no memory now."""


class DiskError(VitrailError):
    """A result that could not be written."""

    exit_code = 5


class Notice(UserWarning):
    """Something the user should know and need not act on."""


def notice(message: str) -> None:
    """Tell the user something: a warning in a library, a line that starts with 'note:' at the command line."""
    warnings.warn(message, Notice, stacklevel=3)


def choose(kind: str, name: object, options: Iterable[str]) -> str:
    """Return `name` when it is one of `options`, else raise an error that suggests the nearest."""
    known = list(options)
    if isinstance(name, str) and name in known:
        return name
    near = difflib.get_close_matches(str(name).lower(), known, n=1, cutoff=0.6)
    more = f", ... ({len(known)} in all)" if len(known) > _LISTED else ""
    hint = f"Did you mean {near[0]!r}?" if near else f"Choose from {', '.join(known[:_LISTED])}{more}."
    raise UsageError(f"Unknown {kind} {name!r}", fix=hint)


def _finished(sentence: str) -> str:
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."
