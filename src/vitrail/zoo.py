"""The networks that have a name, each a row of plain data."""

from dataclasses import dataclass

from vitrail.config import VitConfig
from vitrail.errors import choose


@dataclass(frozen=True, kw_only=True)
class ZooRow:
    """A named network: the key people type, the name the paper prints, and its config."""

    key: str
    name: str
    config: VitConfig
    about: str
    note: str = ""
    """What a reader of other sources may stumble over."""

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return _COSTS[self.key][0]

    @property
    def macs(self) -> int:
        """Multiply-adds of one forward pass of one image."""
        return _COSTS[self.key][1]


@dataclass(frozen=True)
class _Size:
    """A column of Table 1: what B, L and H stand for."""

    letter: str
    depth: int
    width: int
    mlp_width: int
    num_heads: int
    source: str


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


# Parameters and multiply-adds of each network as it stands in the zoo. They are data, so that `vitrail list` answers
# without building anything; a test measures every one of them.
_COSTS = {
    "vit-ti16": (5_717_416, 1_253_683_200),
    "vit-s16": (22_050_664, 4_598_882_304),
    "vit-s32": (22_878_952, 1_142_909_952),
    "vit-b8": (86_576_872, 78_148_337_664),
    "vit-b16": (86_567_656, 17_563_828_224),
    "vit-b32": (88_224_232, 4_409_186_304),
    "vit-l14": (304_203_752, 81_013_006_336),
    "vit-l16": (304_326_632, 61_554_712_576),
    "vit-l32": (306_535_400, 15_377_539_072),
    "vit-h14": (632_045_800, 167_295_109_120),
    "vit-h16": (632_199_400, 127_314_872_320),
    "vit-g14": (1_012_611_432, 267_031_491_584),
    "vit-bigg14": (1_844_440_680, 483_747_550_208),
    "vit-tiny-mnist": (7_850, 135_648),
    "vit-test": (24_234, 414_144),
}


def _vit(size: _Size, patch: int) -> VitConfig:
    return VitConfig(
        width=size.width,
        depth=size.depth,
        num_heads=size.num_heads,
        mlp_width=size.mlp_width,
        patch_size=(patch, patch),
    )


def _vit_rows() -> list[ZooRow]:
    return [
        ZooRow(key=f"vit-{key}{patch}", name=f"ViT-{size.letter}/{patch}", config=_vit(size, patch), about=size.source)
        for key, size in _SIZES.items()
        for patch in _VITS[key]
    ]


_SMALL = [
    ZooRow(
        key="vit-tiny-mnist",
        name="ViT for MNIST",
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
        about="the small network of the study notes",
        note="The notes' table says 7,562 parameters: it leaves out class token (16) and positions (17 x 16 = 272).",
    ),
    ZooRow(
        key="vit-test",
        name="ViT for tests",
        config=VitConfig(
            width=32, depth=2, num_heads=2, mlp_width=64, patch_size=(8, 8), image_size=(32, 32), num_classes=10
        ),
        about="a toy that builds in milliseconds",
    ),
]

ZOO: dict[str, ZooRow] = {row.key: row for row in [*_vit_rows(), *_SMALL]}


def zoo_row(key: str) -> ZooRow:
    """Look a network up by key."""
    return ZOO[choose("model", key, ZOO)]
