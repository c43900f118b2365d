"""ReaL labels: what people say is on ImageNet's validation images (Beyer et al. 2020, "Are we done with ImageNet?").

Each image has a set of classes. A first guess is right when it is in the set; images whose set is empty are skipped
and counted.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitrail.data import Source
from vitrail.errors import DataError, UsageError, notice, setting
from vitrail.evaluation.metrics import Share, share_of

_IMAGES = 50_000
_NUMBER = re.compile(r"ILSVRC2012_val_(\d{8})")
_EXAMPLE = "ILSVRC2012_val_00000001.JPEG"
# The sets hold the original label of about nine in ten images.
_LEAST_AGREEMENT = 0.5


@dataclass(frozen=True)
class RealLabels:
    """`real.json`: class numbers of each validation image, in the order of the file names."""

    path: str
    digest: str
    """Of the file."""
    sets: tuple[frozenset[int], ...]


@dataclass(frozen=True, kw_only=True)
class RealResult:
    """Accuracy by ReaL labels."""

    file: str
    digest: str
    top1: Share
    """Over the images that have labels."""
    images: int
    """All that were looked up."""
    labelled: int
    """Those with at least one label, which are counted."""
    skipped: int
    """Those with an empty set."""
    agreement: float | None
    """Share of the labelled images whose label in the data is in their set; none where labels cannot be told."""


def read_real(path: Path) -> RealLabels:
    """Read the file, or say what is wrong with it."""
    where = str(path)
    try:
        content = path.expanduser().read_bytes()
        values = json.loads(content)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", where=where) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"is no JSON ({error})", wanted="the real.json of ReaL labels", where=where) from None
    if not isinstance(values, list):
        raise DataError(f"holds {_kind(values)}", wanted="a list of lists of class numbers", where=where)
    for place, entry in enumerate(values):
        if not isinstance(entry, list):
            raise DataError(f"entry {place} is {_kind(entry)}", wanted="a list of class numbers", where=where)
        for number in entry:
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise DataError(f"entry {place} holds {str(number)[:40]!r}", wanted="class numbers", where=where)
    return RealLabels(where, hashlib.sha256(content).hexdigest(), tuple(map(frozenset, values)))


def match_real(real: RealLabels, source: Source) -> list[frozenset[int]]:
    """The set of each image of a source, found by the number in its file name: class folders are in another order."""
    if source.labels.is_multi:
        wanted = f"ImageNet for {setting('real')}"
        raise UsageError("the data has several labels per image", wanted=wanted, where=source.name)
    if len(real.sets) not in (_IMAGES, len(source)):
        raise DataError(
            f"there are labels of {len(real.sets):,} images",
            wanted=f"the {_IMAGES:,} of ImageNet's validation set, or as many as the {len(source):,} of the data",
            where=real.path,
        )
    largest = max((number for one in real.sets for number in one), default=-1)
    if largest >= len(source.classes):
        raise DataError(
            f"there is the class number {largest:,}",
            wanted=f"numbers of the {len(source.classes):,} classes of the model, which begin at 0",
            where=real.path,
        )
    sets = [real.sets[_place(source.where(index), len(real.sets), real.path)] for index in range(len(source))]
    if not any(sets):
        raise DataError(f"none of the {len(sets):,} images of the data has a label", where=real.path)
    return sets


def measure_real(
    first_guesses: np.ndarray, sets: list[frozenset[int]], labels: np.ndarray | None, real: RealLabels
) -> RealResult:
    """Count the first guesses that are in their sets, of those that are not empty.

    The sets hold numbers of outputs, so that nothing depends on `labels`, the data's own, which are only compared.
    """
    labelled = [index for index, one in enumerate(sets) if one]
    right = sum(int(first_guesses[index]) in sets[index] for index in labelled)
    agreement = None
    if labels is not None:
        agreement = sum(int(labels[index]) in sets[index] for index in labelled) / len(labelled)
        if agreement < _LEAST_AGREEMENT:
            notice(
                f"The label of the data is in the ReaL set of {agreement:.1%} of the images only. If the outputs of "
                "the model are in ImageNet's order, the ReaL accuracy is right and the classes of the data are in "
                "another; if they are not, it means nothing."
            )
    return RealResult(
        file=real.path,
        digest=real.digest,
        top1=share_of(right, len(labelled)),
        images=len(sets),
        labelled=len(labelled),
        skipped=len(sets) - len(labelled),
        agreement=agreement,
    )


def _place(where: str, length: int, path: str) -> int:
    found = _NUMBER.findall(where)
    if not found:
        raise DataError(
            "its name has no number of ImageNet's validation set",
            wanted=f"a name such as {_EXAMPLE}, by which ReaL labels are found",
            where=where,
        )
    number = int(found[-1])
    if not 1 <= number <= length:
        raise DataError(f"its number is {number}", wanted=f"one of the {length:,} images of {path}", where=where)
    return number - 1


def _kind(value: object) -> str:
    return {dict: "an object", list: "a list", str: "a text"}.get(type(value), str(value)[:40])
