"""What a person reads when something is wrong: one sentence each for what came, what was wanted, where, and the fix."""

import difflib
import json
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# More names than this are for `vitrail list`, not for a sentence.
_LISTED = 30
# Two characters for private use, which nobody types; between them stands a list as JSON, without any of the two.
_BEGIN, _END = "\U0010fff0", "\U0010fff1"
_MARK = re.compile(f"{_BEGIN}([^{_BEGIN}{_END}]*){_END}")


@dataclass(frozen=True)
class Spelling:
    """How people write settings and commands where they are: at the command line, or in Python."""

    setting: Callable[[str, object], str]
    """Of its name and its value, which is `...` where none was said."""
    command: Callable[[str, Sequence[str], Mapping[str, Any]], str]
    """Of the verb, of what follows it, and of its options."""


def setting(name: str, value: object = ...) -> str:
    """A setting within a message, by its dotted name or as an option of a verb; the edge writes it as people do."""
    return _mark("setting", name, *(() if value is ... else (value,)))


def command(verb: str, *subjects: str, **options: object) -> str:
    """A call of a verb within a message; the edge writes it as people do."""
    return _mark("command", verb, subjects, options)


def also(text: str, **options: object) -> str:
    """A command of a message with further options."""
    match _parts(_MARK.fullmatch(text)):
        case ["command", str(verb), list(subjects), dict(known)]:
            return _mark("command", verb, subjects, {**known, **options})
        case _:
            # Someone wrote it out.
            return " ".join([text, *(typed_option(name, value) for name, value in options.items())])


def spelled(text: str, spelling: Spelling) -> str:
    """A message with its settings and commands as people write them."""
    return _MARK.sub(lambda found: _written(found, spelling), text)


def plain(text: str) -> str:
    """A message with its settings by name, and its commands as they are typed."""
    return spelled(text, PLAIN)


def marked(error: BaseException) -> str:
    """What an error says, for a message in which it is told: there too the edge writes settings as people do."""
    return error.marked if isinstance(error, VitrailError) else str(error)


def typed(verb: str, subjects: Sequence[str], options: Mapping[str, Any]) -> str:
    """A command as it is typed."""
    words = [typed_option(name, value) for name, value in options.items()]
    return " ".join(["vitrail", verb, *map(shlex.quote, subjects), *words])


def typed_option(name: str, value: object = ...) -> str:
    """An option as it is typed, alone or with its value."""
    group, dot, last = name.replace("_", "-").rpartition(".")
    if value is False:
        return f"--{group}{dot}no-{last}"
    values = [] if value is ... or value is True else value if isinstance(value, list | tuple) else [value]
    return " ".join([f"--{group}{dot}{last}", *(shlex.quote(str(one)) for one in values)])


PLAIN = Spelling(setting=lambda name, value: name if value is ... else f"{name}={value}", command=typed)
"""Where there is no edge."""


class VitrailError(Exception):
    """A mistake the user can mend; it is shown without a traceback."""

    exit_code = 2
    is_shared = False
    """Whether all processes of a run come to it alike, so that one of them tells it."""
    folder: Any = None
    """Of the experiment that it came to, where one had begun."""
    run: Any = None
    """What can go on from there, for a call from Python."""

    def __init__(self, came: str, *, wanted: str = "", where: str = "", fix: str = "") -> None:
        self.came, self.wanted, self.where, self.fix = came, wanted, where, fix
        super().__init__()
        self.spell(PLAIN)

    @property
    def marked(self) -> str:
        """What it says, with its settings and commands for an edge to write."""
        return _told(self.came, self.wanted, self.where, self.fix)

    def spell(self, spelling: Spelling) -> None:
        """Say from now on what it says as people write it."""
        parts = (self.came, self.wanted, self.where, self.fix)
        self.args = (_told(*(spelled(part, spelling) for part in parts)),)

    def __reduce__(self) -> Any:
        # Made anew without its constructor, which in some kinds takes something else than a message.
        return _again, (type(self), self.args), dict(self.__dict__)


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


class Stopped(VitrailError):
    """A run that was asked to stop, and can go on."""

    exit_code = 75
    is_shared = True


class Notice(UserWarning):
    """Something the user should know and need not act on."""

    def __init__(self, message: str) -> None:
        super().__init__(plain(message))
        self.marked = message

    def spelled(self, spelling: Spelling) -> str:
        """What it says, as people write it."""
        return spelled(self.marked, spelling)


def notice(message: str) -> None:
    """Tell the user something: a warning in a library, a line that starts with 'note:' at the command line."""
    if sys.version_info >= (3, 12):
        # At the line of whoever called us.
        warnings.warn(Notice(message), stacklevel=2, skip_file_prefixes=(str(Path(__file__).parent),))
    else:
        warnings.warn(Notice(message), stacklevel=3)


def choose(kind: str, name: object, options: Iterable[str]) -> str:
    """Return `name` when it is one of `options`, else raise an error that suggests the nearest."""
    known = list(options)
    if isinstance(name, str) and name in known:
        return name
    near = difflib.get_close_matches(str(name).lower(), known, n=1, cutoff=0.6)
    more = f", ... ({len(known)} in all)" if len(known) > _LISTED else ""
    hint = f"Did you mean {near[0]!r}?" if near else f"Choose from {', '.join(known[:_LISTED])}{more}."
    raise UsageError(f"Unknown {kind} {name!r}", fix=hint)


def _mark(*parts: object) -> str:
    return f"{_BEGIN}{json.dumps(parts, default=str)}{_END}"


def _parts(found: re.Match[str] | None) -> Any:
    """What a mark holds; nothing where someone else used its characters, as in the name of a file."""
    try:
        return json.loads(found[1]) if found else None
    except (ValueError, RecursionError):
        return None


def _written(found: re.Match[str], spelling: Spelling) -> str:
    match _parts(found):
        case ["setting", str(name)]:
            return spelling.setting(name, ...)
        case ["setting", str(name), value]:
            return spelling.setting(name, value)
        case ["command", str(verb), list(subjects), dict(options)]:
            return spelling.command(verb, list(map(str, subjects)), options)
        case _:
            return found[0]


def _told(came: str, wanted: str, where: str, fix: str) -> str:
    problem = f"{where}: {came}" if where else came
    if wanted:
        whole = problem if problem.endswith("...") else problem.removesuffix(".")
        problem = f"{whole}; wanted {wanted}"
    sentences = [problem, fix] if fix else [problem]
    return " ".join(_finished(sentence) for sentence in sentences)


def _again(kind: type[VitrailError], args: tuple[Any, ...]) -> VitrailError:
    return kind.__new__(kind, *args)


def _finished(sentence: str) -> str:
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."
