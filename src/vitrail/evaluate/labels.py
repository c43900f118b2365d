"""Which output of a model is which class of the data: names decide, and numbers only where there are no names."""

import copy
import re
import shlex
import unicodedata
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vitrail.data import Source
from vitrail.data.sources.classes import with_classes
from vitrail.errors import DataError, UsageError, notice

_WORDNET = re.compile(r"n\d{8}")
_FEW = 5
_HOW = "the outputs of the model in their order, one per line, with --classes FILE."


@dataclass(frozen=True)
class Matched:
    """Images whose labels are outputs of a model."""

    source: Source
    """Its classes are the names of the outputs."""
    by: Literal["name", "number"]


def match_classes(source: Source, labels: tuple[str, ...] | None, outputs: int, model: str) -> Matched:
    """Number the labels of a source by the outputs of a model; `labels` are their names, where they are known."""
    if not outputs:
        name = shlex.quote(model)
        raise UsageError(
            "the model has no head",
            wanted="one that was trained to classify",
            where=model,
            fix=f"`vitrail finetune {name} --data FOLDER` teaches it classes; `vitrail fewshot {name} --data FOLDER` "
            "says how good its features are.",
        )
    if labels is None:
        return Matched(_by_number(source, outputs, model), "number")
    if len(labels) != outputs:
        raise DataError(f"there are {len(labels):,} class names for {outputs:,} outputs", where=model)
    labels = tuple(unicodedata.normalize("NFC", name) for name in labels)
    present = [source.classes[int(number)] for number in np.flatnonzero(source.labels.counts())]
    known = set(labels)
    strangers = [name for name in present if name not in known]
    if doubled := [name for name in present if labels.count(name) > 1]:
        raise DataError(
            f"the model has several outputs called {_few(doubled)}",
            wanted="a name for each, to know which is meant",
            where=model,
            fix=f"Name {_HOW}",
        )
    if not strangers:
        return Matched(with_classes(source, labels), "name")
    if _is_imagenet(source.classes) and len(labels) == len(source.classes) == len(strangers):
        notice(
            "The data has ImageNet's WordNet numbers and the model other names: they are matched by number, in the "
            "order of the WordNet numbers."
        )
        return Matched(_renamed(source, labels), "number")
    raise DataError(
        f"{len(strangers):,} of the {len(present):,} classes of the data are unknown to the model: {_few(strangers)}",
        wanted=f"classes among its {len(labels):,}: {_few(labels)}",
        where=f"{source.name}, {source.split}",
        fix=f"Rename them in the data, use a model that knows them, or name {_HOW}",
    )


def _by_number(source: Source, outputs: int, model: str) -> Source:
    if len(source.classes) != outputs:
        raise DataError(
            f"the data has {len(source.classes):,} classes and the model {outputs:,}, whose names are not known",
            wanted="as many, or names",
            where=f"{source.name}, {source.split}",
            fix=f"Name {_HOW}",
        )
    notice(
        f"{model}: the names of its {outputs:,} classes are not known, so they are taken to be those of the data, in "
        f"their order: {_few(source.classes)}."
    )
    return source


def _is_imagenet(classes: tuple[str, ...]) -> bool:
    """A thousand WordNet numbers in order are ImageNet's classes in their order."""
    return len(classes) == 1000 and all(map(_WORDNET.fullmatch, classes)) and list(classes) == sorted(classes)


def _renamed(source: Source, names: tuple[str, ...]) -> Source:
    """The same labels under other class names."""
    other = copy.copy(source)
    other.classes = names
    return other


def _few(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(map(repr, names[:_FEW])) + (", ..." if len(names) > _FEW else "")
