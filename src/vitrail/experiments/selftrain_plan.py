"""What a self-training does: values only."""

from dataclasses import dataclass, replace
from pathlib import Path

from vitrail.config import AugmentConfig, ModelConfig, RunConfig, VitConfig
from vitrail.config.checks import positive
from vitrail.experiments.selftrain_choosing import Choice


@dataclass(frozen=True, kw_only=True)
class Unlabelled:
    """Where the images come from that the teacher labels."""

    data: str
    split: str = "train"
    root: str | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A teacher labels, a student learns, and in the next round the student is the teacher."""

    teacher: str
    """A path is absolute, because a resume may come from elsewhere."""
    teacher_fingerprint: str
    preprocessing: str | None = None
    """A preset, where the file of the teacher does not say how its images were prepared."""
    unlabelled: Unlabelled
    choice: Choice
    rounds: int = 1
    config: RunConfig
    """Of the first student; its data is the labelled data."""

    def __post_init__(self) -> None:
        positive("rounds", self.rounds, at_most=1000)


@dataclass(frozen=True, kw_only=True)
class Noise:
    """What a student has to learn in spite of, where its recipe has nothing of the kind; never on the teacher.

    Xie et al. (section 3.1) drop half of the inputs of the last layer of a convolutional network. A ViT has its dropout
    in every block, where less does. RandAugment is half as strong as what is usual at 224 pixels. On top of a recipe's
    own noise it would be too much: a small network then learns less than its teacher knew.
    """

    dropout: float = 0.1
    stochastic_depth: float = 0.1
    randaugment_layers: int = 2
    randaugment_magnitude: float = 5.0
    randaugment_from: int = 32
    """Pixels of the shorter side below which an image is too small to be moved and cut without harm."""


NOISE = Noise()


def noised_network(model: ModelConfig) -> ModelConfig:
    """The network with dropout and stochastic depth, where it can have them and has neither."""
    if not isinstance(model, VitConfig) or model.dropout or model.stochastic_depth:
        return model
    return replace(model, dropout=NOISE.dropout, stochastic_depth=NOISE.stochastic_depth)


def noised_images(augment: AugmentConfig, image_size: tuple[int, int]) -> AugmentConfig:
    """The augmentation with RandAugment, where images are large enough and there is none yet."""
    if min(image_size) < NOISE.randaugment_from or augment.randaugment_layers:
        return augment
    return replace(
        augment, randaugment_layers=NOISE.randaugment_layers, randaugment_magnitude=NOISE.randaugment_magnitude
    )


def student(plan: Plan, number: int, taught: Path) -> RunConfig:
    """The run of a round: on what the teacher labelled, with weights and order of its own."""
    config = plan.config
    data = replace(
        config.data,
        data=f"taught:{taught.absolute()}",
        root=None,
        split="train",
        # What is held out was settled when the teacher labelled; here it is the val split.
        held_out=0.0 if config.data.held_out == 0 else None,
        allow_empty=False,
        download=False,
    )
    return replace(config, data=data, train=replace(config.train, seed=config.train.seed + number - 1))
