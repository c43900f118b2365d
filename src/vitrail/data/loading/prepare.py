"""From picks to pixels: what a worker does with a few images at a time."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitrail.config import AugmentConfig, DecodePolicy, Preprocessing, pair
from vitrail.config.data import Decoder
from vitrail.data.decoding.decode import Mode, check_size, decode, open_image, orientation, pixels
from vitrail.data.decoding.fast_decode import as_tensor, decode_fast
from vitrail.data.decoding.jpeg import JpegHeader, read_jpeg_header
from vitrail.data.loading.order import Picks
from vitrail.data.sources.source import Encoded, Source, read_patiently
from vitrail.data.transforms.augment import augment_bytes
from vitrail.data.transforms.boxes import Boxes, random_offsets, training_boxes
from vitrail.data.transforms.fit import Box, crop_room, fit_for_evaluation, fit_for_training
from vitrail.errors import DataError, UsageError, choose

Item = TypeVar("Item")
Made = TypeVar("Made")

_SIDEWAYS = (5, 6, 7, 8)
_PNG_ORIENTATION = (b"eXIf", b"Raw profile type exif", b"XML:com.adobe.xmp")


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """How the images of a source become the input of a network."""

    size: tuple[int, int]
    preprocessing: Preprocessing
    channels: int = 3
    augment: AugmentConfig | None = None
    """None prepares for evaluation."""
    decoder: Decoder = "pillow"
    """Only training looks at it: evaluation is always decoded by Pillow."""
    policy: DecodePolicy = field(default_factory=DecodePolicy)
    seed: int = 0
    """Set by the loader: that of the stream."""
    leave_jpegs: bool = False
    """Set by the loader: hand plain JPEGs on as they are, to be decoded on the GPU."""
    augment_here: bool = False
    """Set by the loader: flip and RandAugment in the worker, when there is no GPU to do it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", pair(self.size, "size"))
        if self.channels not in (1, 3):
            raise UsageError(f"channels is {self.channels}", wanted="1 for grey or 3 for colour")
        choose("decoder", self.decoder, ["pillow", "fast"])

    @property
    def mode(self) -> Mode:
        """Pillow's name for the channels."""
        return "L" if self.channels == 1 else "RGB"


@dataclass(frozen=True)
class LeftJpegs:
    """Images of a chunk that a worker leaves to the GPU."""

    data: Tensor
    """Their files, one after the other."""
    lengths: np.ndarray
    """Bytes of each."""
    where: tuple[str, ...]
    """Where a person finds each."""
    rows: np.ndarray
    """The place of each in the chunk."""
    boxes: np.ndarray
    """The part of each to cut out, (images, 4): top, left, height, width."""


@dataclass(frozen=True)
class Chunk:
    """A few prepared images, or the reasons why there are none."""

    targets: np.ndarray
    ids: np.ndarray
    epochs: np.ndarray
    images: Tensor | None = None
    """(images, channels, height, width): bytes, or float for an evaluation resize that does not round."""
    failures: tuple[DataError, ...] = ()
    """Where and why images could not be read."""
    left: LeftJpegs | None = None
    """When set, `images` has only the others, in their order, or is none."""


@dataclass(frozen=True)
class _Opened:
    """An image whose size is known and whose pixels are not yet."""

    encoded: Encoded
    where: str
    height: int
    width: int
    jpeg: JpegHeader | None = None
    """Set when a fast decoder may take it."""


def prepare_chunk(source: Source, picks: Picks, preparation: Preparation) -> Chunk:
    """Read, decode, cut and resize some images; what cannot be read is reported, never replaced."""
    ids = source.ids(picks.indices)
    # Every tensor costs a round trip between the processes, so that only the large one is one.
    chunk = Chunk(source.labels.targets(picks.indices).numpy(), ids, picks.epochs)
    failures: list[DataError] = []
    opened = _each(lambda index: _open(source, int(index), preparation), picks.indices, failures)
    if failures:
        return replace(chunk, failures=tuple(failures))
    if preparation.augment is None:
        images = _each(lambda item: _evaluated(item, preparation), opened, failures)
        return replace(chunk, images=None if failures else torch.stack(images), failures=tuple(failures))
    return _train(opened, chunk, preparation, preparation.augment)


