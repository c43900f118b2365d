"""What computes the answers: a network in torch, compiled or not, or an exported file in its runtime."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vitrail.errors import UsageError, setting
from vitrail.weights.record import Described

if TYPE_CHECKING:
    import torch

    from vitrail.exporting.exported import Exported
    from vitrail.models import Classifier

Outputs = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Backend:
    """One way to compute a network; all of them give the logits of float32 torch up to 1e-4."""

    name: str
    """For people, with the version: `openvino 2026.4.1`."""
    described: Described
    run: Callable[[np.ndarray], Outputs]
    """Prepared images (batch, channels, height, width) -> logits (batch, classes), features (batch, dim), float32."""
    any_size: bool = False
    """Whether images of other sizes than the config's may come."""
    network: "Classifier | None" = None
    """What torch computes, for those who look inside; none for an exported file."""


def exported_backend(exported: "Exported") -> Backend:
    """An exported file."""
    return Backend(exported.runtime, exported.described, exported.run, exported.any_size)


def torch_backend(
    model: "Classifier", device: str = "auto", *, compiled: bool = False, batch_size: int = 32
) -> Backend:
    """A living network in float32, on the device asked for; compiled for batches of this size and its halves."""
    import torch

    from vitrail.runtime.device import find_device
    from vitrail.runtime.out_of_memory import is_out_of_memory
    from vitrail.weights.checkpoint import from_model, without_tensors

    place = find_device(device)
    network = model.to(place).eval()
    # Features and logits from one pass, as one function to compile.
    both = _both(network)
    compute = torch.compile(both, dynamic=False) if compiled else both

    def run(images: np.ndarray) -> Outputs:
        count = len(images)
        if compiled and count < batch_size:
            images = np.resize(images, (_compiled_size(count, batch_size), *images.shape[1:]))
        try:
            with torch.inference_mode(), _all_of_float32(place):
                logits, features = compute(torch.from_numpy(images).to(place))
                return logits[:count].float().cpu().numpy(), features[:count].float().cpu().numpy()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            came = f"{count} images at a time do not fit into the memory of {place}"
            raise UsageError(came, fix=f"Choose a smaller {setting('batch_size')}.") from None

    name = f"{'compiled ' if compiled else ''}torch {torch.__version__}, {place}"
    return Backend(name, without_tensors(from_model(model)), run, network=network)


def _both(network: "Classifier") -> Callable:
    def compute(images):
        features = network.features(images)
        return network.head(features), features

    return compute


def _compiled_size(count: int, largest: int) -> int:
    """The smallest batch of few kinds that holds so many images: every other size would be compiled anew."""
    while (half := -(-largest // 2)) >= count and half < largest:
        largest = half
    return largest


@contextmanager
def _all_of_float32(device: "torch.device") -> Iterator[None]:
    """On a GPU convolutions would drop 13 of the 23 bits behind the point, and logits move by more than we allow."""
    import torch

    cudnn = torch.backends.cudnn
    if device.type != "cuda" or cudnn.conv.fp32_precision != "tf32":  # type: ignore[attr-defined]
        yield
        return
    cudnn.allow_tf32 = False
    try:
        yield
    finally:
        cudnn.allow_tf32 = True
