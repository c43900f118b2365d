"""The networks of the paper and of the checkpoints around it: sizes, hybrids, BiT ResNets."""

from dataclasses import dataclass

from vitrail.config import BitConfig, ModelConfig, ResNetConfig, VitConfig


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A key, what the paper calls it, and its config."""

    key: str
    name: str
    about: str
    config: ModelConfig
    note: str = ""


@dataclass(frozen=True)
class _Size:
    """A row of Table 1: what B, L and H stand for."""

    letter: str
    depth: int
    width: int
    mlp_width: int
    num_heads: int
    about: str

    def config(self, patch: int, backbone: ResNetConfig | None = None) -> VitConfig:
        return VitConfig(
            width=self.width,
            depth=self.depth,
            num_heads=self.num_heads,
            mlp_width=self.mlp_width,
            patch_size=(patch, patch),
            backbone=backbone,
        )


_SIZES = {
    "ti": _Size("Ti", 12, 192, 768, 3, "tiny, from DeiT through AugReg"),
    "s": _Size("S", 12, 384, 1536, 6, "small, from DeiT through AugReg"),
    "b": _Size("B", 12, 768, 3072, 12, "base, Table 1"),
    "l": _Size("L", 24, 1024, 4096, 16, "large, Table 1"),
    "h": _Size("H", 32, 1280, 5120, 16, "huge, Table 1"),
    "g": _Size("g", 40, 1408, 6144, 16, "giant, big_vision"),
    "bigg": _Size("G", 48, 1664, 8192, 16, "gigantic, big_vision"),
}

_VITS = {
    "ti": (16,),
    "s": (16, 32),
    "b": (8, 16, 32),
    "l": (14, 16, 32),
    "h": (14, 16),
    "g": (14,),
    "bigg": (14,),
}

VITS = [
    Architecture(
        key=f"vit-{key}{patch}", name=f"ViT-{size.letter}/{patch}", about=size.about, config=size.config(patch)
    )
    for key, size in _SIZES.items()
    for patch in _VITS[key]
]

# Units per stage. A stride of 16 has no fourth stage; its three units moved to the third (4.1).
_STRIDE_16, _STRIDE_32, _R26 = (3, 4, 9), (3, 4, 6, 3), (2, 2, 2, 2)


def _hybrid(key: str, name: str, size: str, blocks: tuple[int, ...], patch: int = 1, note: str = "") -> Architecture:
    about = f"ResNet, then ViT-{_SIZES[size].letter}"
    return Architecture(
        key=key, name=name, about=about, config=_SIZES[size].config(patch, ResNetConfig(blocks=blocks)), note=note
    )


HYBRIDS = [
    _hybrid("r50-vit-b16", "R50+ViT-B/16", "b", _STRIDE_16),
    _hybrid("r50-vit-b32", "R50+ViT-B/32", "b", _STRIDE_32),
    _hybrid("r50-vit-l16", "R50+ViT-L/16", "l", _STRIDE_16),
    _hybrid("r50-vit-l32", "R50+ViT-L/32", "l", _STRIDE_32),
    _hybrid("r26-vit-s32", "R26+ViT-S/32", "s", _R26),
    _hybrid("r26-vit-b32", "R26+ViT-B/32", "b", _R26),
    _hybrid(
        "r-vit-ti16",
        "R+ViT-Ti/16",
        "ti",
        (),
        patch=8,
        note="Named /16, but its root has two strides of 2 before the 8x8 patches: a patch stands for 32 pixels.",
    ),
]

_BIT_BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3), 200: (3, 24, 36, 3)}
_BITS = ((50, 1), (50, 2), (50, 3), (101, 1), (101, 3), (152, 1), (152, 2), (152, 4), (200, 3))

BITS = [
    Architecture(
        key=f"bit-r{depth}x{factor}",
        name=f"BiT R{depth}x{factor}",
        about=f"ResNet-v2, {depth} layers, {factor}x as wide",
        config=BitConfig(blocks=_BIT_BLOCKS[depth], width=64 * factor),
    )
    for depth, factor in _BITS
]

SMALL = [
    Architecture(
        key="vit-tiny-mnist",
        name="ViT for MNIST",
        about="the small network of the study notes",
        config=VitConfig(
            width=16,
            depth=2,
            num_heads=2,
            mlp_width=64,
            patch_size=(7, 7),
            image_size=(28, 28),
            channels=1,
            num_classes=10,
        ),
        note="The notes' table says 7,562 parameters: it leaves out class token (16) and positions (17 x 16 = 272).",
    ),
    Architecture(
        key="vit-test",
        name="ViT for tests",
        about="a toy that builds in milliseconds",
        config=VitConfig(
            width=32, depth=2, num_heads=2, mlp_width=64, patch_size=(8, 8), image_size=(32, 32), num_classes=10
        ),
    ),
]

ARCHITECTURES = [*VITS, *HYBRIDS, *BITS, *SMALL]
