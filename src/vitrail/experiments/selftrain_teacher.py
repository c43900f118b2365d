"""A model that labels: its outputs in the order of the classes that students learn."""

import unicodedata
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vitrail.errors import DataError, notice
from vitrail.evaluation.subject import Subject, open_subject

_FEW = 5


@dataclass(frozen=True)
class Teacher:
    """A model in evaluation mode, without any noise."""

    subject: Subject
    columns: np.ndarray
    """The output of each class."""

    @property
    def is_sigmoid(self) -> bool:
        """Whether it learnt each class by itself."""
        return self.subject.model.provenance.get("loss") == "sigmoid"

    def probabilities(self, logits: Tensor) -> Tensor:
        """What it says of each class, (images, classes).

        Outputs that were learnt one by one are read one by one, and then shared out: every image has one class here.
        """
        if not self.is_sigmoid:
            return logits[:, self.columns].softmax(dim=1)
        each = logits[:, self.columns].sigmoid()
        return each / each.sum(dim=1, keepdim=True).clamp_min(torch.finfo(each.dtype).tiny)


def open_teacher(
    source: str, classes: tuple[str, ...], data: str, device: torch.device, preprocessing: str | None = None
) -> Teacher:
    """Load whatever `load_model` takes; its classes have to be those of the data."""
    return as_teacher(open_subject(source, device=device, preprocessing=preprocessing), classes, data)


def as_teacher(subject: Subject, classes: tuple[str, ...], data: str) -> Teacher:
    """A model that is loaded already; its classes have to be those of the data."""
    model = subject.model
    return Teacher(subject, match_outputs(model.labels, model.config.num_classes, classes, subject.name, data))


def match_outputs(
    labels: tuple[str, ...] | None, outputs: int, classes: tuple[str, ...], model: str, data: str
) -> np.ndarray:
    """The output for each class: by name, or by number where names are not known."""
    fix = f"`vitrail finetune {model} --data {data}` teaches it these classes, and the result can be the teacher."
    if labels is None:
        if outputs != len(classes):
            came = f"the teacher has {outputs:,} classes without names" if outputs else "the teacher has no head"
            raise DataError(came, wanted=f"the {len(classes):,} classes of {data}", where=model, fix=fix)
        notice(f"{model}: the names of its classes are not known, so they are taken to be those of the data.")
        return np.arange(outputs)
    names = [unicodedata.normalize("NFC", name) for name in labels]
    places, wanted = ({name: place for place, name in enumerate(those)} for those in (names, classes))
    if len(places) < len(names):
        twice = next(name for place, name in enumerate(names) if places[name] != place)
        raise DataError(f"two classes of the teacher are called {twice!r}", where=model, fix=fix)
    if sorted(names) != sorted(classes):
        unknown = [name for name in classes if name not in places] or [name for name in names if name not in wanted]
        more = ", ..." if len(unknown) > _FEW else ""
        who = "the teacher does not know" if unknown[0] in classes else "only the teacher knows"
        raise DataError(
            f"{who} the class{'es' if len(unknown) > 1 else ''} {', '.join(map(repr, unknown[:_FEW]))}{more}",
            wanted=f"the {len(classes):,} classes of {data}",
            where=model,
            fix=fix,
        )
    return np.array([places[name] for name in classes])
