"""AugReg: the hyper-parameters of "How to train your ViT?" (Steiner et al., 2022).

Said once for all rows: Adam at 1e-3 with betas (0.9, 0.999), batch size 4096, 224 px, 10,000 steps of warm-up, cosine,
gradients clipped at global norm 1, sigmoid cross-entropy. The hidden layer of the head was kept for ImageNet alone.

The paper trained a grid of 28 points for each network; here is one of them per row. After 300 epochs on ImageNet-21k it
is the point of the checkpoint its authors recommend, with its score. Elsewhere it is the level of big_vision's configs
with weight decay 0.1 and no dropout; they have no hybrids, for which we chose the level of the nearest plain network.
"""

from vitrail.config import Preprocessing
from vitrail.recipes.rows import AugRegRow, FinetuneRow, Score

BATCH_SIZE = 4096
RATE = 1e-3
CLIP = 1.0
WARMUP_STEPS = 10_000
# About log(1 / classes), the value at which a sigmoid head is right about how rare each class is.
HEAD_BIAS = {"i1k": -6.9, "i21k": -10.0}

_HALF = (0.5, 0.5, 0.5)
# Measured as big_vision does: the short side to 256, then the central 224.
PREPROCESSING = Preprocessing(mean=_HALF, std=_HALF, interpolation="bilinear", crop=224 / 256, antialias=False)

_IMAGENET_LEVELS = {
    "vit-ti16": "light1",
    "vit-s32": "medium1",
    "vit-s16": "medium2",
    "vit-b32": "medium2",
    "vit-b16": "medium2",
    "vit-l16": "medium2",
    "r-vit-ti16": "light1",
    "r26-vit-s32": "medium1",
    "r50-vit-l32": "medium2",
}
_SHORT_LEVELS = {
    "vit-ti16": "none",
    "vit-s32": "none",
    "vit-s16": "light1",
    "vit-b32": "light2",
    "vit-b16": "light2",
    "vit-l16": "medium2",
    "r-vit-ti16": "none",
    "r26-vit-s32": "none",
    "r50-vit-l32": "medium2",
}
# Level, weight decay, dropout and stochastic depth, and ImageNet top-1 after fine-tuning at 384 px.
_RECOMMENDED = {
    "vit-ti16": ("none", 0.03, 0.0, 78.22),
    "vit-s32": ("none", 0.1, 0.0, 79.58),
    "vit-s16": ("light1", 0.03, 0.0, 83.73),
    "vit-b32": ("light1", 0.1, 0.0, 83.59),
    "vit-b16": ("medium1", 0.1, 0.0, 85.49),
    "vit-l16": ("strong1", 0.1, 0.0, 85.59),
    "r-vit-ti16": ("none", 0.03, 0.0, 75.40),
    "r26-vit-s32": ("light1", 0.1, 0.0, 83.85),
    "r50-vit-l32": ("medium1", 0.1, 0.1, 85.99),
}


def _score(value: float) -> Score:
    return Score(value=value, what="fine-tuned ImageNet top-1 at 384 px", source="vision_transformer README")


PRETRAINING: list[AugRegRow] = [
    *(AugRegRow(model=model, data="i1k", epochs=300, level=level) for model, level in _IMAGENET_LEVELS.items()),
    *(AugRegRow(model=model, data="i21k", epochs=30, level=level) for model, level in _SHORT_LEVELS.items()),
    *(
        AugRegRow(
            model=model, data="i21k", epochs=300, level=level, weight_decay=decay, drop=drop, score=_score(accuracy)
        )
        for model, (level, decay, drop, accuracy) in _RECOMMENDED.items()
    ),
]


def _finetuning(
    data: str, steps: int, warmup_steps: int, learning_rates: tuple[float, ...], held_out: float
) -> FinetuneRow:
    return FinetuneRow(
        data=data,
        steps=steps,
        warmup_steps=warmup_steps,
        learning_rates=learning_rates,
        held_out=held_out,
        image_size=224,
        prefix="augreg-finetune",
        source="AugReg",
    )


_RATES = (0.001, 0.003, 0.01)
# Shorter than Table 4 and at 224 px; the shares that are held out are those of Table 4.
FINETUNING: list[FinetuneRow] = [
    _finetuning("imagenet", 20_000, 500, (0.01, 0.03), 0.01),
    _finetuning("cifar100", 2_500, 200, _RATES, 0.02),
    _finetuning("oxford-pets", 500, 100, _RATES, 0.1),
    # VTAB-1k: both lengths are tried; the warm-up is that of Pets, which has them too.
    _finetuning("vtab-500", 500, 100, (*_RATES, 0.03), 0.2),
    _finetuning("vtab-2500", 2_500, 200, (*_RATES, 0.03), 0.2),
]
