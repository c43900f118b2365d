"""What training makes small: softmax or sigmoid cross-entropy, with smoothed and mixed targets."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from vitrail.config import TrainConfig

Objective = Callable[[Tensor, Tensor], Tensor]
"""From logits (batch, classes) and targets to one loss per image (batch,)."""


def build_objective(config: TrainConfig) -> Objective:
    """The objective that a config names, smoothed as it says."""
    cross_entropy = OBJECTIVES[config.loss]
    return lambda logits, targets: cross_entropy(logits, shares(targets, logits.shape[1], config.label_smoothing))


def softmax_cross_entropy(
    logits: Float[Tensor, "batch classes"], targets: Float[Tensor, "batch classes"]
) -> Float[Tensor, "batch"]:
    """`-sum_k y_k log softmax(x)_k`."""
    return -(targets * functional.log_softmax(logits, dim=1)).sum(dim=1)


def sigmoid_cross_entropy(
    logits: Float[Tensor, "batch classes"], targets: Float[Tensor, "batch classes"]
) -> Float[Tensor, "batch"]:
    """`-sum_k y_k log sigmoid(x_k) + (1 - y_k) log sigmoid(-x_k)`: a sum over classes, as in the original."""
    return functional.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(dim=1)


OBJECTIVES: dict[str, Objective] = {"softmax": softmax_cross_entropy, "sigmoid": sigmoid_cross_entropy}


def shares(targets: Tensor, classes: int, smoothing: float = 0.0) -> Float[Tensor, "batch classes"]:
    """Targets as shares of classes: class numbers become ones among zeros, and smoothing spreads some of each."""
    if targets.ndim == 1:
        # A comparison and not one_hot, which looks at the values and so waits for the device.
        targets = (targets[:, None] == torch.arange(classes, device=targets.device)).float()
    return targets * (1 - smoothing) + smoothing / classes if smoothing else targets


def hits(logits: Float[Tensor, "batch classes"], targets: Tensor) -> Float[Tensor, "batch"]:
    """The share of the target that the first guess of each image has: 1 or 0 where images are not mixed."""
    guess = logits.argmax(dim=1)
    return (guess == targets).float() if targets.ndim == 1 else targets.gather(1, guess[:, None])[:, 0].float()


def own_losses(answers: Float[Tensor, "batch 2"], _targets: Tensor) -> Float[Tensor, "batch"]:
    """Of a network that hides patches and predicts them, and so measures itself."""
    return answers[:, 0]


def own_hits(answers: Float[Tensor, "batch 2"], _targets: Tensor) -> Float[Tensor, "batch"]:
    """The share of its hidden patches that it guessed right."""
    return answers[:, 1]
