"""The images of a run: opened, checked, and some of them held out."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from vitrail.config import DataConfig, DecodePolicy
from vitrail.data import OpenOptions, Source, open_data
from vitrail.data.check import preflight
from vitrail.data.copies import copies_of, hold_out_of
from vitrail.data.loading.reading import reading_workers
from vitrail.data.sources.classes import ensure_trainable
from vitrail.data.sources.parts import splits_of
from vitrail.data.sources.splits import MissingSplit
from vitrail.errors import DataError
from vitrail.training.few_shot import Checking, FewShot, open_few_shot

# Where nobody said otherwise and there is no val split.
_HELD_OUT = 0.1


@dataclass(frozen=True, kw_only=True)
class RunData:
    """The images of a run."""

    train: Source
    held_out: Source | None
    """Where the best model is selected; none when there is nothing to select on."""
    test: Source | None
    """Where the model that is kept is measured once."""
    workers: int
    copies: tuple[str, ...] = ()
    """What was found about copies, where some images were split from others."""
    few_shot: FewShot | None = None
    """Images of another data set, for a score on the way."""


def open_run_data(config: DataConfig, device: torch.device, checking: Checking, processes: int = 1) -> RunData:
    """Open and read every image that the run will need; bad files stop it here, before the first step."""
    options = OpenOptions(
        root=Path(config.root) if config.root else None,
        download=config.download,
        allow_empty=config.allow_empty,
        labelled=config.labelled,
        copies=config.copies,
        watch=checking,
    )

    def opened_if_there(split: str) -> Source | None:
        try:
            return open_data(config.data, split, options=options)
        except MissingSplit:
            return None

    def checked(source: Source, *, is_split: bool = False) -> Source:
        with checking(source) as shown:
            advance = _at_most(len(source), shown)
            if is_split:
                # Decodes every image, and what it has read need not be read again.
                copies_of(source, advance, processes=True)
            fine = preflight(source, policy=DecodePolicy(), skip_bad=config.skip_bad, progress=advance)
        if not len(fine):
            raise DataError("there is no image that can be read", where=f"{source.name}, {source.split}")
        return fine

    train = open_data(config.data, config.split, options=options)
    # What is learnt from can neither choose nor measure.
    learnt = splits_of(config.split)
    val = opened_if_there("val") if config.held_out is None and "val" not in learnt else None
    share = _HELD_OUT if config.held_out is None and val is None else config.held_out
    train = checked(train, is_split=bool(share) and config.copies == "together")
    if config.labelled:
        ensure_trainable(train)
    held_out, copies = None if val is None else checked(val), ()
    if share:
        train, held_out, copies = hold_out_of(train, share, config.copies)
    test = opened_if_there("test") if config.test and "test" not in learnt else None
    test = None if test is None else checked(test)
    workers = reading_workers(config.workers, train, on_gpu=device.type == "cuda", processes=processes)
    return RunData(
        train=train,
        held_out=held_out,
        test=test,
        workers=workers,
        copies=copies,
        few_shot=open_few_shot(config, checking),
    )


def _at_most(images: int, advance: Callable[[int], None]) -> Callable[[int], None]:
    """Tell of so many images and no more: some are read once to find copies, and then known to be fine."""
    left = images

    def limited(done: int) -> None:
        nonlocal left
        told = min(done, left)
        left -= told
        if told:
            advance(told)

    return limited
