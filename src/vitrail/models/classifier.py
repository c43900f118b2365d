"""What every network of the zoo offers: logits, features, tokens, and the facts that travel with its weights."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from jaxtyping import Float
from torch import Tensor, nn

from vitrail.config import BitConfig, PeerConfig, Preprocessing, VitConfig
from vitrail.errors import UsageError
from vitrail.models.fixed_table import FixedTable

Config = TypeVar("Config", VitConfig, BitConfig, PeerConfig)


class Classifier(nn.Module, ABC, Generic[Config]):
    """A network with a head: `logits = head(features(images))`."""

    head: nn.Module

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.labels: tuple[str, ...] | None = None
        self.preprocessing: Preprocessing | None = None
        self.provenance: dict[str, Any] = {}
        self.metrics: dict[str, Any] = {}

    @abstractmethod
    def tokens(self, images: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch tokens dim"]:
        """The last feature map as tokens, after the final norm."""

    @abstractmethod
    def features(self, images: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch dim"]:
        """What the head reads."""

    def forward_tapped(
        self, images: Float[Tensor, "batch channels height width"], layers: Iterable[int]
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Logits, and the attention of the chosen layers, where the network has any."""
        raise UsageError(f"{type(self).__name__} has no attention", wanted="a Vision Transformer or a hybrid")

    def forward(self, images: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch classes"]:
        return self.head(self.features(images))

    def fill_fixed_tables(self) -> None:
        """Compute tables that are not stored with the weights, after the network was built without memory."""
        device = next(self.parameters()).device
        for module in self.modules():
            if isinstance(module, FixedTable):
                module.fill(device)
