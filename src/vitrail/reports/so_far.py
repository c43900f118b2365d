"""The network of a run that has kept no model yet: the weights of its newest checkpoint."""

import torch

from vitrail.config import pair
from vitrail.data import Preparation
from vitrail.evaluation.subject import Subject, known_preprocessing
from vitrail.training import checkpoint as checkpoints
from vitrail.training.folder import RunFolder, read_run
from vitrail.weights.adapt import with_image_size
from vitrail.weights.checkpoint import Checkpoint, to_model
from vitrail.weights.load import Size


def subject_so_far(
    folder: RunFolder,
    *,
    image_size: Size | None = None,
    preprocessing: str | None = None,
    device: torch.device | None = None,
) -> Subject | None:
    """The average where the run keeps one, else the weights; none where there is no checkpoint either."""
    if not checkpoints.listed(folder.checkpoints):
        return None
    found, record, device = checkpoints.newest(folder.checkpoints), read_run(folder), device or torch.device("cpu")
    config, path = record.config, str(folder.path)
    prepared = known_preprocessing(config.preprocessing, preprocessing, path)
    provenance = {"recipe": config.recipe, "data": config.data.data, "start": config.start}
    stored = Checkpoint(
        config=config.model,
        state=found.tensors.get("average") or found.tensors.get("model", {}),
        labels=record.classes,
        preprocessing=prepared,
        provenance={**provenance, "step": found.state["step"], "loss": config.train.loss},
        metrics={},
    )
    if image_size is not None:
        stored = with_image_size(stored, pair(image_size, "image_size"), "google")
    model = to_model(stored, str(found.path)).to(device)
    size, channels = model.config.image_size, model.config.channels
    return Subject(path, model, Preparation(size=size, preprocessing=prepared, channels=channels), device)
