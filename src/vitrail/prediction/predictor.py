"""From images to answers: the one path that prediction, serving and exported files share."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.config import pair, times
from vitrail.config.decoding import DecodePolicy
from vitrail.data.sources.class_names import ensure_named, read_class_names
from vitrail.data.transforms.fit_image import fit_image, normalised
from vitrail.errors import DataError, UsageError, setting
from vitrail.prediction.answers import ensure_classes, ensure_finite, label, likeliest, probabilities
from vitrail.prediction.backend import Backend
from vitrail.prediction.fastest import open_backend
from vitrail.prediction.handed import Handed, from_objects
from vitrail.runtime.cores import usable_cores
from vitrail.weights.record import Described

Size = int | tuple[int, int]

_MOST_READERS = 8
# Batches that are read while one is computed.
_AHEAD = 2


@dataclass(frozen=True)
class Answer:
    """What came of one image: outputs, or the reason why there are none."""

    name: str
    logits: np.ndarray | None = None
    features: np.ndarray | None = None
    frames: int = 1
    """Of an animation or a file of several pages, of which the first is answered for."""
    error: DataError | None = None


@dataclass(frozen=True)
class Prepared:
    """An image as the network reads it."""

    pixels: np.ndarray
    """float32 (channels, height, width), normalised."""
    seen: np.ndarray
    """The same before it was normalised: (height, width, channels), 0 to 255."""
    frames: int


class Predictor:
    """A model that answers: `Predictor("runs/pets")(["cat.jpg"])` is a list of lists of (label, probability).

    The source is whatever `load_model` takes, or a file of `vitrail export`.
    """

    def __init__(
        self,
        source: str | Path,
        *,
        backend: str = "auto",
        device: str = "auto",
        image_size: Size | None = None,
        preprocessing: str | None = None,
        classes: str | Path | None = None,
        batch_size: int = 32,
        images: int | None = None,
    ) -> None:
        """`classes` is a file with a name per line, or `imagenet`, for weights that came without names.

        `images`, where it is known how many will come, helps to choose the backend.
        """
        self.source = str(source)
        if batch_size < 1:
            raise UsageError(f"batch_size is {batch_size}", wanted="at least 1")
        size = None if image_size is None else pair(image_size, "image_size")
        self.backend: Backend = open_backend(
            source,
            backend,
            device=device,
            image_size=size,
            preprocessing=preprocessing,
            images=images,
            batch_size=batch_size,
        )
        if classes is not None:
            self.backend = _named(self.backend, Path(classes), self.source)
        self.batch_size = batch_size
        self.size = size or self.described.config.image_size
        self._policy = DecodePolicy()
        _ensure_pixels(self.described, self.size, self._policy, self.source)

    @property
    def described(self) -> Described:
        """What is known of the network: its config, labels, preprocessing and lineage."""
        return self.backend.described

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The names of the classes, in the order of the logits."""
        return self.described.labels

    def __call__(self, images: Any, top_k: int = 5) -> list[list[tuple[str, float]]]:
        """The likeliest classes of each image with their probabilities; one image may come without a list."""
        if top_k < 1:
            raise UsageError(f"top_k is {top_k}", wanted="at least 1")
        ensure_classes(self.described, self.source)
        logits = self.logits(images)
        chances = probabilities(logits, self.described)
        return [
            [(label(self.described, int(index)), float(row[index])) for index in best]
            for row, best in zip(chances, likeliest(logits, top_k), strict=True)
        ]

    def logits(self, images: Any) -> np.ndarray:
        """What the head gives: float32 (images, classes)."""
        return self._all(images, lambda answer: answer.logits, self.described.config.num_classes)

    def embed(self, images: Any) -> np.ndarray:
        """What the head reads: float32 (images, dim), for search and clustering."""
        return self._all(images, lambda answer: answer.features, 0)

    def answers(self, handed: Sequence[Handed]) -> Iterator[Answer]:
        """An answer for each image, in order; one that cannot be read is told and the others are done."""
        with ThreadPoolExecutor(min(_MOST_READERS, usable_cores())) as readers:
            try:
                for names, prepared in _ahead(readers, self._prepared, handed, self.batch_size):
                    yield from self._answered(names, prepared)
            finally:
                # Who stops does not wait for images that nobody will see.
                readers.shutdown(wait=False, cancel_futures=True)

    def prepare(self, handed: Handed, policy: DecodePolicy | None = None) -> Prepared:
        """Decode one image and fit it to the network, as evaluation does; a `policy` may allow fewer pixels."""
        config, preprocessing = self.described.config, self.described.preprocessing
        assert preprocessing is not None, "the backend is opened only where it is known"
        decoded = handed.decoded("L" if config.channels == 1 else "RGB", policy or self._policy)
        seen = fit_image(decoded.image, self.size, preprocessing)
        return Prepared(normalised(seen, preprocessing), seen, decoded.frames)

    def _prepared(self, handed: Handed) -> Prepared | DataError:
        try:
            return self.prepare(handed)
        except DataError as error:
            return error

    def _answered(self, batch: Sequence[Handed], prepared: Sequence[Prepared | DataError]) -> Iterator[Answer]:
        fine = [image.pixels for image in prepared if isinstance(image, Prepared)]
        rows: Iterator[tuple[np.ndarray, np.ndarray]] = iter(())
        if fine:
            logits, features = self.backend.run(np.stack(fine))
            ensure_finite(logits, self.source)
            rows = zip(logits, features, strict=True)
        for handed, image in zip(batch, prepared, strict=True):
            if isinstance(image, DataError):
                yield Answer(handed.name, error=image)
            else:
                one_logits, one_features = next(rows)
                yield Answer(handed.name, one_logits, one_features, image.frames)

    def _all(self, images: Any, part: Callable[[Answer], np.ndarray | None], width: int) -> np.ndarray:
        rows = []
        for answer in self.answers(from_objects(images)):
            if answer.error is not None:
                raise answer.error
            rows.append(part(answer))
        return np.stack(rows) if rows else np.empty((0, width), dtype=np.float32)


