"""What every row comes to in the end."""

from dataclasses import dataclass

from vitrail.config import (
    AugmentConfig,
    MaskingConfig,
    ModelConfig,
    OptimConfig,
    Preprocessing,
    ScheduleConfig,
    TrainConfig,
)
from vitrail.recipes.rows import Score


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything a row decides; `learning_rates` holds the sweep, and `optim.lr` its first value."""

    name: str
    data: str
    image_size: int
    optim: OptimConfig
    schedule: ScheduleConfig
    train: TrainConfig
    augment: AugmentConfig
    preprocessing: Preprocessing
    """For a network that brings none along."""
    learning_rates: tuple[float, ...]
    held_out: float | None
    """Share of the training images to measure on; none for the val split, or a tenth where there is none."""
    model: ModelConfig | None = None
    """None when the network is whatever is being fine-tuned."""
    stochastic_depth: float | None = None
    """Of a Vision Transformer that is fine-tuned; none leaves it as it is."""
    masking: MaskingConfig | None = None
    """What is hidden and predicted, where there are no labels to learn."""
    score: Score | None = None
    source: str
