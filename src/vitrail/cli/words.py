"""Words of verbs that tyro reads: positional ones anywhere, and values that do not fit told in a sentence."""

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from vitrail.config.spelling import SHORT
from vitrail.errors import UsageError

SHORT_NAMES = {f"--{short.replace('_', '-')}": f"--{name.replace('_', '-')}" for short, name in SHORT.items()}


def in_front(kind: Any, words: Sequence[str], *, others: float = 1) -> list[str]:
    """The words with those that belong to no option first, so that options may stand anywhere.

    `kind` is what tyro makes options of, a dataclass or a function: its types say how many words each option takes.
    Options that it does not know take `others`. Behind a bare -- there are none.
    """
    takes = {"-h": (0, False), "--help": (0, False), **_takes(kind)}
    free, rest, waiting = [], [], list(words)
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            free += waiting
            break
        if not is_option(word):
            free.append(word)
            continue
        rest.append(word)
        most, whole_numbers = takes.get(word.replace("_", "-"), (others, False)) if "=" not in word else (0, False)
        while waiting and most and not is_option(waiting[0]):
            if whole_numbers and not re.fullmatch(_WHOLE_NUMBER, waiting[0]):
                break
            rest.append(waiting.pop(0))
            most -= 1
    return [*rest, "--", *free] if any(map(is_option, free)) else [*free, *rest]


_WHOLE_NUMBER = r"-?\d+"


def is_option(word: str) -> bool:
    """Whether a word is one, and no negative number."""
    return word.startswith("-") and not re.fullmatch(r"-|-[\d.]+(e[-+]?\d+)?", word, re.IGNORECASE)


def _takes(kind: Any) -> dict[str, tuple[float, bool]]:
    """How many words each option takes at most, and whether they are whole numbers."""
    found: dict[str, tuple[float, bool]] = {}
    for name, hint in get_type_hints(kind).items():
        option = "--" + name.replace("_", "-")
        if is_dataclass(hint):
            inside = _takes(hint)
            found |= inside | {option + "." + other.removeprefix("--"): takes for other, takes in inside.items()}
        elif hint is bool:
            found |= {option: (0, False), option.replace("--", "--no-", 1): (0, False)}
        else:
            tuples = [one for one in (hint, *get_args(hint)) if get_origin(one) is tuple]
            inner = [one for whole in tuples for one in get_args(whole)]
            most = math.inf if ... in inner else max(1, len(inner))
            found[option] = most, bool(inner) and set(inner) <= {int, ...}
    return found


def told_value(name: str, metavar: str, words: Sequence[str], most: int | None = None) -> UsageError:
    """What was typed behind an option, which takes so many words, and what is wanted there, in words and not in types.

    Of an option that was typed several times the last counts.
    """
    shorts = [short for short, long in SHORT_NAMES.items() if long == name]
    spelled = [(word.partition("=")[0].replace("_", "-"), place) for place, word in enumerate(words)]
    option, place = next(((word, at) for word, at in reversed(spelled) if word in (name, *shorts)), (name, None))
    came: list[str] = []
    if place is not None:
        _, equals, value = words[place].partition("=")
        rest = [value] if equals else words[place + 1 :]
        came = list(itertools.takewhile(lambda word: not word.startswith("--"), rest))[:most]
    is_what = f" is {' '.join(came)!r}" if came else " has a value that cannot be read"
    return UsageError(f"{option}{is_what}", wanted=_in_words(metavar))


_KINDS = {"INT": "a whole number", "FLOAT": "a number", "PATH": "a path", "STR": "a text", "None": "None"}
_SEVERAL = {"INT": "whole numbers", "FLOAT": "numbers", "PATH": "paths", "STR": "texts"}


def _in_words(metavar: str) -> str:
    """What tyro writes for a type, for people: "{None}|INT" is a whole number or None."""
    parts = [part.strip("{} ") for part in metavar.replace("[", "").replace("]", "").split("|")]
    # What stands for nothing is named last.
    return " or ".join(map(_kind_in_words, sorted(parts, key=lambda part: part == "None")))


def _kind_in_words(kind: str) -> str:
    words = kind.split()
    if len(words) > 1 and len(set(words) - {"..."}) == 1 and words[0] in _SEVERAL:
        return f"{'' if '...' in words else f'{len(words)} '}{_SEVERAL[words[0]]}"
    return _KINDS.get(kind, kind.replace(",", " or "))
