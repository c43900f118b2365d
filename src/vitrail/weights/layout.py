"""Between another library's arrays and ours: one entry per tensor, an einops pattern that works both ways."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from einops import rearrange
from torch import Tensor

from vitrail.errors import DataError, notice
from vitrail.weights.checkpoint import State, compare_names


@dataclass(frozen=True)
class Entry:
    """One of our tensors, the arrays it is made of, and the change of axes `theirs -> ours`, if any.

    Several arrays are stacked along a new leading axis before the change.
    """

    ours: str
    theirs: tuple[str, ...]
    pattern: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)

    def read(self, arrays: Sequence[Tensor]) -> Tensor:
        """Their arrays to our tensor."""
        joined = torch.stack(list(arrays)) if len(self.theirs) > 1 else arrays[0]
        return rearrange(joined, self.pattern, **self.sizes) if self.pattern else joined

    def write(self, tensor: Tensor) -> list[Tensor]:
        """Our tensor to their arrays."""
        if not self.pattern:
            return [tensor]
        theirs, ours = self.pattern.split("->")
        joined = rearrange(tensor, f"{ours} -> {theirs}", **self.sizes)
        return list(joined.unbind(0)) if len(self.theirs) > 1 else [joined]


def module(ours: str, theirs: str) -> list[Entry]:
    """The weight and the bias of one module, unchanged but for their names."""
    return [Entry(f"{ours}.{part}", (f"{theirs}.{part}",)) for part in ("weight", "bias")]


def read_entries(
    entries: Sequence[Entry], arrays: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], where: str
) -> State:
    """Translate a whole file; `shapes` are those of our tensors, and every array must fit and be used."""
    compare_names(set(arrays), {name for entry in entries for name in entry.theirs}, where)
    _ensure_covered(entries, set(shapes), where)
    state: State = {}
    for entry in entries:
        wanted = entry.write(torch.empty(shapes[entry.ours], device="meta"))
        for name, example in zip(entry.theirs, wanted, strict=True):
            if arrays[name].shape != example.shape:
                came = tuple(arrays[name].shape)
                raise DataError(f"the array {name!r} has shape {came}", wanted=f"{tuple(example.shape)}", where=where)
        tensor = entry.read([arrays[name] for name in entry.theirs])
        state[entry.ours] = as_float32(tensor, entry.theirs[0], where).contiguous()
    return state


def as_float32(tensor: Tensor, name: str, where: str) -> Tensor:
    """Weights of any precision as float32; counters stay whole numbers."""
    if tensor.is_complex():
        raise DataError(f"the tensor {name!r} holds complex numbers", wanted="real ones", where=where)
    if tensor.dtype == torch.float64:
        notice(f"{where}: weights are stored as float64 and used as float32.")
    return tensor.float() if tensor.is_floating_point() else tensor


def shape_of(arrays: Mapping[str, Tensor], name: str, axes: int, where: str) -> tuple[int, ...]:
    """The shape of an array that must be there and have so many axes."""
    if name not in arrays:
        raise DataError(f"the array {name!r} is missing", where=where)
    if arrays[name].ndim != axes:
        raise DataError(f"the array {name!r} has {arrays[name].ndim} axes", wanted=f"{axes}", where=where)
    if 0 in arrays[name].shape:
        raise DataError(
            f"the array {name!r} has shape {tuple(arrays[name].shape)}", wanted="no empty axis", where=where
        )
    return tuple(arrays[name].shape)


def count_units(names: Iterable[str], prefix: str, where: str) -> tuple[int, ...]:
    """Units per stage of a ResNet in Google's files, which count both from 1."""
    stages = count_numbered(names, prefix, where, first=1)
    return tuple(count_numbered(names, f"{prefix}{stage + 1}/unit", where, first=1) for stage in range(stages))


def count_numbered(names: Iterable[str], prefix: str, where: str, first: int = 0) -> int:
    """How many parts stand under `prefix` and a number; a gap in the numbers is an error."""
    pattern = re.compile(re.escape(prefix) + r"(\d{1,4})[./].+")
    numbers = {int(match[1]) for name in names if (match := pattern.fullmatch(name))}
    for expected, number in enumerate(sorted(numbers), start=first):
        if number != expected:
            raise DataError(f"the part '{prefix}{expected}' is missing", where=where)
    return len(numbers)


def write_entries(entries: Sequence[Entry], state: State) -> dict[str, Tensor]:
    """Translate a whole network; none of its tensors is left behind."""
    _ensure_covered(entries, set(state), "the network")
    return {
        name: array.contiguous()
        for entry in entries
        for name, array in zip(entry.theirs, entry.write(state[entry.ours].detach()), strict=True)
    }


def _ensure_covered(entries: Sequence[Entry], ours: set[str], where: str) -> None:
    """Refuse a table of names that is not about these tensors, each of them once: what it lacks would be lost."""
    for names in ([entry.ours for entry in entries], [name for entry in entries for name in entry.theirs]):
        for name, times in Counter(names).most_common(1):
            if times > 1:
                raise DataError(f"the array {name!r} has {times} places in this layout", wanted="one", where=where)
    compare_names({entry.ours for entry in entries}, ours, f"{where}, names of this layout")
