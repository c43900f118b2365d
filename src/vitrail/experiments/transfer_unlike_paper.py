"""What makes a fine-tuning differ from the paper's on the same data (Table 4, B.1.1), in words."""

from dataclasses import replace
from typing import Any

from vitrail.config import AugmentConfig, OptimConfig, ScheduleConfig, to_json
from vitrail.experiments.finetune_plan import Plan
from vitrail.recipes import RECIPES, FinetuneRow, Recipe, recipe

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
