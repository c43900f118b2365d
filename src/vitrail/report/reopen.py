"""The images that a finished run was measured on, opened once more."""

from dataclasses import replace
from pathlib import Path

import torch

from vitrail.config import DecodePolicy, RunConfig
from vitrail.data import OpenOptions, Source, open_data
from vitrail.data.check import preflight
from vitrail.errors import DataError
from vitrail.train.held_out import silently
from vitrail.train.sources import open_run_data


def reopen(config: RunConfig, split: str) -> Source:
    """The test split, or what was held out; a page is no reason to download anything."""
    data = replace(config.data, download=False, test=False)
    if split == "test":
        options = OpenOptions(
            root=Path(data.root) if data.root else None, allow_empty=data.allow_empty, labelled=data.labelled
        )
        source = open_data(data.data, "test", options=options)
        # Only then can images have been left out; reading all of them for twenty pictures would be a waste.
        return preflight(source, policy=DecodePolicy(), skip_bad=True) if data.skip_bad else source
    held_out = open_run_data(data, torch.device("cpu"), silently).held_out
    if held_out is None:
        raise DataError("nothing is held out any more", where=data.data)
    return held_out
