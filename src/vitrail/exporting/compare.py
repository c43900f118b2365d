"""Whether an exported file says what its network says: the same images through both, in batches of several sizes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vitrail.config import VitConfig, times
from vitrail.data import Preparation
from vitrail.errors import DataError, VitrailError, setting
from vitrail.exporting.agree import allowed_difference, largest_difference
from vitrail.exporting.exported import Exported, open_exported
from vitrail.exporting.samples import Samples
from vitrail.models import Classifier
from vitrail.weights.adapt import with_image_size
from vitrail.weights.checkpoint import from_model, to_model

BATCH_SIZES = (1, 2, 7)

_OTHER_SIZE_IMAGES = 7
_REFERENCE_BATCH = 16

Advance = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What was compared, and how far the file is from its network."""

    images: str
    """Where they come from."""
    count: int
    batch_sizes: tuple[int, ...]
    sizes: tuple[str, ...]
    """Heights and widths."""
    difference: float
    """The largest of a logit, in logits."""
    feature_difference: float
    largest_logit: float
    same_top1: int
    """Images for which file and network say the same class first; all of them for a network without classes."""
    runtime: str
    labelled: int = 0
    """Images whose class is known."""
    right_torch: int | None = None
    right_exported: int | None = None


def passes(count: int, any_size: bool) -> int:
    """How many images go through a network or a file in all, for a bar."""
    return count * (1 + len(BATCH_SIZES)) + (2 * 2 * _OTHER_SIZE_IMAGES if any_size else 0)


def compare(
    model: Classifier,
    path: Path,
    preparation: Preparation,
    samples: Samples,
    images: Tensor,
    advance: Advance | None = None,
) -> Comparison:
    """Open a written file anew and compare it on prepared images; a DataError says by how much it disagrees."""
    advance = advance or (lambda _done: None)
    exported = open_exported(path)
    expected = _torch(model, images, advance)
    if not all(np.isfinite(one).all() for one in expected):
        raise DataError("the network gives numbers that are not finite", fix="Its weights are damaged.")
    found = [_file(exported, images, size, advance) for size in BATCH_SIZES]
    answers = [(expected, one) for one in found]
    sizes = [preparation.size]
    if exported.any_size:
        for size in other_sizes(model):
            other = samples.prepared(replace(preparation, size=size), _OTHER_SIZE_IMAGES)
            resized = to_model(with_image_size(from_model(model), size, "google"), "memory")
            answers.append((_torch(resized, other, advance), _file(exported, other, len(other), advance)))
            sizes.append(size)
    for ours, theirs in answers:
        _ensure_equal(ours, theirs, exported)
    classes = model.config.num_classes
    tops = [one[0].argmax(axis=1) for one in (expected, *found)]
    right = [_right(top, samples.targets) for top in (tops[0], tops[1])] if classes else [None, None]
    return Comparison(
        images=samples.about,
        count=len(images),
        batch_sizes=BATCH_SIZES,
        sizes=tuple(times(size) for size in sizes),
        difference=max(largest_difference(ours[0], theirs[0]) for ours, theirs in answers),
        feature_difference=max(largest_difference(ours[1], theirs[1]) for ours, theirs in answers),
        largest_logit=max(float(np.abs(ours[0]).max()) for ours, _ in answers),
        same_top1=int(np.logical_and.reduce([top == tops[0] for top in tops]).sum()),
        runtime=exported.runtime,
        labelled=0 if samples.targets is None else len(samples.targets),
        right_torch=right[0],
        right_exported=right[1],
    )


def other_sizes(model: Classifier) -> tuple[tuple[int, int], tuple[int, int]]:
    """Two sizes beside its own that show whether a file for any size is one: larger, and wider than high."""
    config = model.config
    height, width = config.image_size
    step = config.pixels_per_patch if isinstance(config, VitConfig) else (32, 32)
    # Half a patch more must be dropped, as the original does.
    return (height + 2 * step[0] + step[0] // 2, width + 2 * step[1]), (height, 2 * width)


def _torch(model: Classifier, images: Tensor, advance: Advance) -> tuple[np.ndarray, np.ndarray]:
    logits, features = [], []
    with torch.inference_mode():
        for part in images.split(_REFERENCE_BATCH):
            features.append(model.features(part))
            logits.append(model.head(features[-1]))
            advance(len(part))
    return torch.cat(logits).numpy(), torch.cat(features).numpy()


def _file(exported: Exported, images: Tensor, batch_size: int, advance: Advance) -> tuple[np.ndarray, np.ndarray]:
    found = []
    for part in images.split(batch_size):
        try:
            found.append(exported.run(part.numpy()))
        except VitrailError as error:
            raise _disagree(error.came, exported, error.wanted) from error
        advance(len(part))
    logits, features = (np.concatenate(column) for column in zip(*found, strict=True))
    return logits, features


def _ensure_equal(
    ours: tuple[np.ndarray, np.ndarray], theirs: tuple[np.ndarray, np.ndarray], exported: Exported
) -> None:
    # Without a head, both are features.
    first = "logits" if exported.described.config.num_classes else "features"
    for what, expected, found in zip((first, "features"), ours, theirs, strict=True):
        if expected.shape != found.shape:
            raise _disagree(f"its {what} are {found.shape} and torch's {expected.shape}", exported)
        allowed = allowed_difference(expected)
        apart = largest_difference(expected, found)
        if not apart <= allowed:  # also when it is not a number
            raise _disagree(f"its {what} differ from torch's by up to {apart:.3g}", exported, f"at most {allowed:.1e}")
        if what == "logits" and expected.shape[1] > 1:
            best = np.sort(expected, axis=1)
            sure = best[:, -1] - best[:, -2] > 2 * allowed
            if (other := int((expected.argmax(1) != found.argmax(1))[sure].sum())) > 0:
                raise _disagree(f"it says another class for {other} images", exported)


def _disagree(what: str, exported: Exported, wanted: str = "the same") -> DataError:
    return DataError(
        f"the file was made and deleted, because {what} ({exported.runtime})",
        wanted=wanted,
        fix=f"Another kind may be exact: {setting('to', 'onnx')}, openvino or torch.",
    )


def _right(top: np.ndarray, targets: Tensor | None) -> int | None:
    if targets is None:
        return None
    guesses = torch.from_numpy(top[: len(targets)])
    if targets.ndim == 1:
        return int((guesses == targets).sum())
    return int((targets[torch.arange(len(targets)), guesses] > 0).sum())
