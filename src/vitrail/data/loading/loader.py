"""Batches for training and evaluation, from any step on, ready on the device before they are asked for."""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from vitrail.config.checks import count
from vitrail.data.decoding.gpu_decode import cut_and_resize, decode_on_gpu
from vitrail.data.loading.order import Picks, Stream, evaluation_picks
from vitrail.data.loading.prefetch import prefetched
from vitrail.data.loading.prepare import Chunk, Preparation, prepare_chunk
from vitrail.data.loading.recycle import Recycled
from vitrail.data.loading.workers import in_workers
from vitrail.data.sources.source import Source
from vitrail.data.transforms.augment import augment_bytes, erase_some, normalise
from vitrail.data.transforms.crops import fit_batch
from vitrail.data.transforms.mixing import draw_mix, mix_images
from vitrail.errors import DataError, UsageError, setting

Empty = Callable[[torch.Size], Tensor]

# Images a worker prepares at a time: enough to make the hand-over cheap, few enough that memory stays small.
CHUNK = 32
# Files are smaller than pixels, and a GPU takes more of them.
CHUNK_OF_FILES = 64


@dataclass(frozen=True)
class Batch:
    """What a network is fed: normalised images and their targets on the device, and which images they are."""

    images: Tensor
    """float32 (batch, channels, height, width)."""
    targets: Tensor
    """Class numbers (batch,), or shares of classes (batch, classes) when images are mixed or have several."""
    ids: np.ndarray
    epochs: np.ndarray
    step: int


