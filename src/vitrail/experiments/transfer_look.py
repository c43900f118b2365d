"""What has to be known of the data before a recipe can be chosen, without reading all of it."""

import statistics
from dataclasses import dataclass
from pathlib import Path

from vitrail.config import DataConfig
from vitrail.data import OpenOptions, Source, open_data
from vitrail.data.decoding.decode import decode
from vitrail.data.sources.classes import ensure_trainable
from vitrail.data.sources.files import user_path
from vitrail.data.sources.parts import splits_of
from vitrail.data.sources.splits import MissingSplit
from vitrail.errors import choose
from vitrail.experiments.finetune_plan import Splits
from vitrail.recipes import (
    RECIPES,
    FinetuneRow,
    Recipe,
    RuleRow,
    folder_recipe,
    hyperrule_recipe,
    masked_recipe,
    recipe,
)

_IMAGES_MEASURED = 15
FOLDER, HYPERRULE, MASKED = "finetune-folder", "finetune-bit-hyperrule", "finetune-masked"
NAMES = [name for name, row in RECIPES.items() if isinstance(row, FinetuneRow | RuleRow)]


@dataclass(frozen=True)
class Look:
    """The training images, and which splits there are beside them."""

    train: Source
    splits: Splits


def look_at(config: DataConfig) -> Look:
    """Open the training split, and see which others there are; no image is read."""
    options = OpenOptions(
        root=Path(config.root) if config.root else None,
        download=config.download,
        allow_empty=config.allow_empty,
        copies=config.copies,
    )

    def is_there(split: str) -> bool:
        try:
            open_data(config.data, split, options=options)
        except MissingSplit:
            return False
        return True

    train = open_data(config.data, config.split, options=options)
    ensure_trainable(train)
    # Of "train+val" nothing is left to choose on, and what was learnt measures nothing.
    learnt = splits_of(config.split)
    return Look(
        train,
        Splits(
            val="val" not in learnt and is_there("val"),
            test=config.test and "test" not in learnt and is_there("test"),
        ),
    )


def recipe_name(asked: str | None, data: str, *, knows_classes: bool = True) -> str:
    """The recipe that was asked for, else the row of Table 4 for a known data set, else the rule for folders.

    A network that learnt without labels has a rule of its own.
    """
    if asked is not None:
        return choose("recipe for fine-tuning", asked, NAMES)
    if not knows_classes:
        return MASKED
    known = f"finetune-{data}"
    return known if known in NAMES and not user_path(data).exists() else FOLDER


def recipe_for(name: str, train: Source, image_size: int, *, on_cpu: bool = False) -> Recipe:
    """Expand a row; a rule looks at the data, and that for folders at the device."""
    if name == FOLDER:
        return folder_recipe(len(train), len(train.classes), image_size, on_cpu=on_cpu)
    if name == MASKED:
        return masked_recipe(len(train), image_size, on_cpu=on_cpu)
    if name == HYPERRULE:
        return hyperrule_recipe(len(train), *median_size(train))
    return recipe(name)


def median_size(source: Source) -> tuple[int, int]:
    """Height and width that are usual among the images, from a few of them spread over the source."""
    count = min(len(source), _IMAGES_MEASURED)
    chosen = [number * len(source) // count for number in range(count)]
    images = [decode(source.read(index), where=source.where(index)).image for index in chosen]
    return round(statistics.median(image.height for image in images)), round(
        statistics.median(image.width for image in images)
    )
