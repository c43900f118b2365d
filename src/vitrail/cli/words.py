"""What people type, before it is parsed: words that belong to no option, and short names of long options."""

import itertools
import math
import os
import re
from collections.abc import Sequence
from dataclasses import is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from vitrail.errors import UsageError

_SHORT = {
    "--data-root": "--root",
    "--batch-size": "--train.batch-size",
    "--compile": "--train.compile",
    "--no-compile": "--train.no-compile",
    "--deterministic": "--train.deterministic",
    "--epochs": "--train.epochs",
    "--freeze": "--optim.freeze",
    "--lr": "--optim.lr",
    "--micro-batch": "--train.micro-batch",
    "--precision": "--train.precision",
    "--seed": "--train.seed",
    "--steps": "--train.steps",
    "--time-limit": "--train.time-limit",
}
SHORT_NAMES = "Short names: " + ", ".join(f"{short} for {long}" for short, long in _SHORT.items()) + "."


def positional(kind: Any, words: Sequence[str]) -> tuple[str | None, list[str]]:
    """The first word, or the first that belongs to no option of `kind`, and the rest."""
    if words and words[0].startswith("-"):
        words = in_front(kind, words, others=math.inf)
    if words and not words[0].startswith("-"):
        return words[0], list(words[1:])
    return None, list(words)


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
        if not _is_option(word):
            free.append(word)
            continue
        rest.append(word)
        most, whole_numbers = takes.get(word.replace("_", "-"), (others, False)) if "=" not in word else (0, False)
        while waiting and most and not _is_option(waiting[0]):
            if whole_numbers and not re.fullmatch(_WHOLE_NUMBER, waiting[0]):
                break
            rest.append(waiting.pop(0))
            most -= 1
    return [*rest, "--", *free] if any(map(_is_option, free)) else [*free, *rest]


_WHOLE_NUMBER = r"-?\d+"


def _is_option(word: str) -> bool:
    return word.startswith("-") and not re.fullmatch(r"-|-[\d.]+", word)


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


def is_resume(words: Sequence[str]) -> bool:
    """Whether a run is to go on, and none begun."""
    return any(word == "--resume" or word.startswith("--resume=") for word in words)


def with_short_names(words: Sequence[str]) -> list[str]:
    """The words with every short name written out and hyphens in names; `--lr=0.1` is split into two words."""
    found = []
    for word in words:
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            name = name.replace("_", "-")
            found += [_SHORT.get(name, name), *([value] if equals else [])]
        else:
            found.append(word)
    return found


_DERIVED = {
    "--schedule.lr": "--optim.lr is what it is taken from",
    "--schedule.steps": "--train.steps or --train.epochs is what it is taken from",
    "--model.num-classes": "the data has as many as it has",
}


_OF_A_RESUME = ("--micro-batch", "--workers", "--root", "--device", "--allow-changed", "--track")
_SEVERAL_PROCESSES = ("--processes", "--parallel")


def refuse_changes(words: Sequence[str], *, in_processes: bool = True) -> None:
    """A run that goes on keeps its config: say so, instead of calling its options unknown.

    `in_processes` says whether the command knows how to go on in several processes.
    """
    known = (*_SEVERAL_PROCESSES, *_OF_A_RESUME) if in_processes else _OF_A_RESUME
    for word in words:
        name = word.partition("=")[0].replace("_", "-")
        if word.startswith("--") and name not in (*known, "--resume", "--help"):
            if name in _SEVERAL_PROCESSES:
                raise UsageError(f"{name} is given, and this runs in one process", fix="Leave it out.")
            raise UsageError(
                f"{name} cannot change a run that goes on",
                wanted=f"one of {', '.join(known)} beside --resume",
                fix="Begin another from its weights with `vitrail finetune RUN`, or edit its config.json and add "
                "--allow-changed.",
            )


def refuse_derived(words: Sequence[str]) -> None:
    """Refuse options whose value is computed, instead of accepting and forgetting them."""
    for option, reason in _DERIVED.items():
        if option in words:
            raise UsageError(f"{option} cannot be set: {reason}")


# Bytes; what is written beside a folder has longer names, and most disks take 255.
_LONGEST_NAME = 200
_DEVICES = {"con", "prn", "aux", "nul", *(f"{kind}{number}" for kind in ("com", "lpt") for number in range(1, 10))}


def ensure_plain_name(name: str | None) -> None:
    """Refuse a name that is no plain name of a folder: --out says where it lies, and other systems may have it too."""
    if name is None:
        return
    is_plain = bool(name) and name.isprintable() and not set("/\\") & set(name)
    is_plain = is_plain and not name.startswith((".", "-", " ")) and not name.endswith((".", " "))
    if not is_plain or name.split(".")[0].lower() in _DEVICES:
        raise UsageError(
            f"--name is {name!r}",
            wanted="the plain name of one folder on any system: no / or \\, no dot at its ends, no device such as con",
            fix="--out says in which folder it lies.",
        )
    if len(os.fsencode(name)) > _LONGEST_NAME:
        raise UsageError(f"--name has {len(os.fsencode(name))} bytes", wanted=f"at most {_LONGEST_NAME}")


def told_value(name: str, metavar: str, words: Sequence[str], most: int | None = None) -> UsageError:
    """What was typed behind an option, which takes so many words, and what is wanted there, in words and not in types.

    Of an option that was typed several times the last counts.
    """
    shorts = [short for short, long in _SHORT.items() if long == name]
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


def typed_value(option: str, words: Sequence[str]) -> str | None:
    """What stands behind an option, the last time it was typed, before all words are read; none where it was not."""
    return next((value for word, value in reversed(list(itertools.pairwise(words))) if word == option), None)


def is_given(option: str, words: Sequence[str]) -> bool:
    """Whether an option was typed; the sign of a switch does not matter."""
    head, _, tail = option.rpartition(".")
    negative = f"{head}.no-{tail}" if head else option.replace("--", "--no-", 1)
    return option in words or negative in words
