"""Weights that are published for networks of the zoo, as their authors' converters put them on the hub."""

from vitrail.config import Preprocessing, preset
from vitrail.zoo.rows import Published

_HALF = (0.5, 0.5, 0.5)
_AUGREG_224 = preset("augreg")
_WHOLE_BICUBIC = Preprocessing(mean=_HALF, std=_HALF, interpolation="bicubic", crop=1.0)
_WHOLE_BILINEAR = Preprocessing(mean=_HALF, std=_HALF, interpolation="bilinear", crop=1.0)


def _timm(name: str, size: int, preprocessing: Preprocessing, megabytes: int, classes: int = 1000) -> Published:
    return Published(
        hub=f"timm/{name}",
        licence="apache-2.0",
        image_size=size,
        num_classes=classes,
        preprocessing=preprocessing,
        megabytes=megabytes,
    )


PUBLISHED: dict[str, Published] = {
    "vit-ti16": _timm("vit_tiny_patch16_224.augreg_in21k_ft_in1k", 224, _AUGREG_224, 23),
    "vit-s16": _timm("vit_small_patch16_224.augreg_in21k_ft_in1k", 224, _AUGREG_224, 88),
    "vit-s32": _timm("vit_small_patch32_224.augreg_in21k_ft_in1k", 224, _AUGREG_224, 92),
    "vit-b8": _timm("vit_base_patch8_224.augreg_in21k_ft_in1k", 224, _AUGREG_224, 346),
    "vit-b16": _timm("vit_base_patch16_224.augreg_in21k_ft_in1k", 224, _AUGREG_224, 346),
    "vit-b32": _timm("vit_base_patch32_224.augreg_in21k_ft_in1k", 224, _AUGREG_224, 353),
    "vit-l16": _timm("vit_large_patch16_224.augreg_in21k_ft_in1k", 224, _AUGREG_224, 1217),
    "vit-l32": _timm("vit_large_patch32_384.orig_in21k_ft_in1k", 384, _WHOLE_BICUBIC, 1227),
    "vit-h14": _timm("vit_huge_patch14_224.orig_in21k", 224, _AUGREG_224, 2523, classes=0),
    "r50-vit-b16": _timm("vit_base_r50_s16_384.orig_in21k_ft_in1k", 384, _WHOLE_BICUBIC, 396),
    "r50-vit-l32": _timm("vit_large_r50_s32_224.augreg_in21k_ft_in1k", 224, _AUGREG_224, 1316),
    "r26-vit-s32": _timm("vit_small_r26_s32_224.augreg_in21k_ft_in1k", 224, _AUGREG_224, 146),
    "r-vit-ti16": _timm("vit_tiny_r_s16_p8_224.augreg_in21k_ft_in1k", 224, _AUGREG_224, 25),
    "bit-r50x1": _timm("resnetv2_50x1_bit.goog_in21k_ft_in1k", 448, _WHOLE_BILINEAR, 102),
    "bit-r50x3": _timm("resnetv2_50x3_bit.goog_in21k_ft_in1k", 448, _WHOLE_BILINEAR, 869),
    "bit-r101x1": _timm("resnetv2_101x1_bit.goog_in21k_ft_in1k", 448, _WHOLE_BILINEAR, 178),
    "bit-r101x3": _timm("resnetv2_101x3_bit.goog_in21k_ft_in1k", 448, _WHOLE_BILINEAR, 1552),
    "bit-r152x2": _timm("resnetv2_152x2_bit.goog_in21k_ft_in1k", 448, _WHOLE_BILINEAR, 945),
    "bit-r152x4": _timm("resnetv2_152x4_bit.goog_in21k_ft_in1k", 480, _WHOLE_BILINEAR, 3746),
}
