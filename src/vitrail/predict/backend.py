"""What computes the answers: a network in torch, compiled or not, or an exported file in its runtime."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vitrail.weights.record import Described

if TYPE_CHECKING:
    from vitrail.export.exported import Exported
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


def exported_backend(exported: "Exported") -> Backend:
    """An exported file."""
    return Backend(exported.runtime, exported.described, exported.run, exported.any_size)


def torch_backend(model: "Classifier", device: str = "auto", *, compiled: bool = False) -> Backend:
    """A living network in float32, on the device asked for."""
    import torch

    from vitrail.runtime.device import find_device
    from vitrail.weights.checkpoint import from_model, without_tensors

    place = find_device(device)
    network = model.to(place).eval()
    # Features and logits from one pass, as one function to compile.
    both = _both(network)
    compute = torch.compile(both, dynamic=False) if compiled else both

    def run(images: np.ndarray) -> Outputs:
        with torch.inference_mode():
            logits, features = compute(torch.from_numpy(images).to(place))
            return logits.float().cpu().numpy(), features.float().cpu().numpy()

    name = f"{'compiled ' if compiled else ''}torch {torch.__version__}, {place}"
    return Backend(name, without_tensors(from_model(model)), run)


def _both(network: "Classifier") -> Callable:
    def compute(images):
        features = network.features(images)
        return network.head(features), features

    return compute
