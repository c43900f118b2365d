"""A network of another package, as a baseline: `timm:efficientnet_b0`, `torchvision:resnet50`; values only."""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from vitrail.config.checks import MAX_CHANNELS, chance, count, pair, positive
from vitrail.errors import UsageError, choose

Package = Literal["timm", "torchvision"]
PACKAGES: tuple[Package, ...] = get_args(Package)

# Nothing else reaches a package, whose own names may be addresses: a config can come from a stranger's file.
_NAME = re.compile(r"[A-Za-z0-9_]+")
# A cell of the grid by which an image is covered, where it is asked which part of it matters.
_CELL = 16


@dataclass(frozen=True, kw_only=True)
class PeerConfig:
    """A network that timm or torchvision builds, with one linear layer as its head."""

    package: Package
    """Who builds it."""
    name: str
    """What it is called there."""
    image_size: tuple[int, int] = (224, 224)
    """Height and width of the input in pixels."""
    channels: int = 3
    """Channels of the input; torchvision's networks take 3."""
    num_classes: int = 1000
    """Outputs of the head; 0 leaves the head out."""
    dropout: float | None = None
    """Before the head, and wherever else the network has it; the package's own if not said."""
    stochastic_depth: float | None = None
    """Chance that the last residual branch is skipped for a sample; the package's own if not said."""

    def __post_init__(self) -> None:
        choose("package", self.package, PACKAGES)
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise UsageError(f"name is {self.name!r}", wanted="letters, digits and _")
        object.__setattr__(self, "image_size", pair(self.image_size, "image_size"))
        positive("channels", self.channels, at_most=MAX_CHANNELS)
        count("num_classes", self.num_classes)
        for name in ("dropout", "stochastic_depth"):
            if getattr(self, name) is not None:
                chance(name, getattr(self, name))

    @property
    def title(self) -> str:
        """What people type: timm:efficientnet_b0."""
        return f"{self.package}:{self.name}"

    @property
    def grid(self) -> tuple[int, int]:
        """Height and width in cells of 16 pixels: what the network itself has is its own affair."""
        height, width = (-(-side // _CELL) for side in self.image_size)
        return height, width

    @property
    def tokens(self) -> int:
        """Cells of the grid."""
        return self.grid[0] * self.grid[1]


@dataclass(frozen=True)
class PeerName:
    """What people type: a package, a network of it, and which of its published weights."""

    package: Package
    name: str
    tag: str | None = None
    """Such as ra_in1k or IMAGENET1K_V1; none for those that the package thinks best."""


def peer_name(source: str) -> PeerName | None:
    """Read `timm:NAME`, `timm:NAME.TAG` or the same of torchvision; none for what is something else."""
    package, colon, rest = source.partition(":")
    if not colon or package not in PACKAGES:
        return None
    name, dot, tag = rest.partition(".")
    if not _NAME.fullmatch(name) or (dot and not _NAME.fullmatch(tag)):
        raise UsageError(
            f"{rest!r} cannot be a network of {package}", wanted=f"{package}:NAME, or {package}:NAME.TAG with weights"
        )
    return PeerName(package, name, tag if dot else None)
