"""The numbers of the paper's transfer tables (Tables 2 and 5), and what makes a fine-tuning differ from them."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from vitrail.config import (
    AugmentConfig,
    BitConfig,
    ModelConfig,
    OptimConfig,
    PeerConfig,
    ScheduleConfig,
    VitConfig,
    to_json,
)
from vitrail.experiments.finetune import Plan
from vitrail.recipes import RECIPES, FinetuneRow, Recipe, recipe
from vitrail.zoo import ZOO

REAL = "imagenet-real"
"""The column of ImageNet counted by ReaL labels."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """Top-1 accuracy on a data set, in percent."""

    data: str
    mean: float
    std: float | None = None
    """Over three runs; none where only the mean is known here."""


@dataclass(frozen=True, kw_only=True)
class PaperRow:
    """A network, what it was pre-trained on, and what came of it."""

    network: str
    """As `vitrail list models` shows it."""
    pretrained_on: str
    table: str
    scores: tuple[Score, ...]

    @property
    def title(self) -> str:
        """For the first column."""
        return f"{self.network}, {self.pretrained_on} ({self.table})"

    def score(self, data: str) -> Score | None:
        """The number of a data set, if there is one."""
        return next((score for score in self.scores if score.data == data), None)


_TABLE_2_COLUMNS = (REAL, "cifar10", "cifar100", "oxford-pets", "flowers102")
_TABLE_5_COLUMNS = ("cifar10", "cifar100", "imagenet", REAL, "flowers102", "oxford-pets")
_TABLE_5_NETWORKS = ("ViT-B/16", "ViT-B/32", "ViT-L/16", "ViT-L/32", "ViT-H/14")


def _table_2(network: str, pretrained_on: str, imagenet: tuple[float, float], *values: float) -> PaperRow:
    others = (Score(data=data, mean=value) for data, value in zip(_TABLE_2_COLUMNS, values, strict=True))
    scores = (Score(data="imagenet", mean=imagenet[0], std=imagenet[1]), *others)
    return PaperRow(network=network, pretrained_on=pretrained_on, table="Table 2", scores=scores)


TABLE_2: tuple[PaperRow, ...] = (
    _table_2("ViT-H/14", "JFT", (88.55, 0.04), 90.72, 99.50, 94.55, 97.56, 99.68),
    _table_2("ViT-L/16", "JFT", (87.76, 0.03), 90.54, 99.42, 93.90, 97.32, 99.74),
    _table_2("ViT-L/16", "ImageNet-21k", (85.30, 0.02), 88.62, 99.15, 93.25, 94.67, 99.61),
    _table_2("BiT R152x4", "JFT", (87.54, 0.02), 90.54, 99.37, 93.51, 96.62, 99.63),
)

# A column of the paper per line: one number per network, in the order of _TABLE_5_NETWORKS.
_TABLE_5_VALUES: dict[str, tuple[tuple[float, ...], ...]] = {
    "ImageNet": (
        (98.13, 97.77, 97.86, 97.94),
        (87.13, 86.31, 86.35, 87.07),
        (77.91, 73.38, 76.53, 71.16),
        (83.57, 79.56, 82.19, 77.83),
        (89.49, 85.43, 89.66, 86.36),
        (93.81, 92.04, 93.64, 91.35),
    ),
    "ImageNet-21k": (
        (98.95, 98.79, 99.16, 99.13, 99.27),
        (91.67, 91.97, 93.44, 93.04, 93.82),
        (83.97, 81.28, 85.15, 80.99, 85.13),
        (88.35, 86.63, 88.40, 85.65, 88.70),
        (99.38, 99.11, 99.61, 99.19, 99.51),
        (94.43, 93.02, 94.73, 93.09, 94.82),
    ),
    "JFT": (
        (99.00, 98.61, 99.38, 99.19, 99.50),
        (91.87, 90.49, 94.04, 92.52, 94.55),
        (84.15, 80.73, 87.12, 84.37, 88.04),
        (88.85, 86.27, 89.99, 88.28, 90.33),
        (99.56, 99.27, 99.56, 99.45, 99.68),
        (95.80, 93.40, 97.11, 95.83, 97.56),
    ),
}

TABLE_5: tuple[PaperRow, ...] = tuple(
    PaperRow(
        network=network,
        pretrained_on=pretrained_on,
        table="Table 5",
        scores=tuple(
            Score(data=data, mean=values[place])
            for data, values in zip(_TABLE_5_COLUMNS, columns, strict=True)
            # ViT-H/14 was not pre-trained on ImageNet.
            if place < len(values)
        ),
    )
    for place, network in enumerate(_TABLE_5_NETWORKS)
    for pretrained_on, columns in _TABLE_5_VALUES.items()
)

HOW = (
    "Table 5 was measured at 384 px; the ViTs of Table 2 too, but for ImageNet at 512 px (518 for ViT-H/14), weights "
    "averaged."
)
_NEAREST = ("ViT-B/16", "ImageNet-21k")


def paper_rows(networks: Collection[str | None], columns: Collection[str]) -> list[PaperRow]:
    """Those of Table 2, and of Table 5 those of these networks, or of ViT-B/16 where it has none of them.

    They keep only these columns, and those with nothing in them are left out.
    """
    own = [row for row in TABLE_5 if row.network in networks]
    near = [row for row in TABLE_5 if (row.network, row.pretrained_on) == _NEAREST]
    is_bit = any(network is not None and network.startswith("BiT") for network in networks)
    best = [row for row in TABLE_2 if row.network.startswith("ViT") or is_bit]
    rows = [
        replace(row, scores=tuple(score for score in row.scores if score.data in columns))
        for row in (*best, *(own or near))
    ]
    return [row for row in rows if row.scores]


def network_name(config: ModelConfig) -> str | None:
    """What the paper calls a network, whatever its head and image size; none for one without a name."""
    return next((row.name for row in ZOO.values() if _shape(row.config) == _shape(config)), None)


def _shape(config: ModelConfig) -> tuple[object, ...]:
    if isinstance(config, BitConfig):
        return "bit", config.blocks, config.width
    if isinstance(config, PeerConfig):
        return config.package, config.name
    assert isinstance(config, VitConfig)
    stem = config.backbone and (config.backbone.kind, getattr(config.backbone, "blocks", None))
    return "vit", config.width, config.depth, config.num_heads, config.mlp_width, config.patch_size, stem


SEEDS = 3
# The paper calls the validation images of ImageNet its test set, as everyone does.
_TESTED_ON_VAL = "imagenet"


def paper_recipe(data: str) -> Recipe | None:
    """The row of Table 4 for a data set; none for data that the paper does not have."""
    row = RECIPES.get(f"finetune-{data}")
    return recipe(row.name) if isinstance(row, FinetuneRow) else None


def unlike_paper(plan: Plan) -> tuple[str, ...]:
    """A phrase for each setting that is not the paper's: "1,000 steps instead of 10,000"."""
    config = plan.config
    theirs = paper_recipe(config.data.data)
    if theirs is None:
        return ()
    side = (theirs.image_size, theirs.image_size)
    phrases = [
        _length(plan, theirs),
        "" if config.model.image_size == side else f"{_pixels(config.model.image_size)} px instead of {side[0]}",
        "" if len(plan.seeds) == SEEDS else f"{_counted(len(plan.seeds), 'seed')} instead of {SEEDS}",
        _rates(plan, theirs),
        _number("batch", config.train.batch_size, theirs.train.batch_size),
        _tested(plan),
    ]
    return (*(phrase for phrase in phrases if phrase), *_rest(plan, theirs))


