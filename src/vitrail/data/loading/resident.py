"""Small sets live on the device: one tensor of bytes, cut and augmented where the network is, without workers."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from vitrail.data.decoding.decode import decode, pixels
from vitrail.data.loading.loader import Batch, augmented, for_stream
from vitrail.data.loading.order import Stream
from vitrail.data.loading.prefetch import prefetched
from vitrail.data.loading.prepare import Preparation
from vitrail.data.sources.joined import Joined
from vitrail.data.sources.source import Arrays, Source, whole_of
from vitrail.data.transforms.boxes import training_boxes
from vitrail.data.transforms.crops import fit_batch
from vitrail.data.transforms.fit import Size
from vitrail.data.transforms.mixing import draw_mix, mix_steps
from vitrail.data.transforms.resample import resize_bytes_batch

# CIFAR is 150 MB; what is larger is better read from disk.
MAX_BYTES = 2**30
_BLOCK_BYTES = 2**28
_MOST_STEPS = 64


def can_be_resident(source: Source) -> bool:
    """Whether the images are in memory, of one size, and few enough to copy to a device."""
    whole = whole_of(source)
    if isinstance(whole, Joined):
        parts = [(len(part), whole_of(part)) for part in whole.sources]
        arrays = [(length, part.pixels) for length, part in parts if isinstance(part, Arrays)]
        sizes = {pixels.shape[1:3] for _, pixels in arrays}
        # A part may hold an image several times, and each of them is copied.
        needed = sum(length * pixels[:1].nbytes for length, pixels in arrays)
        return len(arrays) == len(parts) and len(sizes) == 1 and needed <= MAX_BYTES
    return isinstance(whole, Arrays) and whole.pixels.nbytes <= MAX_BYTES


def resident_pixels(source: Source, channels: int, device: str | torch.device) -> Tensor:
    """All images of a source as bytes (images, channels, height, width) on the device."""
    mode = "L" if channels == 1 else "RGB"
    images = [pixels(decode(source.read(index), mode, where=source.where(index))) for index in range(len(source))]
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous().to(device)


def resident_batches(
    source: Source,
    stream: Stream,
    preparation: Preparation,
    *,
    start: int = 0,
    stop: int | None = None,
    device: str | torch.device = "cpu",
) -> Iterator[Batch]:
    """What `training_batches` gives, from a set that lives on the device."""
    device = torch.device(device)
    preparation = replace(for_stream(preparation, stream, source), augment_here=False)
    stored = resident_pixels(source, preparation.channels, device)
    steps = iter(itertools.count(start) if stop is None else range(start, stop))

    # Several steps at a time, because what costs is the number of calls and not their size.
    at_once = _steps_at_once(stream, preparation)

    def batches() -> Iterator[Batch]:
        while block := list(itertools.islice(steps, at_once)):
            yield from _block(source, stored, stream, preparation, block)

    return prefetched(batches, device) if device.type == "cuda" else batches()


def _steps_at_once(stream: Stream, preparation: Preparation) -> int:
    height, width = preparation.size
    batch_bytes = 4 * len(stream.step(0)) * preparation.channels * height * width
    return min(max(_BLOCK_BYTES // batch_bytes, 1), _MOST_STEPS)


def _block(
    source: Source, stored: Tensor, stream: Stream, preparation: Preparation, steps: list[int]
) -> Iterator[Batch]:
    """The batches of some steps, cut and augmented together; each is what it would have been alone."""
    picks = [stream.step(step) for step in steps]
    indices = np.concatenate([pick.indices for pick in picks])
    epochs = np.concatenate([pick.epochs for pick in picks])
    ids, size = source.ids(indices), len(picks[0])
    images = _normalised(stored[torch.from_numpy(indices).to(stored.device)], epochs, ids, preparation)
    targets = source.labels.targets(indices).to(stored.device)
    images, targets = images.unflatten(0, (-1, size)), targets.unflatten(0, (-1, size))
    assert preparation.augment is not None
    drawn = (draw_mix(preparation.augment, preparation.seed, step) for step in steps)
    if mixes := [mix for mix in drawn if mix is not None]:
        images, targets = mix_steps(images, targets, mixes, source.labels.num_classes)
    for number, step in enumerate(steps):
        mine = slice(number * size, (number + 1) * size)
        yield Batch(images[number], targets[number], ids[mine], epochs[mine], step)


def _normalised(images: Tensor, epochs: np.ndarray, ids: np.ndarray, preparation: Preparation) -> Tensor:
    augment, look = preparation.augment, preparation.preprocessing
    assert augment is not None
    sides = np.full(len(ids), images.shape[-2]), np.full(len(ids), images.shape[-1])
    boxes = training_boxes(augment, preparation.seed, epochs, ids, *sides)
    corners = np.stack([boxes.top, boxes.left, boxes.height, boxes.width], axis=1)

    def resize(size: Size) -> Tensor:
        if augment.crop != "inception" and size == tuple(images.shape[-2:]):
            return images
        places = torch.from_numpy(corners).to(images.device)
        return resize_bytes_batch(images, places, size, look.interpolation, look.antialias)

    fitted = fit_batch(resize, preparation.size, augment, preparation.seed, epochs, ids)
    return augmented(fitted, epochs, ids, preparation)