def training_batches(
    source: Source,
    stream: Stream,
    preparation: Preparation,
    *,
    start: int = 0,
    stop: int | None = None,
    device: str | torch.device = "cpu",
    workers: int = 0,
) -> Iterator[Batch]:
    """The batches of steps `start` up to `stop` (or for ever); step k is the same whatever `start` was."""
    device = torch.device(device)
    on_gpu = device.type == "cuda"
    fast = preparation.decoder == "fast" and preparation.channels == 3
    preparation = replace(
        for_stream(preparation, stream, source), leave_jpegs=on_gpu and fast, augment_here=device.type == "cpu"
    )
    count("start", start)
    steps = itertools.count(start) if stop is None else range(start, stop)
    empty = Recycled().empty if device.type == "cpu" else None
    chunk = CHUNK_OF_FILES if preparation.leave_jpegs else CHUNK

    def requests() -> Iterator[Picks]:
        return itertools.chain.from_iterable(stream.step(step).cut(chunk) for step in steps)

    def taken() -> Iterator[_Taken]:
        chunks = _chunks(source, preparation, requests, workers)
        size = len(stream.step(start))
        for step in itertools.count(start):
            parts = list(itertools.islice(chunks, -(-size // chunk)))
            if not parts:
                return
            yield _Taken(step, parts)

    def gathered() -> Iterator[_Gathered]:
        return (_gather(parts, device) for parts in (prefetched(taken, device) if on_gpu else taken()))

    def batches() -> Iterator[Batch]:
        # Three threads on a GPU, none waiting for another: taking from the workers, moving or decoding, augmenting.
        ready = prefetched(gathered, device) if on_gpu else gathered()
        return (_finish(batch, preparation, source.labels.num_classes, empty) for batch in ready)

    return _ahead(batches, device, workers)


def for_stream(preparation: Preparation, stream: Stream, source: Source) -> Preparation:
    """The preparation with the seed of the stream: a run has one."""
    augment = preparation.augment
    if augment is None:
        raise UsageError("there is no augmentation", wanted="augment=AugmentConfig(...) for training")
    if stream.length != len(source):
        raise UsageError(f"the stream is of {stream.length:,} images", wanted=f"the {len(source):,} of the source")
    if augment.is_mixing and len(stream.step(0)) < 2:
        raise UsageError("a batch has one image", wanted="two or more for mixup and CutMix")
    return replace(preparation, seed=stream.seed)


def evaluation_batches(
    source: Source,
    preparation: Preparation,
    *,
    batch_size: int,
    rank: int = 0,
    ranks: int = 1,
    device: str | torch.device = "cpu",
    workers: int = 0,
) -> Iterator[Batch]:
    """Every image of the source once, in its order, decoded by Pillow; the last batch is short.

    Of several processes each takes every n-th image, and all of them get equally many batches, because between two of
    them they may wait for each other: a share that is shorter by a batch ends with a blank image that has no id.
    """
    device = torch.device(device)
    preparation = replace(preparation, augment=None, leave_jpegs=False, augment_here=False)
    empty = Recycled().empty if device.type == "cpu" else None

    def wanted() -> Iterable[Picks]:
        return evaluation_picks(len(source), batch_size, rank, ranks)

    def batches() -> Iterator[Batch]:
        requests = lambda: itertools.chain.from_iterable(picks.cut(CHUNK) for picks in wanted())  # noqa: E731
        chunks = _chunks(source, preparation, requests, workers)
        for step, picks in enumerate(wanted()):
            taken = list(itertools.islice(chunks, -(-len(picks) // CHUNK)))
            images = normalise(_moved(_images(taken), device), preparation.preprocessing, empty)
            targets = _moved(_targets(taken), device)
            ids = np.concatenate([chunk.ids for chunk in taken])
            yield Batch(images, targets, ids, np.zeros_like(ids), step)
        mine, longest = (-(-len(range(number, len(source), ranks)) // batch_size) for number in (rank, 0))
        for step in range(mine, longest):
            yield _blank(source, preparation, device, step)

    return _ahead(batches, device, workers)


def _blank(source: Source, preparation: Preparation, device: torch.device, step: int) -> Batch:
    """An image that is none: whoever asks a network about it keeps as many answers as there are ids."""
    images = torch.zeros(1, preparation.channels, *preparation.size, device=device)
    targets = _moved([source.labels.targets(np.zeros(1, dtype=np.int64))], device)
    ids = np.zeros(0, dtype=np.int64)
    return Batch(images, targets, ids, ids, step)


def _chunks(
    source: Source, preparation: Preparation, requests: Callable[[], Iterable[Picks]], workers: int
) -> Iterator[Chunk]:
    prepare = functools.partial(_prepare, source, preparation)
    for chunk in in_workers(prepare, requests, workers=workers):
        if chunk.failures:
            first, *rest = chunk.failures
            more = f" ({len(rest)} more beside it)" if rest else ""
            leave_out = f"`vitrail data check` lists every bad file; {setting('data.skip_bad', True)} leaves them out."
            raise DataError(f"{first.came}{more}", where=first.where, fix=first.fix or leave_out)
        yield chunk


def _prepare(source: Source, preparation: Preparation, picks: Picks) -> Chunk:
    return prepare_chunk(source, picks, preparation)


def _ahead(batches: Callable[[], Iterator[Batch]], device: torch.device, workers: int) -> Iterator[Batch]:
    """Without workers on a CPU nothing could run ahead but the step itself."""
    return prefetched(batches, device) if workers or device.type == "cuda" else batches()


@dataclass(frozen=True)
class _Taken:
    """The chunks of a step, as they come from the workers."""

    step: int
    chunks: list[Chunk]


@dataclass(frozen=True)
class _Gathered:
    """The chunks of a step on the device; `decoded` are images of any size whose rows are still empty."""

    images: Tensor
    targets: Tensor
    ids: np.ndarray
    epochs: np.ndarray
    step: int
    decoded: list[Tensor]
    rows: np.ndarray
    boxes: np.ndarray


def _gather(taken: _Taken, device: torch.device) -> _Gathered:
    chunks = taken.chunks
    firsts = np.cumsum([0] + [len(chunk.ids) for chunk in chunks[:-1]])
    left = [(chunk.left, first) for chunk, first in zip(chunks, firsts, strict=True) if chunk.left is not None]
    encoded = [jpeg for part, _ in left for jpeg in part.data.split(part.lengths.tolist())]
    where = [place for part, _ in left for place in part.where]
    return _Gathered(
        images=_moved(_images(chunks), device),
        targets=_moved(_targets(chunks), device),
        ids=np.concatenate([chunk.ids for chunk in chunks]),
        epochs=np.concatenate([chunk.epochs for chunk in chunks]),
        step=taken.step,
        decoded=decode_on_gpu(encoded, where, device) if encoded else [],
        rows=np.concatenate([part.rows + first for part, first in left]) if left else np.zeros(0, dtype=np.int64),
        boxes=np.concatenate([part.boxes for part, _ in left]) if left else np.zeros((0, 4), dtype=np.int64),
    )


def _finish(gathered: _Gathered, preparation: Preparation, num_classes: int, empty: Empty | None) -> Batch:
    pixels = _with_decoded(gathered, preparation) if len(gathered.rows) else gathered.images
    images = augmented(pixels, gathered.epochs, gathered.ids, preparation, empty)
    batch = Batch(images, gathered.targets, gathered.ids, gathered.epochs, gathered.step)
    return mixed(batch, preparation, num_classes)


def _with_decoded(batch: _Gathered, preparation: Preparation) -> Tensor:
    """The batch with the images that the GPU decoded cut, resized and put into their rows."""
    assert preparation.augment is not None
    made = fit_batch(
        lambda size: cut_and_resize(batch.decoded, batch.boxes, size, preparation.preprocessing),
        preparation.size,
        preparation.augment,
        preparation.seed,
        batch.epochs[batch.rows],
        batch.ids[batch.rows],
    )
    if not len(batch.images):
        return made
    others = np.setdiff1d(np.arange(len(batch.ids)), batch.rows)
    order = torch.from_numpy(np.argsort(np.concatenate([batch.rows, others]))).to(made.device, non_blocking=True)
    return torch.cat([made, batch.images])[order]


def augmented(
    images: Tensor, epochs: np.ndarray, ids: np.ndarray, preparation: Preparation, empty: Empty | None = None
) -> Tensor:
    """From bytes of the input size to normalised images, each augmented by itself."""
    augment, seed = preparation.augment, preparation.seed
    assert augment is not None
    if not preparation.augment_here:
        images = augment_bytes(images, epochs, ids, seed, augment)
    return erase_some(normalise(images, preparation.preprocessing, empty), epochs, ids, seed, augment)


def mixed(batch: Batch, preparation: Preparation, num_classes: int) -> Batch:
    """The batch with its images mixed with each other, where the augmentation says so."""
    assert preparation.augment is not None
    mix = draw_mix(preparation.augment, preparation.seed, batch.step)
    if mix is None:
        return batch
    images, targets = mix_images(batch.images, batch.targets, mix, num_classes)
    return replace(batch, images=images, targets=targets)


def _images(chunks: list[Chunk]) -> list[Tensor]:
    return [chunk.images for chunk in chunks if chunk.images is not None]


def _targets(chunks: list[Chunk]) -> list[Tensor]:
    return [torch.from_numpy(chunk.targets) for chunk in chunks]


def _moved(parts: list[Tensor], device: torch.device) -> Tensor:
    """The parts as one tensor on the device, through pinned memory so that the copy runs beside the last step."""
    if not parts:
        return torch.empty(0, device=device)
    if device.type != "cuda":
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).to(device)
    size = sum(len(part) for part in parts)
    pinned = torch.empty(size, *parts[0].shape[1:], dtype=parts[0].dtype, pin_memory=True)
    torch.cat(parts, out=pinned)
    return pinned.to(device, non_blocking=True)
