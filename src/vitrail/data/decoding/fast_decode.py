"""Faster decoders for training: what they show differs a little from Pillow, by an amount that is recorded."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitrail.config import DecodePolicy
from vitrail.data.decoding.decode import decode, pixels
from vitrail.data.decoding.jpeg import JpegHeader
from vitrail.data.sources.source import Source

# The scales at which libjpeg can stop early.
_DRAFT_SCALES = (8, 4, 2)


@dataclass(frozen=True)
class JpegBackend:
    """A library that decodes JPEGs into tensors (3, height, width): one on the CPU, a list of them on a GPU."""

    name: str
    on_cpu: Callable[[Tensor], Tensor]
    on_gpu: Callable[[list[Tensor], torch.device], list[Tensor]]


@lru_cache(maxsize=1)
def jpeg_backend() -> JpegBackend:
    """torchcodec where it is installed and loads, else torchvision's own reader."""
    try:
        from torchcodec.decoders import decode_jpeg  # type: ignore[attr-defined]
    except (ImportError, RuntimeError, OSError, AttributeError):
        return _torchvision()
    return JpegBackend(
        "torchcodec",
        on_cpu=lambda encoded: decode_jpeg(encoded, mode="RGB"),  # type: ignore[return-value]
        on_gpu=lambda encoded, device: decode_jpeg(encoded, mode="RGB", device=device),  # type: ignore[return-value]
    )


def _torchvision() -> JpegBackend:
    from torchvision.io import ImageReadMode, decode_jpeg

    return JpegBackend(
        "torchvision",
        on_cpu=lambda encoded: decode_jpeg(encoded, mode=ImageReadMode.RGB),  # type: ignore[return-value]
        on_gpu=lambda encoded, device: decode_jpeg(encoded, mode=ImageReadMode.RGB, device=device),  # type: ignore[return-value]
    )


def draft_scale(box: tuple[int, int, int, int], size: tuple[int, int]) -> int:
    """How many times smaller a JPEG may be decoded so that the box still has a pixel for each of the output's."""
    _, _, height, width = box
    return next((scale for scale in _DRAFT_SCALES if height >= scale * size[0] and width >= scale * size[1]), 1)


def decode_fast(
    encoded: bytes,
    header: JpegHeader,
    box: tuple[int, int, int, int],
    size: tuple[int, int],
    *,
    may_shrink: bool = True,
) -> tuple[Tensor, tuple[int, int, int, int]]:
    """Decode a plain JPEG, at a fraction of its size when the box allows it; returns pixels and the box in them.

    Decoding smaller is a low-pass filter, so it may be done only where the resize would have one too.
    """
    scale = draft_scale(box, size) if may_shrink else 1
    if scale == 1:
        return jpeg_backend().on_cpu(as_tensor(encoded)), box
    image = Image.open(io.BytesIO(encoded), formats=("JPEG",))
    image.draft("RGB", (header.width // scale, header.height // scale))
    smaller = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    return smaller, _scaled(box, header, smaller.shape[-2], smaller.shape[-1])


def as_tensor(encoded: bytes) -> Tensor:
    """The bytes as a tensor of their own."""
    return torch.frombuffer(bytearray(encoded), dtype=torch.uint8) if encoded else torch.empty(0, dtype=torch.uint8)


def _scaled(box: tuple[int, int, int, int], header: JpegHeader, height: int, width: int) -> tuple[int, int, int, int]:
    top, left = round(box[0] * height / header.height), round(box[1] * width / header.width)
    bottom = min(round((box[0] + box[2]) * height / header.height), height)
    right = min(round((box[1] + box[3]) * width / header.width), width)
    top, left = min(top, height - 1), min(left, width - 1)
    return top, left, max(bottom - top, 1), max(right - left, 1)


@dataclass(frozen=True)
class PixelDifference:
    """How far a decoder is from Pillow, in grey levels of 255."""

    decoder: str
    images: int
    mean: float
    largest: int


def measure_difference(
    source: Source, *, device: str = "cpu", at_most: int = 32, policy: DecodePolicy | None = None
) -> PixelDifference:
    """Compare the fast decoder itself with Pillow on the first plain JPEGs of a source."""
    from vitrail.data.decoding.jpeg import read_jpeg_header

    backend, differences, largest = jpeg_backend(), [], 0
    for index in range(len(source)):
        encoded = source.read(index)
        header = read_jpeg_header(encoded) if isinstance(encoded, bytes) else None
        if not isinstance(encoded, bytes) or header is None or not header.is_plain:
            continue
        decoded = decode(encoded, where=source.where(index), policy=policy or DecodePolicy())
        reference = torch.from_numpy(pixels(decoded).copy()).permute(2, 0, 1).int()
        tensor = as_tensor(encoded)
        fast = backend.on_cpu(tensor) if device == "cpu" else backend.on_gpu([tensor], torch.device(device))[0].cpu()
        difference = (fast.int() - reference).abs()
        differences.append(difference.float().mean().item())
        largest = max(largest, int(difference.max()))
        if len(differences) == at_most:
            break
    mean = float(np.mean(differences)) if differences else 0.0
    return PixelDifference(f"{backend.name} on {device}", len(differences), mean, largest)
