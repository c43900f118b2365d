"""A network at rest: its config, its tensors and the facts that travel with them."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vitrail.config import ModelConfig, Preprocessing
from vitrail.errors import DataError
from vitrail.models import Classifier, build

State = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What every reader returns and every writer takes."""

    config: ModelConfig
    state: State
    labels: tuple[str, ...] | None = None
    preprocessing: Preprocessing | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all tensors of the network a config describes."""
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in build(config).state_dict().items()}


def to_model(checkpoint: Checkpoint, where: str) -> Classifier:
    """Build the network around the tensors, without initialising weights that are about to be replaced."""
    with torch.device("meta"):
        model = build(checkpoint.config)
    compare_names(set(checkpoint.state), set(model.state_dict()), where)
    for name, tensor in model.state_dict().items():
        if checkpoint.state[name].shape != tensor.shape:
            came, wanted = tuple(checkpoint.state[name].shape), tuple(tensor.shape)
            raise DataError(f"the tensor {name!r} has shape {came}", wanted=f"{wanted}", where=where)
    model.load_state_dict(checkpoint.state, assign=True)
    model.fill_fixed_tables()
    model.labels, model.preprocessing = checkpoint.labels, checkpoint.preprocessing
    model.provenance, model.metrics = dict(checkpoint.provenance), dict(checkpoint.metrics)
    return model.requires_grad_().eval()


def from_model(model: Classifier) -> Checkpoint:
    """The checkpoint of a living network; tensors are shared, not copied."""
    return Checkpoint(
        config=model.config,
        state=dict(model.state_dict()),
        labels=model.labels,
        preprocessing=model.preprocessing,
        provenance=model.provenance,
        metrics=model.metrics,
    )


def compare_names(found: set[str], wanted: set[str], where: str) -> None:
    """Refuse a set of names that lacks one or has one too many, and name it."""
    for problem, names in (("is missing", wanted - found), ("is not part of this network", found - wanted)):
        if names:
            more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise DataError(f"the array {min(names)!r}{more} {problem}", where=where)
