"""Which output of a model is which class of the data: names decide, and numbers only where there are no names."""

import copy
import unicodedata
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vitrail.data import Source
from vitrail.data.sources.class_names import DATA_ORDER
from vitrail.data.sources.classes import renumbered, with_classes
from vitrail.data.sources.named_rows import NAMED
from vitrail.errors import DataError, UsageError, command, notice, setting
from vitrail.zoo.imagenet import imagenet_classes, imagenet_ids, imagenet_namesakes, imagenet_numbers, is_imagenet

By = Literal["name", "number", "order"]
"""By names; by numbers that both sides have; or by their places in two lists that nobody said to be in one order."""

_FEW = 5
_HOW = f"the outputs of the model in their order, one per line, with {setting('classes', 'FILE')}."
_IMAGENET = f"If it was trained on ImageNet, {setting('classes', 'imagenet')} names its outputs."


@dataclass(frozen=True)
class Matched:
    """Images whose labels are outputs of a model."""

    source: Source
    """Its classes are the names of the outputs."""
    by: By


def match_classes(
    source: Source,
    labels: tuple[str, ...] | None,
    outputs: int,
    model: str,
    *,
    is_said: bool = False,
    is_in_order: bool = False,
) -> Matched:
    """Number the labels of a source by the outputs of a model; `labels` are their names, where they are known.

    A user may have said these names, or that the outputs are the classes of the data in their order.
    """
    if not outputs:
        raise UsageError(
            "the model has no head",
            wanted="one that was trained to classify",
            where=model,
            fix=f"`{command('finetune', model, data='FOLDER')}` teaches it classes; "
            f"`{command('fewshot', model, data='FOLDER')}` says how good its features are.",
        )
    if labels is None or is_in_order:
        return _without_names(source, outputs, model, is_in_order)
    if len(labels) != outputs:
        raise DataError(f"there are {len(labels):,} class names for {outputs:,} outputs", where=model)
    labels = tuple(unicodedata.normalize("NFC", name) for name in labels)
    present = [source.classes[int(number)] for number in np.flatnonzero(source.labels.counts())]
    if is_imagenet(labels):
        numbers = _imagenet_numbers(source, present, is_said)
        _ensure_known(source, present, numbers, labels)
        return Matched(renumbered(source, labels, [numbers.get(name, -1) for name in source.classes]), "name")
    if doubled := [name for name in present if labels.count(name) > 1]:
        raise DataError(
            f"the model has several outputs called {_few(doubled)}",
            wanted="a name for each, to know which is meant",
            where=model,
            fix=f"Name {_HOW}",
        )
    if source.classes == imagenet_ids() and len(labels) == len(present) and not set(labels) & set(present):
        notice(
            f"The data has ImageNet's WordNet numbers and the model other names: whether they are in the same order "
            f"is not known. {_IMAGENET}"
        )
        return Matched(_renamed(source, labels), "order")
    _ensure_known(source, present, set(labels), labels)
    return Matched(with_classes(source, labels), "name")


def _ensure_known(source: Source, present: list[str], known: Container[str], labels: tuple[str, ...]) -> None:
    strangers = [name for name in present if name not in known]
    if not strangers:
        return
    raise DataError(
        f"{len(strangers):,} of the {len(present):,} classes of the data are unknown to the model: {_few(strangers)}",
        wanted=f"classes among its {len(labels):,}: {_few(labels)}",
        where=f"{source.name}, {source.split}",
        fix=f"Rename them in the data, use a model that knows them, or name {_HOW}",
    )


def _without_names(source: Source, outputs: int, model: str, is_in_order: bool) -> Matched:
    """Match by number where the numbers are known: said, written as names, or those of a data set that has its own."""
    classes = source.classes
    has_imagenet = outputs == len(imagenet_ids()) and all(map(imagenet_numbers, classes))
    if len(classes) != outputs:
        raise DataError(
            f"the data has {len(classes):,} classes and the model {outputs:,}, whose names are not known",
            wanted="as many, or names",
            where=f"{source.name}, {source.split}",
            fix=_IMAGENET if has_imagenet else f"Name {_HOW}",
        )
    if is_in_order:
        return Matched(source, "number")
    if (numbers := _written_numbers(classes, outputs)) is not None:
        return Matched(renumbered(source, tuple(map(str, range(outputs))), numbers), "number")
    unknown = f"{model}: the names of its {outputs:,} classes are not known"
    if classes == imagenet_ids() or source.name in NAMED or source.name.startswith(("hf:", "vtab:")):
        notice(f"{unknown}, so they are taken to be those of the data, in their order: {_few(classes)}.")
        return Matched(source, "number")
    notice(
        f"{unknown}, and neither is whether they are in the order of the data's ({_few(classes)}), so what is right "
        f"cannot be told. {f'{_IMAGENET} ' if has_imagenet else ''}If they are in this order, say "
        f"{setting('classes', DATA_ORDER)}; else name {_HOW}"
    )
    return Matched(source, "order")


