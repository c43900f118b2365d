"""Fine-tuning whose length, batch and size follow from the data: BiT's hyper-rule, and ours for a folder of images.

A network that has learnt without labels has its own: its features are not made for classes yet, so that it is trained
longer and with stronger augmentation than one that has (He et al., 2021, Table 9).
"""

import math
from dataclasses import dataclass, replace

from vitrail.config import AugmentConfig, OptimConfig, ScheduleConfig, TrainConfig, preset
from vitrail.recipes import augmentation, finetuning, small
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
MASKED = RuleRow(
    name="finetune-masked",
    data="any",
    learning_rates=(5e-4, 1e-3, 2e-3),
    needs="the number of images",
    function="masked_recipe(images, image_size)",
    source="He et al., 2021",
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
# The last is 100 epochs of ImageNet, about.
_MASKED_LENGTHS = (_Length(20_000, 75, 1_500), _Length(100_000, 500, 10_000), _Length(math.inf, 12_500, 250_000))
_MASKED_CPU_RATES = (1e-3,)
_SMALL_IMAGE, _SIGN = 64, 28
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


def masked_recipe(images: int, image_size: int, *, on_cpu: bool = False) -> Recipe:
    """For a network that learnt without labels: Adam with decayed rates towards the first blocks, mixing, RandAugment.

    Images of up to 64 px are shifted in place of cropped, and learnt with Muon, as in our recipes for small images.
    Steps: 1,500 below 20,000 images, 10,000 below 100,000, else 250,000. Batch: as for folders.
    """
    length = next(length for length in _MASKED_LENGTHS if images < length.below)
    rates, batch = MASKED.learning_rates, _folder_batch(images)
    is_small = image_size <= _SMALL_IMAGE
    if on_cpu:
        rates = _MASKED_CPU_RATES
        if not is_small:
            length, batch = _CPU_LENGTH, min(batch, _CPU_BATCH)
    optim = OptimConfig(optimizer="adam", lr=rates[0], weight_decay=0.05, layer_decay=0.75)
    if is_small:
        optim = OptimConfig(
            optimizer="muon", lr=rates[0], weight_decay=0.05, momentum=small.MUON_MOMENTUM, clip=small.CLIP
        )
    return Recipe(
        name=MASKED.name,
        data=MASKED.data,
        image_size=image_size,
        optim=optim,
        schedule=ScheduleConfig(decay="cosine", warmup_steps=length.warmup),
        train=TrainConfig(batch_size=batch, steps=length.steps, loss="softmax", label_smoothing=0.1, keep="last"),
        augment=_masked_augment(image_size),
        preprocessing=preset("google"),
        learning_rates=rates,
        held_out=None,
        stochastic_depth=0.1,
        source=MASKED.source,
    )


def _masked_augment(image_size: int) -> AugmentConfig:
    if image_size > _SMALL_IMAGE:
        return augmentation.MASKED
    pad = max(image_size // 8, 1)
    # Images as small as those of MNIST are signs, which a flip or another colour makes into others.
    return (
        AugmentConfig(crop="pad", pad=pad, flip=False) if image_size <= _SIGN else replace(augmentation.SMALL, pad=pad)
    )


def _folder_batch(images: int) -> int:
    largest = max(images // _BATCHES_PER_EPOCH, 1)
    return min(max(1 << (largest.bit_length() - 1), _SMALLEST_BATCH), finetuning.BATCH_SIZE)
