"""Proof that ours computes a peer's function: the peer's weights in our network, its outputs and gradients compared."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from peers import Peer
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

import vitrail
from vitrail.config import VitConfig

# float32 against float32: the orders of summation differ, nothing else may.
_WITHIN = 1e-4
_IMAGES = 2


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How far our network with a peer's weights is from the peer, in float32 on the CPU."""

    model: str
    peer: str
    logits: float
    """Largest difference."""
    magnitude: float
    """Largest logit, to judge the difference by."""
    gradient: float
    """‖ours - theirs‖ / ‖theirs‖ of the gradient of the loss with respect to the images."""


def with_weights_of(theirs: nn.Module, config: VitConfig) -> nn.Module:
    """Our network, loaded from the peer's state dict: its weights and its numerics."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "theirs.safetensors"
        save_file({name: tensor.contiguous() for name, tensor in theirs.state_dict().items()}, path)
        return vitrail.load_model(path, num_heads=config.num_heads)


def logits_of(output: Tensor | object) -> Tensor:
    """Logits, also where a library returns them inside an object."""
    return getattr(output, "logits", output)  # type: ignore[return-value]


def check_agreement(model: str, peer: Peer, ours: nn.Module, theirs: nn.Module, config: VitConfig) -> Agreement:
    """Compare on fresh random images; networks that are not the same function are not worth timing."""
    images = torch.randn(_IMAGES, config.channels, *config.image_size)
    labels = torch.randint(config.num_classes, (_IMAGES,))
    ours_logits, theirs_logits = _logits(ours, images), _logits(theirs, images)
    ours_gradient, theirs_gradient = _gradient(ours, images, labels), _gradient(theirs, images, labels)
    found = Agreement(
        model=model,
        peer=peer.name,
        logits=float((ours_logits - theirs_logits).abs().max()),
        magnitude=float(theirs_logits.abs().max()),
        gradient=float((ours_gradient - theirs_gradient).norm() / theirs_gradient.norm()),
    )
    # Written so that NaN fails.
    if not (found.logits <= _WITHIN and found.gradient <= _WITHIN and found.magnitude > 0):
        raise RuntimeError(f"ours is not the function of {peer.name}: {found}; wanted differences within {_WITHIN}")
    return found


def _logits(network: nn.Module, images: Tensor) -> Tensor:
    with torch.inference_mode():
        return logits_of(network.eval()(images))


def _gradient(network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    watched = images.clone().requires_grad_()
    functional.cross_entropy(logits_of(network.train()(watched)), labels).backward()
    network.zero_grad(set_to_none=True)
    if watched.grad is None:
        raise RuntimeError("no gradient reached the images")
    return watched.grad