def _imagenet_numbers(source: Source, present: list[str], is_said: bool) -> dict[str, int]:
    """Which of ImageNet's classes each class of the data is; what is none of them is left out.

    Class folders may be called by class number, as some copies of ImageNet are, where all are there or a user said
    that they are ImageNet's; else by WordNet number or any name of WordNet's.
    """
    outputs = len(imagenet_ids())
    written = _written_numbers(source.classes, outputs)
    if written is not None and (is_said or len(written) == outputs):
        notice("The classes of the data are numbers: they are taken to be ImageNet's class numbers, from 0 to 999.")
        return dict(zip(source.classes, written, strict=True))
    may_be = {name: imagenet_numbers(name) for name in source.classes}
    taken: set[int] = set()
    while more := {next(iter(one)) for one in may_be.values() if len(one) == 1} - taken:
        # A name of two classes is the one that no other name is.
        taken |= more
        may_be = {name: (one - more) or one if len(one) > 1 else one for name, one in may_be.items()}
    for name in present:
        # Capitals alone say little: whoever writes "Cardigan" may mean what he wears.
        cased = {number for number in imagenet_namesakes(name) - taken if _differs_by_case(number, may_be[name])}
        if len(either := may_be[name] | cased) > 1:
            raise DataError(
                f"the class {name!r} may be {' or '.join(map(_imagenet_class, sorted(either)))} of ImageNet",
                wanted="a name of one class",
                where=f"{source.name}, {source.split}",
                fix="Call it by the WordNet number.",
            )
    found = {name: min(one) for name, one in may_be.items() if one}
    _tell_imagenet({name: found[name] for name in present if name in found}, taken)
    return found


def _differs_by_case(number: int, others: frozenset[int]) -> bool:
    shown = imagenet_classes()
    return any(number != other and shown[number].casefold() == shown[other].casefold() for other in others)


def _imagenet_class(number: int) -> str:
    return f"{imagenet_ids()[number]} ({imagenet_classes()[number]})"


def _tell_imagenet(numbers: dict[str, int], taken: set[int]) -> None:
    """Say which classes of the data are one of ImageNet's, and which names were taken for one of several."""
    groups = [
        f"{_few([name for name in numbers if numbers[name] == number])} are {_imagenet_class(number)}"
        for number, names in Counter(numbers.values()).items()
        if names > 1
    ]
    if groups:
        notice(f"Several classes of the data are one of ImageNet, and are counted as one: {_some(groups)}.")
    chosen = [
        f"{name!r} for {_imagenet_class(number)}"
        for name, number in numbers.items()
        if (others := imagenet_namesakes(name) - {number})
        # Clear where each of those is there under a name of its own.
        and (others - taken or name.casefold() != imagenet_classes()[number].casefold())
    ]
    if chosen:
        notice(f"Names of several classes of ImageNet are taken: {_some(chosen)}. The WordNet number is always clear.")


def _written_numbers(classes: tuple[str, ...], outputs: int) -> list[int] | None:
    """The numbers that class names are, where each is one of an output; sorted as text, 10 stands before 2."""
    if not all(name.isascii() and name.isdecimal() and len(name) < 10 for name in classes):
        return None
    numbers = [int(name) for name in classes]
    return numbers if len(set(numbers)) == len(numbers) and max(numbers, default=0) < outputs else None


def _renamed(source: Source, names: tuple[str, ...]) -> Source:
    """The same labels under other class names."""
    other = copy.copy(source)
    other.classes = names
    return other


def _some(told: list[str]) -> str:
    return "; ".join(told[:_FEW]) + (f"; and {len(told) - _FEW} more" if len(told) > _FEW else "")


def _few(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(map(repr, names[:_FEW])) + (", ..." if len(names) > _FEW else "")
