"""What a training run holds in the memory of each GPU at its fullest moment.

It estimates `torch.cuda.max_memory_allocated`. Not counted are the CUDA context and the kernels of libraries, which
torch does not allocate (about half a gigabyte), what the allocator rounds up (blocks of 512 bytes, in segments of
2 MiB), and a data set that lives on the GPU.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from vitrail.config import ModelConfig, OptimConfig, TrainConfig
from vitrail.errors import UsageError
from vitrail.training.optimizer import MOMENTS
from vitrail.training.rehearsal import Rehearsal, rehearse
from vitrail.training.schedule import micro_batch

Spread = Literal["ddp", "fsdp"]

BATCHES_HELD = 4
"""Of images: the one in use, two that are ready and one in the making."""
LIBRARIES = 2 * 32 * 2**20
"""cuBLAS on Hopper takes 32 MiB of torch's memory for the forward and for the backward pass each."""
# Whole blocks that FSDP2 holds: weights of the present, the next and the one on its way; gradients of two.
_GATHERED_WEIGHTS, _GATHERED_GRADIENTS = 3, 2


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Bytes on each GPU at the fullest moment of a step; their sum is the peak."""

    gpus: int
    parallel: Spread | None
    """A copy of the network on each GPU (DDP) or a part of it (FSDP2); none on a single one."""
    micro_batch: int
    """Images at a time on one GPU."""
    micro_batches: int
    """For one update, on each GPU."""
    weights: int
    gradients: int
    """Those that are there at the fullest moment; they come as activations go."""
    optimizer: int
    """Moments of Adam, or the momentum of SGD."""
    average: int
    """The Polyak average, and its distance from the weights."""
    casts: int
    """Copies of weights in bfloat16 that the backward pass needs."""
    activations: int
    """What the forward pass keeps for the backward pass."""
    temporaries: int
    """Gradients of activations, and with checkpointing the activations of a block that is computed again."""
    gathered: int
    """Whole blocks, and what lies outside of them, that FSDP2 puts together out of their parts."""
    images: int
    """Batches of images: in use, ready and in the making."""
    libraries: int
    """Workspaces of cuBLAS."""

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    @property
    def state(self) -> int:
        """Weights, gradients, moments and average: what is there whatever the images."""
        return self.weights + self.gradients + self.optimizer + self.average

    @property
    def parts(self) -> dict[str, int]:
        """Bytes by what they are for."""
        return {name: getattr(self, name) for name in PARTS}


PARTS = (
    "weights",
    "gradients",
    "optimizer",
    "average",
    "casts",
    "activations",
    "temporaries",
    "gathered",
    "images",
    "libraries",
)


def footprint(
    model: ModelConfig, train: TrainConfig, optim: OptimConfig, *, gpus: int = 1, parallel: Spread = "ddp"
) -> Footprint:
    """The memory of a run on each of some GPUs, as many images at a time as `train.micro_batch` says, or all."""
    share = share_of(train.batch_size, gpus)
    images = micro_batch(train.micro_batch or share, share)
    accumulates = share > images
    sharded = gpus > 1 and parallel == "fsdp"
    parts = gpus if sharded else 1
    captured = train.compile and not train.checkpoint_activations and gpus == 1
    rehearsal = rehearse(model, train, optim)
    casts, activations, temporaries, arriving = rehearsal.alive(images).T
    # Whole gradients stay when the next micro-batch is added to them, in buckets of DDP, and where a graph left them.
    stay = accumulates or captured or (gpus > 1 and not sharded)
    # What arrives is added to those at once, but a compiled backward pass on one GPU hands all over at its end.
    arriving = arriving * (not stay or (train.compile and gpus == 1)) / parts
    fullest = int(np.argmax(casts + activations + temporaries + arriving))
    image_bytes = 4 * model.channels * model.image_size[0] * model.image_size[1]
    return Footprint(
        gpus=gpus,
        parallel=None if gpus == 1 else parallel,
        micro_batch=images,
        micro_batches=share // images,
        weights=rehearsal.weights // parts,
        gradients=stay * rehearsal.trained + int(arriving[fullest]),
        optimizer=MOMENTS[optim.optimizer] * rehearsal.trained // parts,
        average=2 * rehearsal.weights // parts if train.average else 0,
        casts=int(casts[fullest]),
        activations=int(activations[fullest]),
        temporaries=int(temporaries[fullest]),
        gathered=_gathered(rehearsal, with_gradients=not accumulates) if sharded else 0,
        images=(BATCHES_HELD + captured) * images * image_bytes,
        libraries=LIBRARIES,
    )


def share_of(batch_size: int, gpus: int) -> int:
    """Images of a batch on each GPU."""
    if batch_size % gpus:
        nearest = max(round(batch_size / gpus), 1) * gpus
        raise UsageError(
            f"a batch of {batch_size} does not divide over {gpus} GPUs",
            wanted=f"a multiple of {gpus}, such as {nearest}",
        )
    return batch_size // gpus


def _gathered(rehearsal: Rehearsal, with_gradients: bool) -> int:
    """Whole weights and gradients that exist beside the parts; while micro-batches add up, all gradients are whole."""
    weights = _GATHERED_WEIGHTS * rehearsal.largest_block + rehearsal.outside_blocks
    gradients = _GATHERED_GRADIENTS * rehearsal.largest_block + rehearsal.outside_blocks
    return weights + (gradients if with_gradients else 0)
