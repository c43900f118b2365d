"""What may stand behind the question mark: each option reads itself, checks itself, and describes itself."""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vitrail.serving.http.problems import Problem

Facts = Mapping[str, Any]

# A grid has at most so many patches; a longer list repeats itself.
_LONGEST_LIST = 65_536
_MOST_DIGITS = 9


class Option(Protocol):
    """One name in a query."""

    @property
    def name(self) -> str: ...
    @property
    def about(self) -> str: ...
    @property
    def is_required(self) -> bool: ...

    def read(self, text: str, facts: Facts) -> Any:
        """The value, or the reason why it is none."""
        ...

    def absent(self, facts: Facts) -> Any:
        """The value of one that was not given."""
        ...

    def schema(self, facts: Facts | None) -> dict[str, Any]:
        """Its values, for the OpenAPI document; bounds that the model sets are there once it is known."""
        ...


@dataclass(frozen=True)
class Number:
    """A whole number between bounds, the upper one set by the model."""

    name: str
    about: str
    low: int
    high: Callable[[Facts], int]
    default: int | None = None
    is_required: bool = False

    def read(self, text: str, facts: Facts) -> int:
        high = self.high(facts)
        value = _whole(text)
        if value is None or not self.low <= value <= high:
            raise _wrong(self.name, text, f"a whole number from {self.low} to {high}")
        return value

    def absent(self, facts: Facts) -> int | None:
        return None if self.default is None else min(self.default, self.high(facts))

    def schema(self, facts: Facts | None) -> dict[str, Any]:
        bounds: dict[str, Any] = {"type": "integer", "minimum": self.low}
        if facts is not None:
            bounds["maximum"] = self.high(facts)
        if self.default is not None:
            bounds["default"] = self.default if facts is None else min(self.default, self.high(facts))
        return bounds


@dataclass(frozen=True)
class Switch:
    """Off, or on with 1."""

    name: str
    about: str
    is_required: bool = False

    def read(self, text: str, facts: Facts) -> bool:
        if text not in ("0", "1"):
            raise _wrong(self.name, text, "0 or 1")
        return text == "1"

    def absent(self, facts: Facts) -> bool:
        return False

    def schema(self, facts: Facts | None) -> dict[str, Any]:
        return {"type": "integer", "enum": [0, 1], "default": 0}


@dataclass(frozen=True)
class Names:
    """Some of a few names, separated by commas; those that the network can, if none is named."""

    name: str
    about: str
    choices: Mapping[str, str | None]
    """Each name, and what the network must be able to do for it."""
    is_required: bool = False

    def read(self, text: str, facts: Facts) -> list[str]:
        found = text.split(",")
        for name in found:
            if name not in self.choices:
                raise _wrong(self.name, name, f"names out of {', '.join(self.choices)}, separated by commas")
            ensure_can(facts, self.choices[name], f"{self.name}={name}")
        return [name for name in self.choices if name in found]

    def absent(self, facts: Facts) -> list[str]:
        return [name for name, ability in self.choices.items() if can(facts, ability)]

    def schema(self, facts: Facts | None) -> dict[str, Any]:
        return {"type": "array", "minItems": 1, "items": {"type": "string", "enum": list(self.choices)}}


@dataclass(frozen=True)
class Numbers:
    """Whole numbers from 0, separated by commas; there may be none."""

    name: str
    about: str
    high: Callable[[Facts], int]
    is_required: bool = True

    def read(self, text: str, facts: Facts) -> list[int]:
        high = self.high(facts)
        if text.count(",") >= _LONGEST_LIST:
            raise _wrong(self.name, text, f"at most {_LONGEST_LIST:,} numbers")
        found: set[int] = set()
        for part in text.split(",") if text else ():
            value = _whole(part)
            if value is None or value > high:
                raise _wrong(self.name, part, f"whole numbers from 0 to {high}, separated by commas")
            found.add(value)
        return sorted(found)

    def absent(self, facts: Facts) -> list[int]:
        return []

    def schema(self, facts: Facts | None) -> dict[str, Any]:
        bounds: dict[str, Any] = {"type": "integer", "minimum": 0}
        if facts is not None:
            bounds["maximum"] = self.high(facts)
        return {"type": "array", "items": bounds}


def read_options(given: Iterable[tuple[str, str]], known: Sequence[Option], facts: Facts) -> dict[str, Any]:
    """The options of a request; what is unknown, twice there or missing is refused with what was wanted."""
    by_name = {option.name: option for option in known}
    found: dict[str, Any] = {}
    for name, text in given:
        if name not in by_name:
            raise Problem(400, "bad_option", _unknown(name, list(by_name)))
        if name in found:
            raise Problem(400, "bad_option", f"The option {name} is given twice; wanted once.")
        found[name] = by_name[name].read(text, facts)
    for name, option in by_name.items():
        if name not in found:
            if option.is_required:
                raise Problem(400, "bad_option", f"The option {name} is missing; wanted {option.about}.")
            found[name] = option.absent(facts)
    return found


def can(facts: Facts, ability: str | None) -> bool:
    """Whether a network has what a look needs."""
    return ability is None or bool(facts["can"].get(ability))


def ensure_can(facts: Facts, ability: str | None, asked: str) -> None:
    """Refuse what this network does not have."""
    if not can(facts, ability):
        able = ", ".join(name for name, is_able in facts["can"].items() if is_able)
        message = f"{asked} is not available for this model ({facts.get('network')}); it can do: {able or 'nothing'}."
        raise Problem(404, "not_available", message)


def _whole(text: str) -> int | None:
    """Plain digits only: no signs, blanks, underscores or digits of other scripts."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def _wrong(name: str, text: str, wanted: str) -> Problem:
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return Problem(400, "bad_option", f"The option {name} is {shown!r}; wanted {wanted}.")


def _unknown(name: str, known: list[str]) -> str:
    shown = name if len(name) <= 60 else f"{name[:57]}..."
    if not known:
        return f"Unknown option {shown!r}; wanted none."
    near = difflib.get_close_matches(name[:60].lower(), known, n=1, cutoff=0.6)
    hint = f"Did you mean {near[0]!r}?" if near else f"Choose from {', '.join(known)}."
    return f"Unknown option {shown!r}. {hint}"
