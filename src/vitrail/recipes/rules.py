"""Fine-tuning whose length, batch and size follow from the data: BiT's hyper-rule, and ours for a folder of images."""

import math
from dataclasses import dataclass

from vitrail.config import OptimConfig, ScheduleConfig, TrainConfig, preset
from vitrail.recipes import augmentation, finetuning
from vitrail.recipes.expanded import Recipe
from vitrail.recipes.rows import RuleRow

HYPERRULE = RuleRow(
    name="finetune-bit-hyperrule",
    data="any",
    learning_rates=(0.003,),
    needs="the number of images and the size of one",
    function="hyperrule_recipe(images, height, width)",
    source="BiT",
)
FOLDER = RuleRow(
    name="finetune-folder",
    data="folder",
    learning_rates=(0.003, 0.01, 0.03),
    needs="the number of images and of classes",
    function="folder_recipe(images, classes, image_size)",
    source="ours",
)


@dataclass(frozen=True)
class _Length:
    below: float
    """For sets of fewer images than this."""
    warmup: int
    steps: int
    boundaries: tuple[int, ...] = ()


_BIT_LENGTHS = (
    _Length(20_000, 100, 500, (200, 300, 400)),
    _Length(500_000, 500, 10_000, (3_000, 6_000, 9_000)),
    _Length(math.inf, 500, 20_000, (6_000, 12_000, 18_000)),
)
# Table 4 has the first and the last of these, AugReg the second.
_FOLDER_LENGTHS = (_Length(20_000, 100, 500), _Length(100_000, 200, 2_500), _Length(math.inf, 500, 10_000))
_CPU_LENGTH, _CPU_RATES, _CPU_BATCH = _Length(math.inf, 30, 150), (0.01,), 32
_SMALLEST_BATCH = 16
_BATCHES_PER_EPOCH = 8
# Below this many images of a class, a tenth is too few to select on.
_FEW_PER_CLASS = 20
_HELD_OUT_OF_FEW = 0.2


def hyperrule_recipe(images: int, height: int, width: int) -> Recipe:
    """BiT's hyper-rule for a set of `images` pictures of this size: SGD at 0.003, divided by ten three times."""
    length = next(length for length in _BIT_LENGTHS if images < length.below)
    image_size, augment = augmentation.bit_hyperrule(height, width, images)
    (rate,) = HYPERRULE.learning_rates
    return Recipe(
        name=HYPERRULE.name,
        data=HYPERRULE.data,
        image_size=image_size,
        optim=OptimConfig(optimizer="sgd", lr=rate, momentum=finetuning.MOMENTUM),
        schedule=ScheduleConfig(decay="steps", warmup_steps=length.warmup, boundaries=length.boundaries),
        train=TrainConfig(batch_size=finetuning.BATCH_SIZE, steps=length.steps, loss="softmax", keep="last"),
        augment=augment,
        preprocessing=preset("google"),
        learning_rates=HYPERRULE.learning_rates,
        held_out=None,
        source=HYPERRULE.source,
    )


def folder_recipe(images: int, classes: int, image_size: int, *, on_cpu: bool = False) -> Recipe:
    """Table 4 for a folder of any size.

    Steps: 500 below 20,000 images, 2,500 below 100,000, else 10,000. Batch: the power of two from 16 to 512 that gives
    at least eight batches an epoch. The rate is selected on the val split or a tenth; on a fifth of small classes.
    A CPU gets 150 steps of at most 32 images at the middle rate, because people wait for it.
    """
    length = next(length for length in _FOLDER_LENGTHS if images < length.below)
    rates, batch = FOLDER.learning_rates, _folder_batch(images)
    if on_cpu:
        length, rates, batch = _CPU_LENGTH, _CPU_RATES, min(batch, _CPU_BATCH)
    return Recipe(
        name=FOLDER.name,
        data=FOLDER.data,
        image_size=image_size,
        optim=OptimConfig(optimizer="sgd", lr=rates[0], momentum=finetuning.MOMENTUM, clip=finetuning.CLIP),
        schedule=ScheduleConfig(decay="cosine", warmup_steps=length.warmup),
        train=TrainConfig(batch_size=batch, steps=length.steps, loss="softmax", keep="last"),
        augment=augmentation.finetuning(image_size),
        preprocessing=preset("google"),
        learning_rates=rates,
        held_out=_HELD_OUT_OF_FEW if images < _FEW_PER_CLASS * classes else None,
        source=FOLDER.source,
    )


def _folder_batch(images: int) -> int:
    largest = max(images // _BATCHES_PER_EPOCH, 1)
    return min(max(1 << (largest.bit_length() - 1), _SMALLEST_BATCH), finetuning.BATCH_SIZE)