def _train(opened: list[_Opened], chunk: Chunk, preparation: Preparation, augment: AugmentConfig) -> Chunk:
    heights, widths = np.array([item.height for item in opened]), np.array([item.width for item in opened])
    boxes = training_boxes(augment, preparation.seed, chunk.epochs, chunk.ids, heights, widths)
    offsets = random_offsets(preparation.seed, chunk.epochs, chunk.ids, crop_room(augment, preparation.size))
    left = [row for row, item in enumerate(opened) if preparation.leave_jpegs and item.jpeg is not None]
    here = sorted(set(range(len(opened))) - set(left))
    images = torch.empty(len(here), preparation.channels, *preparation.size, dtype=torch.uint8)
    failures: list[DataError] = []

    def fill(place: int) -> None:
        row = here[place]
        pixels, box = _decoded(opened[row], boxes[row], preparation)
        offset = int(offsets[row, 0]), int(offsets[row, 1])
        images[place] = fit_for_training(pixels, box, preparation.size, offset, augment, preparation.preprocessing)

    _each(fill, range(len(here)), failures)
    if preparation.augment_here and not failures:
        images = augment_bytes(images, chunk.epochs, chunk.ids, preparation.seed, augment)
    return replace(
        chunk,
        images=images if here else None,
        failures=tuple(failures),
        left=_left(opened, left, boxes) if left else None,
    )


def _left(opened: list[_Opened], rows: list[int], boxes: Boxes) -> LeftJpegs:
    encoded = [item for row in rows if isinstance(item := opened[row].encoded, bytes)]
    return LeftJpegs(
        data=as_tensor(b"".join(encoded)),
        lengths=np.array([len(item) for item in encoded], dtype=np.int64),
        where=tuple(opened[row].where for row in rows),
        rows=np.array(rows, dtype=np.int64),
        boxes=np.array([boxes[row] for row in rows], dtype=np.int64),
    )


def _each(function: Callable[[Item], Made], items: Iterable[Item], failures: list[DataError]) -> list[Made]:
    """What `function` makes of each item; an item with a DataError is reported and left out."""
    made = []
    for item in items:
        try:
            made.append(function(item))
        except DataError as error:
            failures.append(error)
    return made


def _open(source: Source, index: int, preparation: Preparation) -> _Opened:
    encoded = read_patiently(source, index)
    where = source.where(index)
    if isinstance(encoded, np.ndarray):
        return _Opened(encoded, where, *encoded.shape[:2])
    header = read_jpeg_header(encoded) if preparation.decoder == "fast" and preparation.channels == 3 else None
    if header is not None and header.is_plain:
        check_size(header.height, header.width, where=where, policy=preparation.policy)
        return _Opened(encoded, where, header.height, header.width, header)
    image = open_image(encoded, where=where, policy=preparation.policy)
    turned = _may_be_turned(image, encoded) and orientation(image) in _SIDEWAYS
    return _Opened(encoded, where, *((image.width, image.height) if turned else (image.height, image.width)))


def _may_be_turned(image: Image.Image, encoded: bytes) -> bool:
    """Whether it is worth asking: for a PNG without such a block Pillow would decode it all to find none."""
    return image.format != "PNG" or any(mark in encoded for mark in _PNG_ORIENTATION)


def _decoded(item: _Opened, box: Box, preparation: Preparation) -> tuple[Tensor, Box]:
    """Pixels (channels, height, width) and the box in them, which a decoder that shrinks has moved."""
    if item.jpeg is not None and isinstance(item.encoded, bytes):
        try:
            shrink = preparation.preprocessing.antialias
            return decode_fast(item.encoded, item.jpeg, box, preparation.size, may_shrink=shrink)
        except (RuntimeError, OSError, Image.DecompressionBombError) as error:
            reason = str(error).strip().splitlines()[0][:120]
            raise DataError(f"the JPEG data is damaged or cut off ({reason})", where=item.where) from None
    if isinstance(item.encoded, np.ndarray) and item.encoded.ndim == preparation.channels == 3:
        # A copy, because the pixels may be a file that is mapped read-only; only of the box, because they are many.
        top, left, height, width = box
        part = np.array(item.encoded[top : top + height, left : left + width])
        return torch.from_numpy(part).permute(2, 0, 1), (0, 0, height, width)
    decoded = decode(item.encoded, preparation.mode, where=item.where, policy=preparation.policy)
    return torch.from_numpy(pixels(decoded).copy()).permute(2, 0, 1), box


def _evaluated(item: _Opened, preparation: Preparation) -> Tensor:
    decoded = decode(item.encoded, preparation.mode, where=item.where, policy=preparation.policy)
    return fit_for_evaluation(decoded.image, preparation.size, preparation.preprocessing)
