"""The Vision Transformer: Figure 1 and equations (1)-(4)."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitrail.config import VitConfig
from vitrail.errors import UsageError
from vitrail.models.block import Block
from vitrail.models.classifier import Classifier
from vitrail.models.embedding import PatchEmbedding
from vitrail.models.initialise import initialise_attention, initialise_dense, initialise_head, initialise_mlp
from vitrail.models.positions import Learned1d, build_position
from vitrail.models.stochastic_depth import depth_rates

Images = Float[Tensor, "batch channels height width"]
Tokens = Float[Tensor, "batch tokens dim"]


class VisionTransformer(Classifier[VitConfig]):
    """Patches, a class token and positions through L encoder blocks to a head (equations 1-4).

    `position` replaces the config's embedding by a module of your own whose `forward()` gives a row per token.
    """

    def __init__(self, config: VitConfig, *, position: nn.Module | None = None) -> None:
        super().__init__(config)
        self.embedding = PatchEmbedding(config.channels, config.width, config.patch_size, config.grid)
        self.class_token = nn.Parameter(torch.empty(1, config.width)) if config.pool == "token" else None
        self.position = build_position(config) if position is None else position
        self.dropout = nn.Dropout(config.dropout)
        rates = depth_rates(config.depth, config.stochastic_depth)
        self.blocks = nn.ModuleList(Block(config, rate) for rate in rates)
        self.norm = nn.LayerNorm(config.width, eps=config.layer_norm_epsilon)
        self.pre_logits = nn.Linear(config.width, config.pre_logits) if config.pre_logits else None
        head_width = config.pre_logits or config.width
        self.head = nn.Linear(head_width, config.num_classes) if config.num_classes else nn.Identity()
        self.initialise()

    def embed(self, images: Images) -> Tokens:
        """`z_0 = [x_class; x_p^1 E; ...; x_p^N E] + E_pos` (1)."""
        patches = self.embedding(images)
        if self.class_token is not None:
            patches = torch.cat([self.class_token.expand(len(patches), -1, -1), patches], dim=1)
        return self.dropout(patches + self.position())

    def encode(self, z: Tokens) -> Tokens:
        """`z_l` for l = 1..L (2, 3), then the final LayerNorm over all tokens."""
        for block in self.blocks:
            z = block(z)
        return self.norm(z)

    def read(self, tokens: Tokens) -> Float[Tensor, "batch features"]:
        """`y = LN(z_L^0)` (4), or the mean over patches, through the tanh layer where the head has one."""
        pooled = tokens[:, 0] if self.config.pool == "token" else tokens.mean(dim=1)
        return pooled if self.pre_logits is None else torch.tanh(self.pre_logits(pooled))

    def tokens(self, images: Images) -> Tokens:
        return self.encode(self.embed(images))

    def features(self, images: Images) -> Float[Tensor, "batch dim"]:
        return self.read(self.tokens(images))

    def forward_tapped(self, images: Images, layers: Iterable[int]) -> tuple[Tensor, dict[int, Tensor]]:
        """Logits, and the exact attention of the chosen layers, recomputed from q and k for those alone."""
        chosen = {self._layer_index(layer) for layer in layers}
        attention: dict[int, Tensor] = {}
        z = self.embed(images)
        for index, block in enumerate(self.blocks):
            if index in chosen:
                attention[index] = block.attention_weights(z)  # type: ignore[operator]
            z = block(z)
        return self.head(self.read(self.norm(z))), attention

    def initialise(self) -> None:
        """Start all weights as the original does; the head is zero (3.2)."""
        initialise_dense(self.embedding.projection)
        if self.class_token is not None:
            nn.init.zeros_(self.class_token)
        if isinstance(self.position, Learned1d):
            nn.init.normal_(self.position.table, std=self.config.position_std)
        for block in self.blocks:
            initialise_attention(block.attention)  # type: ignore[arg-type]
            initialise_mlp(block.mlp)  # type: ignore[arg-type]
        if self.pre_logits is not None:
            initialise_dense(self.pre_logits)
        if isinstance(self.head, nn.Linear):
            initialise_head(self.head, self.config.head_bias)

    def _layer_index(self, layer: int) -> int:
        depth = self.config.depth
        if not -depth <= layer < depth:
            raise UsageError(f"layer {layer} is not there", wanted=f"a number from 0 to {depth - 1}")
        return layer % depth
