"""What a network computes, as a graph of torch's operations."""

import torch
from torch.export import Dim, ExportedProgram

from vitrail.errors import UsageError, setting
from vitrail.exporting.network import TwoOutputs
from vitrail.exporting.runtimes import first_line, quietly


def trace(network: TwoOutputs, *, any_size: bool) -> ExportedProgram:
    """The graph of a network for any number of images, and for any height and width where that is wanted."""
    config = network.model.config
    # Two images, because a dimension of one would be taken to be always one.
    images = torch.zeros(2, config.channels, *config.image_size)
    free = {0: Dim.DYNAMIC, 2: Dim.DYNAMIC, 3: Dim.DYNAMIC} if any_size else {0: Dim.DYNAMIC}
    with quietly():
        try:
            return torch.export.export(network, (images,), dynamic_shapes=(free,))
        except Exception as error:  # torch's errors have no common kind
            fix = f"Without {setting('any_size', True)} it may be possible." if any_size else ""
            raise UsageError(f"torch cannot export this network ({first_line(error)})", fix=fix) from error
