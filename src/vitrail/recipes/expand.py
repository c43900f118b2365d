"""From a row of a table to the configs a run is made of."""

from dataclasses import dataclass, replace
from typing import cast

from vitrail.config import AugmentConfig, BitConfig, ModelConfig, OptimConfig, ScheduleConfig, TrainConfig
from vitrail.config.training import Decay
from vitrail.errors import choose
from vitrail.recipes import augmentation, finetuning, pretraining
from vitrail.recipes.rows import FinetuneRow, PretrainRow, Score
from vitrail.zoo import zoo_row

Row = PretrainRow | FinetuneRow
RECIPES: dict[str, Row] = {row.name: row for row in (*pretraining.TABLE_3, *finetuning.TABLE_4)}


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
    learning_rates: tuple[float, ...]
    held_out: float = 0.0
    model: ModelConfig | None = None
    """None when the network is whatever is being fine-tuned."""
    score: Score | None = None
    source: str


def recipe(name: str) -> Recipe:
    """Look a recipe up by name and expand its row."""
    row = RECIPES[choose("recipe", name, RECIPES)]
    return _pretraining(row) if isinstance(row, PretrainRow) else _finetuning(row)


def _pretraining(row: PretrainRow) -> Recipe:
    return Recipe(
        name=row.name,
        data=row.data,
        image_size=pretraining.IMAGE_SIZE,
        optim=OptimConfig(
            optimizer="adam",
            lr=row.lr,
            weight_decay=row.weight_decay,
            clip=pretraining.IMAGENET_CLIP if row.data == "i1k" else None,
        ),
        schedule=ScheduleConfig(decay=cast(Decay, row.decay), warmup_steps=pretraining.WARMUP_STEPS),
        train=TrainConfig(batch_size=pretraining.BATCH_SIZE, epochs=row.epochs, loss="sigmoid"),
        augment=augmentation.PRETRAINING,
        learning_rates=(row.lr,),
        model=_pretraining_network(row),
        score=row.score,
        source=row.source,
    )


def _pretraining_network(row: PretrainRow) -> ModelConfig:
    network = zoo_row(row.model).config
    head = {"num_classes": pretraining.NUM_CLASSES[row.data], "head_bias": pretraining.HEAD_BIAS}
    if isinstance(network, BitConfig):
        return replace(network, **head)
    # The 2020 pre-training head: one hidden tanh layer as wide as the tokens (3.1 and D.3).
    return replace(network, **head, dropout=row.dropout, pre_logits=network.width)


def _finetuning(row: FinetuneRow) -> Recipe:
    return Recipe(
        name=row.name,
        data=row.data,
        image_size=finetuning.IMAGE_SIZE,
        optim=OptimConfig(
            optimizer="sgd", lr=row.learning_rates[0], momentum=finetuning.MOMENTUM, clip=finetuning.CLIP
        ),
        schedule=ScheduleConfig(decay="cosine", warmup_steps=row.warmup_steps),
        train=TrainConfig(batch_size=finetuning.BATCH_SIZE, steps=row.steps, loss="softmax"),
        augment=augmentation.finetuning(finetuning.IMAGE_SIZE),
        learning_rates=row.learning_rates,
        held_out=row.held_out,
        score=row.score,
        source=row.source,
    )
