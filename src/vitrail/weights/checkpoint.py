"""A network at rest: its config, its tensors and the facts that travel with them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from torch import Tensor

from vitrail.config import ModelConfig, Preprocessing
from vitrail.errors import DataError, UsageError, marked
from vitrail.models import Classifier
from vitrail.models.empty import build_empty
from vitrail.weights.record import Described

State = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Checkpoint(Described):
    """What every reader returns and every writer takes."""

    state: State


def with_tensors(described: Described, state: State) -> Checkpoint:
    """The checkpoint of a network that a record describes."""
    return Checkpoint(**vars(described), state=state)


def without_tensors(checkpoint: Checkpoint) -> Described:
    """What is said about a network, and nothing of its weight."""
    return Described(**{field.name: getattr(checkpoint, field.name) for field in fields(Described)})


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all tensors of the network a config describes."""
    return {name: tuple(tensor.shape) for name, tensor in build_empty(config).state_dict().items()}


def to_model(checkpoint: Checkpoint, where: str) -> Classifier:
    """Build the network around the tensors, without initialising weights that are about to be replaced."""
    model = build_empty(checkpoint.config)
    compare_tensors(checkpoint.state, {name: tuple(t.shape) for name, t in model.state_dict().items()}, where)
    model.load_state_dict(checkpoint.state, assign=True)
    model.fill_fixed_tables()
    model.labels, model.preprocessing = checkpoint.labels, checkpoint.preprocessing
    model.provenance, model.metrics = dict(checkpoint.provenance), dict(checkpoint.metrics)
    return model.requires_grad_().eval()


def from_model(model: Classifier) -> Checkpoint:
    """The checkpoint of a living network; tensors are shared, not copied.

    A network that its config does not describe is refused, because what is written must load again.
    """
    model = getattr(model, "_orig_mod", model)  # torch.compile wraps the network
    if getattr(model, "has_own_position", False):
        raise UsageError(
            "the network has a position embedding of its own, which no config describes",
            fix="Save its state_dict() with torch, and build the network anew before loading.",
        )
    _check_facts(model)
    try:
        compare_tensors(dict(model.state_dict()), expected_shapes(model.config), "the network")
    except DataError as error:
        fix = "Change a network through load_model(..., num_classes=) or its config, not by replacing its modules."
        raise UsageError(marked(error), fix=fix) from None
    if any(tensor.is_meta for tensor in model.state_dict().values()):
        raise UsageError("the network was built on the meta device and has no weights to save")
    return Checkpoint(
        config=model.config,
        state=dict(model.state_dict()),
        labels=model.labels,
        preprocessing=model.preprocessing,
        provenance=model.provenance,
        metrics=model.metrics,
    )


def compare_tensors(state: State, shapes: Mapping[str, tuple[int, ...]], where: str) -> None:
    """Refuse tensors that are not exactly those of a network, by name and by shape."""
    compare_names(set(state), set(shapes), where)
    for name, wanted in shapes.items():
        if tuple(state[name].shape) != wanted:
            raise DataError(
                f"the tensor {name!r} has shape {tuple(state[name].shape)}", wanted=f"{wanted}", where=where
            )


def _check_facts(model: Classifier) -> None:
    labels = model.labels
    if labels is not None and (
        len(labels) != model.config.num_classes or not all(isinstance(label, str) for label in labels)
    ):
        raise UsageError(
            f"labels holds {len(labels)} values", wanted=f"{model.config.num_classes} texts, one per class"
        )
    if model.preprocessing is not None and not isinstance(model.preprocessing, Preprocessing):
        raise UsageError(f"preprocessing is {model.preprocessing!r}", wanted="a vitrail.config.Preprocessing")


def compare_names(found: set[str], wanted: set[str], where: str) -> None:
    """Refuse a set of names that lacks one or has one too many, and name it."""
    for problem, names in (("is missing", wanted - found), ("is not part of this network", found - wanted)):
        if names:
            more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise DataError(f"the array {min(names)!r}{more} {problem}", where=where)
