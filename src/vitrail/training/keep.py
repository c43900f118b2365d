"""The model that a run keeps: weights with class names, preprocessing, where they come from and how good they are."""

from typing import Any

from torch import Tensor

from vitrail.config import RunConfig, to_json
from vitrail.data.sources.taught import lineage_of
from vitrail.evaluation import Metrics
from vitrail.models.masked import MaskedNetwork
from vitrail.runtime.json_text import finite
from vitrail.training.folder import RunFolder
from vitrail.training.session import Session
from vitrail.weights.checkpoint import Checkpoint
from vitrail.weights.save import write_checkpoint


def keep_model(session: Session, folder: RunFolder, metrics: Metrics | None) -> None:
    """Write `model/`, in place of what was there; one process does, once all have given what they hold."""
    weights = session.weights()
    if session.processes.is_first:
        _write(session, folder, weights, metrics)
    session.processes.wait()


def recorded(config: RunConfig, metrics: Metrics) -> dict[str, Any]:
    """Numbers as they travel with a model: one that learnt without labels has no accuracy, but a share of its own."""
    if config.masking is None:
        return finite(metrics.record())
    return finite({"images": metrics.images, config.masking.guessed: metrics.accuracy, "loss": metrics.loss})


def _write(session: Session, folder: RunFolder, weights: dict[str, Tensor], metrics: Metrics | None) -> None:
    config, progress, model = session.config, session.progress, session.model
    if isinstance(model, MaskedNetwork):
        # What was only there to learn without labels has no use in what comes next.
        weights = {name: tensor for name, tensor in weights.items() if name in model.encoder_names}
    provenance: dict[str, Any] = {
        "recipe": config.recipe,
        "data": config.data.data,
        "split": config.data.split,
        "start": config.start,
        "step": progress.step,
        "steps": progress.steps,
        "seed": config.train.seed,
        "loss": None if config.masking else config.train.loss,
        "masking": to_json(config.masking),
        "taught": lineage_of(session.data.train),
        "averaged": session.average is not None,
    }
    measured = {} if metrics is None else {"held_out": recorded(config, metrics)}
    write_checkpoint(
        Checkpoint(
            config=config.model,
            state={name: tensor.detach().cpu() for name, tensor in weights.items()},
            labels=None if config.masking else session.data.train.classes,
            preprocessing=config.preprocessing,
            provenance=provenance,
            metrics=measured,
        ),
        folder.model,
        "vitrail",
    )
