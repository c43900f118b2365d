"""From a row of a table to the configs a run is made of."""

from dataclasses import replace
from typing import Any, cast

from vitrail.config import BitConfig, ModelConfig, OptimConfig, ScheduleConfig, TrainConfig, VitConfig, preset
from vitrail.config.training import Decay
from vitrail.errors import UsageError, choose, command
from vitrail.recipes import augmentation, augreg, finetuning, masked, pretraining, rules, small
from vitrail.recipes.expanded import Recipe
from vitrail.recipes.rows import AugRegRow, FinetuneRow, MaskedRow, PretrainRow, Row, RuleRow, SmallRow
from vitrail.zoo import zoo_row

_ROWS: tuple[Row, ...] = (
    *pretraining.TABLE_3,
    *finetuning.TABLE_4,
    *augreg.PRETRAINING,
    *augreg.FINETUNING,
    rules.HYPERRULE,
    *small.SMALL,
    rules.FOLDER,
    *masked.MASKED,
    rules.MASKED,
)
RECIPES: dict[str, Row] = {row.name: row for row in _ROWS}

# Reading what happened waits for the GPU, which does hundreds of such steps in a second.
_ON_A_GPU: dict[str, Any] = {"precision": "bfloat16", "compile": True, "log_every": 100}


# What makes a network another one; image size, classes and regularisation do not.
_NETWORK = ("width", "depth", "num_heads", "mlp_width", "patch_size", "backbone", "blocks", "package", "name")


def recipe_title(name: str, model: ModelConfig) -> str:
    """The name of a recipe as a run shows it: with another network than the recipe's it is not what the name says."""
    own = None if isinstance(RECIPES.get(name), RuleRow | None) else recipe(name).model
    if own is None or _network(own) == _network(model):
        return name
    return f"{name} with another network"


def _network(model: ModelConfig) -> tuple[object, ...]:
    return type(model), *(getattr(model, part, None) for part in _NETWORK)


def recipe(name: str) -> Recipe:
    """Look a recipe up by name and expand its row."""
    row = RECIPES[choose("recipe", name, RECIPES)]
    match row:
        case PretrainRow():
            return _pretraining(row)
        case FinetuneRow():
            return _finetuning(row)
        case AugRegRow():
            return _augreg(row)
        case SmallRow():
            return _small(row)
        case MaskedRow():
            return _masked(row)
    raise UsageError(
        f"the recipe {name!r} is a rule that needs {row.needs}",
        fix=f"Type {command('finetune', 'SOURCE', data='D', recipe=name)}, or call vitrail.recipes.{row.function}.",
    )


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
        train=TrainConfig(batch_size=pretraining.BATCH_SIZE, epochs=row.epochs, loss="sigmoid", keep="last"),
        augment=augmentation.PRETRAINING,
        preprocessing=preset("google"),
        learning_rates=(row.lr,),
        held_out=pretraining.HELD_OUT[row.data],
        model=_pretraining_network(row),
        score=row.score,
        source=row.source,
    )


def _pretraining_network(row: PretrainRow) -> ModelConfig:
    network = zoo_row(row.model).config
    head = {"num_classes": pretraining.NUM_CLASSES[row.data], "head_bias": pretraining.HEAD_BIAS}
    if isinstance(network, BitConfig):
        return replace(network, **head)
    assert isinstance(network, VitConfig)
    # The 2020 pre-training head: one hidden tanh layer as wide as the tokens (3.1 and D.3).
    return replace(network, **head, dropout=row.dropout, pre_logits=network.width)


def _finetuning(row: FinetuneRow) -> Recipe:
    return Recipe(
        name=row.name,
        data=row.data,
        image_size=row.image_size,
        optim=OptimConfig(
            optimizer="sgd", lr=row.learning_rates[0], momentum=finetuning.MOMENTUM, clip=finetuning.CLIP
        ),
        schedule=ScheduleConfig(decay="cosine", warmup_steps=row.warmup_steps),
        train=TrainConfig(batch_size=finetuning.BATCH_SIZE, steps=row.steps, loss="softmax", keep="last"),
        augment=augmentation.finetuning(row.image_size),
        preprocessing=preset("google"),
        learning_rates=row.learning_rates,
        held_out=row.held_out,
        score=row.score,
        source=row.source,
    )


def _augreg(row: AugRegRow) -> Recipe:
    network = zoo_row(row.model).config
    assert isinstance(network, VitConfig)
    return Recipe(
        name=row.name,
        data=row.data,
        image_size=pretraining.IMAGE_SIZE,
        optim=OptimConfig(optimizer="adam", lr=augreg.RATE, weight_decay=row.weight_decay, clip=augreg.CLIP),
        schedule=ScheduleConfig(decay="cosine", warmup_steps=augreg.WARMUP_STEPS),
        train=TrainConfig(batch_size=augreg.BATCH_SIZE, epochs=row.epochs, loss="sigmoid", keep="last"),
        augment=augmentation.augreg(row.level),
        preprocessing=augreg.PREPROCESSING,
        learning_rates=(augreg.RATE,),
        held_out=pretraining.HELD_OUT[row.data],
        model=replace(
            network,
            num_classes=pretraining.NUM_CLASSES[row.data],
            head_bias=augreg.HEAD_BIAS[row.data],
            pre_logits=network.width if row.data == "i1k" else None,
            dropout=row.drop,
            stochastic_depth=row.drop,
        ),
        score=row.score,
        source=row.source,
    )


def _small(row: SmallRow) -> Recipe:
    return Recipe(
        name=row.name,
        data=row.data,
        image_size=max(row.model.image_size),
        optim=OptimConfig(
            optimizer=row.optimizer,
            lr=row.lr,
            weight_decay=row.weight_decay,
            momentum=small.MUON_MOMENTUM if row.optimizer == "muon" else OptimConfig.momentum,
            clip=small.CLIP,
        ),
        schedule=ScheduleConfig(decay="cosine", warmup_share=small.WARMUP_SHARE),
        train=TrainConfig(
            batch_size=row.batch_size,
            epochs=row.epochs,
            loss="softmax",
            label_smoothing=row.label_smoothing,
            average=row.average,
            **(_ON_A_GPU if row.for_gpu else {}),
            # Where nobody said how much to hold out, there may be a val split that was made to choose on.
            keep="best" if row.held_out is None else "last",
        ),
        augment=row.augment,
        preprocessing=row.preprocessing,
        learning_rates=(row.lr,),
        held_out=row.held_out,
        model=row.model,
        score=row.score,
        source=row.source,
    )


def _masked(row: MaskedRow) -> Recipe:
    return Recipe(
        name=row.name,
        data=row.data,
        image_size=max(row.model.image_size),
        optim=OptimConfig(
            optimizer=row.optimizer,
            lr=row.lr,
            weight_decay=row.weight_decay,
            betas=row.betas,
            momentum=small.MUON_MOMENTUM if row.optimizer == "muon" else OptimConfig.momentum,
            clip=row.clip,
        ),
        schedule=ScheduleConfig(decay="cosine", warmup_steps=row.warmup_steps, warmup_share=row.warmup_share),
        train=TrainConfig(
            batch_size=row.batch_size,
            epochs=row.epochs,
            steps=row.steps,
            # There is no class to be right about: the network measures itself.
            loss="softmax",
            **(_ON_A_GPU if row.for_gpu else {}),
            keep="last",
        ),
        augment=row.augment,
        preprocessing=row.preprocessing,
        learning_rates=(row.lr,),
        held_out=row.held_out,
        model=row.model,
        masking=row.masking,
        score=row.score,
        source=row.source,
    )