def _length(plan: Plan, theirs: Recipe) -> str:
    train, steps = plan.config.train, theirs.train.steps
    if train.steps is None:
        return f"{_counted(train.epochs or 0, 'epoch')} instead of {steps:,} steps"
    if train.time_limit is not None:
        return f"at most {train.time_limit:.3g} minutes a run instead of {steps:,} steps"
    return "" if train.steps == steps else f"{_counted(train.steps, 'step')} instead of {steps:,}"


def _rates(plan: Plan, theirs: Recipe) -> str:
    if set(plan.rates) == set(theirs.learning_rates):
        return ""
    ours, their = (", ".join(f"{rate:g}" for rate in rates) for rates in (plan.rates, theirs.learning_rates))
    return f"learning rate{'s' if len(plan.rates) > 1 else ''} {ours} instead of {their}"


def _tested(plan: Plan) -> str:
    data = plan.config.data
    if plan.measure == "test" or (plan.measure == "val" and data.data == _TESTED_ON_VAL):
        return ""
    return "nothing measured" if plan.measure == "nothing" else f"measured on {plan.measure} images, not on test images"


def _rest(plan: Plan, theirs: Recipe) -> list[str]:
    """Whatever else was changed, by its name."""
    config = plan.config
    augment = theirs.augment
    if config.model.image_size != (theirs.image_size, theirs.image_size):
        # The crop out of a larger square grows with the image.
        augment = replace(augment, resize=config.augment.resize)
    ours = _flat(config.augment, replace(config.optim, lr=0.0), _without_warmup(config.schedule))
    paper = _flat(augment, replace(theirs.optim, lr=0.0), _without_warmup(theirs.schedule))
    ours |= {"held out": config.data.held_out, "split": config.data.split, "bad files skipped": config.data.skip_bad}
    paper |= {"held out": theirs.held_out, "split": "train", "bad files skipped": False}
    for name in ("loss", "label_smoothing", "average"):
        ours[name.replace("_", " ")] = getattr(config.train, name)
        paper[name.replace("_", " ")] = getattr(theirs.train, name)
    for name in ("dropout", "attention_dropout", "stochastic_depth"):
        # A ResNet has none of them.
        ours[name.replace("_", " ")] = getattr(config.model, name, 0.0)
        paper[name.replace("_", " ")] = 0.0
    ours["crop of test images"] = config.preprocessing.crop
    paper["crop of test images"] = theirs.preprocessing.crop
    if config.train.steps is not None:
        ours["share of warm-up"] = _warmup(config.schedule, config.train.steps)
        paper["share of warm-up"] = _warmup(theirs.schedule, theirs.train.steps)
    return [f"{name} {ours[name]} instead of {value}" for name, value in paper.items() if ours[name] != value]


def _flat(*parts: AugmentConfig | OptimConfig | ScheduleConfig) -> dict[str, Any]:
    return {name.replace("_", " "): value for part in parts for name, value in to_json(part).items()}


def _without_warmup(schedule: ScheduleConfig) -> ScheduleConfig:
    return replace(schedule, warmup_steps=0, warmup_share=0.0)


def _warmup(schedule: ScheduleConfig, steps: int | None) -> float:
    return schedule.warmup_share or round(schedule.warmup_steps / (steps or 1), 4)


def _pixels(size: tuple[int, int]) -> str:
    return str(size[0]) if size[0] == size[1] else f"{size[0]}x{size[1]}"


def _number(name: str, ours: int, theirs: int) -> str:
    return "" if ours == theirs else f"{name} {ours:,} instead of {theirs:,}"


def _counted(number: float, unit: str) -> str:
    return f"{number:,} {unit}{'' if number == 1 else 's'}"
