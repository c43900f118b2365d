"""Table 4: hyper-parameters of fine-tuning.

Said once for all rows, as in the caption: SGD with momentum 0.9, batch size 512, cosine decay, no weight decay,
gradients clipped at global norm 1, 384 px, softmax cross-entropy. The warm-up is that of the released code.
"""

from vitrail.recipes.rows import FinetuneRow, Score

BATCH_SIZE = 512
MOMENTUM = 0.9
CLIP = 1.0

_B16 = "ViT-B/16 from ImageNet-21k, top-1"
_RATES = (0.001, 0.003, 0.01, 0.03)


def _table_5(value: float) -> Score:
    return Score(value=value, what=_B16, source="Table 5")


TABLE_4: list[FinetuneRow] = [
    FinetuneRow(
        data="imagenet",
        steps=20_000,
        learning_rates=(0.003, 0.01, 0.03, 0.06),
        warmup_steps=500,
        held_out=0.01,
        score=_table_5(83.97),
    ),
    FinetuneRow(
        data="cifar100", steps=10_000, learning_rates=_RATES, warmup_steps=500, held_out=0.02, score=_table_5(91.67)
    ),
    FinetuneRow(
        data="cifar10", steps=10_000, learning_rates=_RATES, warmup_steps=500, held_out=0.02, score=_table_5(98.95)
    ),
    FinetuneRow(
        data="oxford-pets", steps=500, learning_rates=_RATES, warmup_steps=100, held_out=0.1, score=_table_5(94.43)
    ),
    FinetuneRow(
        data="flowers102", steps=500, learning_rates=_RATES, warmup_steps=100, held_out=0.1, score=_table_5(99.38)
    ),
    FinetuneRow(
        data="vtab",
        steps=2_500,
        learning_rates=(0.01,),
        warmup_steps=500,
        held_out=0.2,
        score=Score(value=72.7, what="ViT-L/16 from ImageNet-21k, mean of 19 tasks", source="Table 9"),
    ),
]