def _ensure_pixels(described: Described, size: tuple[int, int], policy: DecodePolicy, where: str) -> None:
    """Refuse a network that no image can be prepared for; a record that came with weights may say anything."""
    channels, preprocessing = described.config.channels, described.preprocessing
    if channels not in (1, 3):
        raise UsageError(f"the network reads {channels} channels", wanted="1 for grey or 3 for colour", where=where)
    if preprocessing is not None and channels == 3 and len(preprocessing.mean) not in (1, 3):
        came = f"the preprocessing has a mean for each of {len(preprocessing.mean)} channels"
        raise DataError(came, wanted="3", where=where, fix=f"Name another with {setting('preprocessing')}.")
    if size[0] * size[1] > policy.max_pixels:
        raise UsageError(
            f"the image size is {times(size)}", wanted=f"at most {policy.max_pixels:,} pixels", where=where
        )


def _named(backend: Backend, path: Path, where: str) -> Backend:
    names = read_class_names(path)
    ensure_named(names, backend.described.config.num_classes, path, where)
    return dataclasses.replace(backend, described=dataclasses.replace(backend.described, labels=names))


def _ahead(
    readers: ThreadPoolExecutor,
    read: Callable[[Handed], Prepared | DataError],
    handed: Iterable[Handed],
    batch_size: int,
) -> Iterator[tuple[list[Handed], list[Prepared | DataError]]]:
    """Batches in order, the next few being read meanwhile."""
    waiting: list[tuple[list[Handed], list]] = []
    for batch in _batched(handed, batch_size):
        waiting.append((batch, [readers.submit(read, one) for one in batch]))
        if len(waiting) > _AHEAD:
            names, futures = waiting.pop(0)
            yield names, [future.result() for future in futures]
    for names, futures in waiting:
        yield names, [future.result() for future in futures]


def _batched(items: Iterable[Handed], size: int) -> Iterator[list[Handed]]:
    rest = iter(items)
    while batch := list(itertools.islice(rest, size)):
        yield batch
