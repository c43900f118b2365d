"""Learning without labels: the paper's masked patch prediction, a masked autoencoder, and both on small data.

Section 4.6 and B.1.2 say: ViT-B/16 on JFT, a million steps (about 14 epochs) of 4096 images, Adam, base rate 2e-4,
10,000 steps of warm-up, cosine. What they leave open is ours: weight decay as in Table 3, the crop and flip of the
supervised rows (authors, vision_transformer issue 103), a linear head, a loss that is the mean over hidden patches,
corruption before positions are added, another patch of the same image where one is swapped, and colours in
`floor(8 c)` steps.
"""

from dataclasses import replace

from vitrail.config import AugmentConfig, MaskingConfig, Preprocessing, VitConfig, preset
from vitrail.recipes import augmentation, small
from vitrail.recipes.rows import MaskedRow, Score
from vitrail.zoo import zoo_row

_FINETUNED = "fine-tuned ImageNet top-1"
_PAPER = MaskingConfig()
_AUTOENCODER = MaskingConfig(method="autoencoder", target="pixels", share=0.75)
_SMALL_AUTOENCODER = replace(_AUTOENCODER, decoder_width=128, decoder_depth=2, decoder_heads=4)
# A hidden patch is guessed from its surroundings: what moves or recolours them as well teaches nothing more.
_SMALL_AUGMENT = AugmentConfig(crop="pad", pad=4)


def _without_head(network: VitConfig) -> VitConfig:
    return replace(network, num_classes=0, head_bias=0.0, pre_logits=None)


def _named(key: str) -> VitConfig:
    network = zoo_row(key).config
    assert isinstance(network, VitConfig)
    return _without_head(network)


def _paper(model: str, score: Score | None = None) -> MaskedRow:
    return MaskedRow(
        name=f"mpp-{model}",
        data="jft",
        model=_named(model),
        masking=_PAPER,
        lr=2e-4,
        weight_decay=0.1,
        batch_size=4096,
        steps=1_000_000,
        warmup_steps=10_000,
        augment=augmentation.PRETRAINING,
        preprocessing=preset("google"),
        held_out=None,
        score=score,
        source="Section 4.6, B.1.2",
    )


def _autoencoder(model: str, score: Score | None = None) -> MaskedRow:
    """Rate 1.5e-4 for each 256 images of a batch; 40 of 800 epochs are warm-up; positions are not learned."""
    return MaskedRow(
        name=f"mae-{model}",
        data="i1k",
        model=replace(_named(model), position="sincos_2d"),
        masking=_AUTOENCODER,
        lr=2.4e-3,
        weight_decay=0.05,
        betas=(0.9, 0.95),
        batch_size=4096,
        epochs=800,
        warmup_share=0.05,
        augment=replace(augmentation.PRETRAINING, min_area=0.2),
        preprocessing=preset("imagenet"),
        held_out=0.01,
        score=score,
        source="He et al., 2021",
    )


def _small(
    name: str, data: str, network: VitConfig, masking: MaskingConfig, preprocessing: Preprocessing, **other
) -> MaskedRow:
    return MaskedRow(
        name=name,
        data=data,
        model=_without_head(network),
        masking=masking,
        optimizer="muon",
        lr=1e-3,
        weight_decay=0.05,
        clip=1.0,
        warmup_share=small.WARMUP_SHARE,
        preprocessing=preprocessing,
        source="ours",
        **other,
    )


def _cifar(kind: str, masking: MaskingConfig) -> MaskedRow:
    return _small(
        f"{kind}-cifar10",
        "cifar10",
        replace(small.CIFAR_NETWORK, stochastic_depth=0.0),
        masking,
        small.CIFAR_PREPROCESSING,
        batch_size=512,
        epochs=400,
        augment=_SMALL_AUGMENT,
        held_out=0.02,
        for_gpu=True,
    )


# Plain patches: what convolutions see around a patch would give away what is hidden beside it.
_FOLDER_NETWORK = VitConfig(
    width=256,
    depth=8,
    num_heads=4,
    mlp_width=1024,
    patch_size=(16, 16),
    image_size=(128, 128),
    pool="mean",
    position="sincos_2d",
    attention_start="mimetic",
)


def _folder(kind: str, masking: MaskingConfig) -> MaskedRow:
    return _small(
        f"{kind}-folder",
        "folder",
        _FOLDER_NETWORK,
        masking,
        preset("augreg"),
        batch_size=64,
        epochs=200,
        augment=replace(augmentation.PRETRAINING, min_area=0.2),
        held_out=0.1,
    )


def _digits(kind: str, masking: MaskingConfig) -> MaskedRow:
    digits = small.DIGITS
    return _small(
        f"{kind}-digits",
        "digits",
        digits.model,
        masking,
        digits.preprocessing,
        batch_size=64,
        epochs=60,
        augment=digits.augment,
        held_out=0.1,
    )


MASKED: list[MaskedRow] = [
    _paper("vit-b16", Score(value=79.9, what=_FINETUNED, source="Section 4.6")),
    _autoencoder("vit-b16", Score(value=83.6, what=f"{_FINETUNED} after 1,600 epochs", source="He et al., 2021")),
    _autoencoder("vit-l16", Score(value=85.9, what=f"{_FINETUNED} after 1,600 epochs", source="He et al., 2021")),
    _cifar("mpp", _PAPER),
    _cifar("mae", _SMALL_AUTOENCODER),
    _folder("mpp", _PAPER),
    _folder("mae", _SMALL_AUTOENCODER),
    _digits("mpp", _PAPER),
    _digits("mae", replace(_SMALL_AUTOENCODER, decoder_width=32, decoder_heads=2)),
]
