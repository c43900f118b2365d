"""What a network makes of every image of a source before its head reads it."""

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from vitrail.data import Source
from vitrail.errors import DataError, setting
from vitrail.evaluation.feature_sets import not_finite
from vitrail.evaluation.outputs import all_outputs
from vitrail.evaluation.subject import Subject
from vitrail.runtime.processes import ALONE, Processes


def extract_features(
    subject: Subject,
    source: Source,
    *,
    processes: Processes = ALONE,
    batch_size: int,
    network: Callable[[Tensor], Tensor] | None = None,
    **how: Any,
) -> np.ndarray:
    """The features of every image once, in the order of the source, as `all_outputs` takes them: (images, dim).

    `network` computes them where the model itself does not, because it is measured with other weights.
    """
    network = network or subject.model.features
    features = all_outputs(network, subject, source, batch_size=batch_size, processes=processes, **how)
    with processes.together():
        _ensure_finite(features, subject, source)
    return features


def _ensure_finite(features: np.ndarray, subject: Subject, source: Source) -> None:
    if len(rows := not_finite(features)):
        others = f", and neither are those of {len(rows) - 1:,} more" if len(rows) > 1 else ""
        raise DataError(
            f"the features of this image by {subject.name} are not finite{others}",
            wanted="numbers",
            where=source.where(int(rows[0])),
            fix=f"Try {setting('precision', 'float32')}."
            if subject.bfloat16
            else "Look at the weights: a run may have diverged.",
        )
