"""Names of splits: what one source calls "validation" another calls "val"."""

from collections.abc import Iterable

from vitrail.errors import DataError

SPLITS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
"""Each split and the names that people give to its folder."""

_CANONICAL = {alias: split for split, aliases in SPLITS.items() for alias in aliases}


def canonical_split(name: str) -> str:
    """train, val or test for any of their usual names; any other name stays what it is."""
    return _CANONICAL.get(name.strip().casefold(), name.strip())


class MissingSplit(DataError):
    """A source that does not have the split it was asked for."""


def missing_split(split: str, there: Iterable[str], where: str) -> MissingSplit:
    """What to raise for a split that a source does not have."""
    known = list(there)
    held_out = "Take a part that is held out, such as 'train[90%:]'."
    return MissingSplit(
        f"there is no {split!r} part; it has {', '.join(known)}",
        where=where,
        fix=held_out if "train" in known else f"Ask for {known[0]!r}.",
    )
