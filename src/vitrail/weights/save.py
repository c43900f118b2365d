"""From a network to a file in any of the layouts."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vitrail.config import ModelConfig
from vitrail.errors import choose
from vitrail.models import Classifier
from vitrail.weights import parts
from vitrail.weights.checkpoint import Checkpoint, compare_tensors, expected_shapes, from_model
from vitrail.weights.folder import write_folder
from vitrail.weights.google import google_numerics, write_google
from vitrail.weights.library import HUGGINGFACE, TIMM, TORCHVISION, write_file, write_huggingface
from vitrail.weights.numerics import Change, numerics_changed, tell_numerics
from vitrail.weights.record import FORMAT
from vitrail.weights.target import check_file, check_folder


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A way to write a network, what it can hold, and what its readers make of it."""

    check_target: Callable[[Path], None]
    write: Callable[[Path, Checkpoint], None]
    reads_as: Callable[[ModelConfig], ModelConfig]
    holds: frozenset[str] | None
    """Parts beyond a plain class-token ViT; none for everything."""


_GOOGLE_PARTS = frozenset(
    {
        parts.BIT,
        parts.RESNET,
        parts.MEAN_POOLING,
        parts.ATTENTION_POOLING,
        parts.PRE_LOGITS,
        parts.NO_CLASS_ROW,
        parts.SINCOS_2D,
    }
)

LAYOUTS: dict[str, Layout] = {
    "vitrail": Layout(
        check_target=partial(check_folder, "vitrail", FORMAT),
        write=write_folder,
        reads_as=lambda config: config,
        holds=None,
    ),
    "google": Layout(
        check_target=partial(check_file, "google", ".npz"),
        write=write_google,
        reads_as=google_numerics,
        holds=_GOOGLE_PARTS,
    ),
    "timm": Layout(
        check_target=partial(check_file, "timm", ".safetensors"),
        write=partial(write_file, TIMM),
        reads_as=TIMM.reads_as,
        holds=TIMM.holds,
    ),
    "torchvision": Layout(
        check_target=partial(check_file, "torchvision", ".safetensors"),
        write=partial(write_file, TORCHVISION),
        reads_as=TORCHVISION.reads_as,
        holds=TORCHVISION.holds,
    ),
    "huggingface": Layout(
        check_target=partial(check_folder, "huggingface", "ViTForImageClassification"),
        write=write_huggingface,
        reads_as=HUGGINGFACE.reads_as,
        holds=HUGGINGFACE.holds,
    ),
}


def save_model(model: Classifier, path: str | Path, layout: str = "vitrail") -> None:
    """Write a network: our model folder, or google (.npz), timm, torchvision (.safetensors), huggingface (a folder)."""
    changes = write_checkpoint(from_model(model), path, layout)
    tell_numerics(layout, changes)


def write_checkpoint(checkpoint: Checkpoint, path: str | Path, layout: str) -> list[Change]:
    """Write a checkpoint as it is; returns the numerics that the target library would compute differently."""
    target = LAYOUTS[choose("layout", layout, LAYOUTS)]
    target.check_target(Path(path))
    compare_tensors(checkpoint.state, expected_shapes(checkpoint.config), "the network")
    if target.holds is not None:
        parts.refuse_parts(layout, target.holds, checkpoint.config)
    target.write(Path(path), checkpoint)
    return numerics_changed(checkpoint.config, target.reads_as(checkpoint.config))
