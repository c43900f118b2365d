"""Stages of residual units, as both kinds of ResNet stack them."""

from collections.abc import Callable, Sequence

from torch import nn


def build_stages(blocks: Sequence[int], width: int, unit: Callable[[int, int, int], nn.Module]) -> nn.Sequential:
    """Stage i has mid-width `width * 2^i` and four times that out; all but the first begin with a stride of 2.

    `unit(inputs, width, stride)` makes one residual unit.
    """
    inputs, stages = width, []
    for stage, units in enumerate(blocks):
        middle = width * 2**stage
        first = unit(inputs, middle, 1 if stage == 0 else 2)
        stages.append(nn.Sequential(first, *(unit(middle * 4, middle, 1) for _ in range(units - 1))))
        inputs = middle * 4
    return nn.Sequential(*stages)
