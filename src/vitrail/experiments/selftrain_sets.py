"""The images of a self-training: labelled ones as any run opens them, and others of which nothing is known."""

import os
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from vitrail.config import DataConfig, DecodePolicy
from vitrail.data import OpenOptions, Part, Source, open_data
from vitrail.data.check import preflight
from vitrail.data.copies import copies_of
from vitrail.data.sources.files import Files
from vitrail.data.sources.joined import Joined
from vitrail.data.sources.source import whole_of
from vitrail.data.sources.taught import Origin, blind
from vitrail.errors import DataError, UsageError, notice, setting
from vitrail.experiments.selftrain import Unlabelled
from vitrail.training.few_shot import Checking
from vitrail.training.sources import RunData, open_run_data


@dataclass(frozen=True, kw_only=True)
class Sets:
    """Images that were opened and read."""

    labelled: RunData
    unlabelled: Source
    """Without labels, and without images that are labelled, held out or tested on."""
    origins: tuple[Origin, Origin]
    """Of the labelled and of the unlabelled ones."""

    @property
    def learnt(self) -> np.ndarray:
        """Labelled images to learn from, as numbers in their whole source."""
        return _numbers(self.labelled.train)

    @property
    def held_out(self) -> np.ndarray:
        """Labelled images to measure on; none where a val split is there for it."""
        held = self.labelled.held_out
        is_part = held is not None and whole_of(held) is whole_of(self.labelled.train)
        return _numbers(held) if held is not None and is_part else np.empty(0, np.int64)


def open_sets(labelled: DataConfig, unlabelled: Unlabelled, device: torch.device, checking: Checking) -> Sets:
    """Open and read all images; what the student would be measured on is never given to the teacher to label."""
    data = open_run_data(labelled, device, checking)
    if data.train.labels.is_multi:
        raise UsageError(
            "the images have several classes each",
            wanted="one class per image, which the teacher's surest guess can be",
            where=labelled.data,
        )
    images = _open_unlabelled(labelled, unlabelled, checking)
    known = [source for source in (data.train, data.held_out, data.test) if source is not None]
    others = _others(images, known)
    measured = [source for source in (data.held_out, data.test) if source is not None]
    if measured and labelled.copies == "together":
        others = _unlike(others, measured)
    origins = (
        Origin(
            data=labelled.data,
            split=labelled.split,
            root=labelled.root,
            allow_empty=labelled.allow_empty,
            digest=whole_of(data.train).digest(),
        ),
        Origin(data=unlabelled.data, split=unlabelled.split, root=unlabelled.root, digest=whole_of(images).digest()),
    )
    return Sets(labelled=data, unlabelled=others, origins=origins)


def _open_unlabelled(labelled: DataConfig, unlabelled: Unlabelled, checking: Checking) -> Source:
    options = OpenOptions(
        root=Path(unlabelled.root) if unlabelled.root else None,
        download=labelled.download,
        allow_empty=True,
        labelled=False,
        copies=labelled.copies,
    )
    images = blind(open_data(unlabelled.data, unlabelled.split, options=options))
    with checking(images) as advance:
        fine = preflight(images, policy=DecodePolicy(), skip_bad=labelled.skip_bad, progress=advance)
    if not len(fine):
        raise DataError("there is no image that can be read", where=f"{images.name}, {images.split}")
    return fine


def _others(images: Source, known: Iterable[Source]) -> Source:
    """The images without those that are known from elsewhere, by the place where they lie."""
    places = {_place(source, index) for source in known for index in range(len(source))}
    new = np.array([_place(images, index) not in places for index in range(len(images))])
    gone = int((~new).sum())
    if not gone:
        return images
    if gone == len(images):
        raise UsageError(
            f"all {gone:,} unlabelled images are among those that are labelled, held out or tested on",
            wanted="others",
            where=f"{images.name}, {images.split}",
            fix=f"Name another folder, or another part with {setting('unlabelled_split')}, such as 'train[10%:]'.",
        )
    notice(
        f"{gone:,} of the {len(images):,} unlabelled images are labelled, held out or tested on as well: the teacher "
        "does not label them."
    )
    return Part(whole_of(images), _numbers(images)[new], images.split)


def _unlike(images: Source, measured: Sequence[Source]) -> Source:
    """The images without copies of those that are measured on: a student would have seen what it is asked."""
    joined = Joined([*map(blind, measured), images], images.split)
    groups = copies_of(joined, processes=True).groups
    known = len(joined) - len(images)
    new = ~np.isin(groups[known:], groups[:known])
    gone = int((~new).sum())
    if not gone:
        return images
    if gone == len(images):
        raise UsageError(
            f"all {gone:,} unlabelled images are copies of those that are held out or tested on",
            wanted="others",
            where=f"{images.name}, {images.split}",
            fix=f"Name another folder, or another part with {setting('unlabelled_split')}.",
        )
    notice(
        f"{gone:,} of the {len(images):,} unlabelled images are copies of images that are held out or tested on: the "
        "teacher does not label them."
    )
    return Part(whole_of(images), _numbers(images)[new], images.split)


def _place(source: Source, index: int) -> Hashable:
    """Where an image lies: its very file, whatever links lead there, else what its source calls it."""
    whole, inside = whole_of(source), int(source.ids(np.array([index]))[0])
    if isinstance(whole, Joined):
        return _place(*whole.place(inside))
    if not isinstance(whole, Files):
        return whole.where(inside)
    state = os.stat(whole.path(inside))  # noqa: PTH116 - Path.stat takes twice as long
    return state.st_dev, state.st_ino


def _numbers(source: Source) -> np.ndarray:
    return source.ids(np.arange(len(source)))


def at_other_root(unlabelled: Unlabelled, labelled: DataConfig, root: str | None) -> Unlabelled:
    """The same images where their files are now; those of a known data set lie beside the labelled ones."""
    moved = root is not None and unlabelled.root == labelled.root
    return replace(unlabelled, root=root) if moved else unlabelled
