"""The Vision Transformer: Figure 1 and equations (1)-(4)."""

import operator
from collections.abc import Collection, Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitrail.config import VitConfig
from vitrail.errors import UsageError
from vitrail.models.block import Block
from vitrail.models.classifier import Classifier
from vitrail.models.embedding import PatchEmbedding
from vitrail.models.initialise import start_dense, start_head
from vitrail.models.pooling import AttentionPooling
from vitrail.models.positions import build_additive
from vitrail.models.stochastic_depth import depth_rates

Images = Float[Tensor, "batch channels height width"]
Tokens = Float[Tensor, "batch tokens dim"]

# Registers without positions would stay copies of each other if they all began at zero.
_REGISTER_STD = 0.02


class VisionTransformer(Classifier[VitConfig]):
    """Patches, a class token and positions through L encoder blocks to a head (equations 1-4).

    `position` replaces the config's additive embedding by a module of your own whose `forward()` gives a row per token.
    """

    def __init__(self, config: VitConfig, *, position: nn.Module | None = None) -> None:
        super().__init__(config)
        width = config.width
        self.embedding = PatchEmbedding(config)
        self.class_token = nn.Parameter(torch.empty(1, width)) if config.class_token else None
        self.registers = nn.Parameter(torch.empty(config.registers, width)) if config.registers else None
        self.has_own_position = position is not None
        tables = config.depth if config.position_at == "every_layer" else 1
        self.positions = nn.ModuleList([position] if position is not None else build_additive(config, tables))
        self.dropout = nn.Dropout(config.dropout)
        rates = depth_rates(config.depth, config.stochastic_depth)
        self.blocks = nn.ModuleList(Block(config, rate) for rate in rates)
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_epsilon)
        self.pooling = AttentionPooling(config) if config.pool == "map" else None
        self.pre_logits = nn.Linear(width, config.pre_logits) if config.pre_logits else None
        head_width = config.pre_logits or width
        self.head = nn.Linear(head_width, config.num_classes) if config.num_classes else nn.Identity()
        self.reads_one_token = config.class_token and config.position != "relative"
        self._start()

    def embed(self, images: Images) -> Tokens:
        """`z_0 = [x_class; x_p^1 E; ...; x_p^N E] + E_pos` (1)."""
        return self.place(self.embedding(images))

    def place(self, patches: Float[Tensor, "batch patches dim"]) -> Tokens:
        """Patch embeddings behind class token and registers, positions added: what is left of (1)."""
        prefix = [
            token.expand(patches.shape[0], -1, -1) for token in (self.class_token, self.registers) if token is not None
        ]
        z = torch.cat([*prefix, patches], dim=1) if prefix else patches
        if self.positions and self.config.position_at == "stem":
            z = z + self.positions[0]()
        return self.dropout(z)

    def enter(self, layer: int, z: Tokens) -> Tokens:
        """What block `layer` reads: its input, with positions added where the config puts them at every layer (D.4)."""
        if self.config.position_at == "stem":
            return z
        return z + self.positions[layer % len(self.positions)]()

    def encode(self, z: Tokens) -> Tokens:
        """`z_l` for l = 1..L (2, 3), then the final LayerNorm over all tokens."""
        for layer, block in enumerate(self.blocks):
            z = block(self.enter(layer, z))
        return self.norm(z)

    def read(self, tokens: Tokens) -> Float[Tensor, "batch features"]:
        """`y = LN(z_L^0)` (4), or the patches pooled, through the tanh layer where the head has one."""
        patches = tokens[:, self.config.prefix_tokens :]
        if self.class_token is not None:
            pooled = tokens[:, 0]
        else:
            pooled = patches.mean(dim=1) if self.pooling is None else self.pooling(patches)
        return pooled if self.pre_logits is None else torch.tanh(self.pre_logits(pooled))

    def tokens(self, images: Images) -> Tokens:
        return self.encode(self.embed(images))

    def features(self, images: Images) -> Float[Tensor, "batch dim"]:
        return self._finish(self._before_last(self.embed(images)))

    def forward_tapped(self, images: Images, layers: Iterable[int]) -> tuple[Tensor, dict[int, Tensor]]:
        """Logits, and the exact attention of the chosen layers, recomputed from q and k for those alone.

        Layers count from 0, or from the end when negative; the answer has the numbers that were asked for.
        """
        asked = {layer: self._layer_index(layer) for layer in layers}
        chosen, attention = set(asked.values()), {}
        z = self._before_last(self.embed(images), chosen, attention)
        logits = self.head(self._finish(z))
        return logits, {layer: attention[index] for layer, index in asked.items()}

    def _before_last(
        self, z: Tokens, chosen: Collection[int] = (), attention: dict[int, Tensor] | None = None
    ) -> Tokens:
        """What the last block reads; the attention of chosen layers is left in `attention` on the way."""
        for layer, block in enumerate(self.blocks):
            z = self.enter(layer, z)
            if layer in chosen and attention is not None:
                attention[layer] = block.attention_weights(z)  # type: ignore[operator]
            if layer < len(self.blocks) - 1:
                z = block(z)
        return z

    def _finish(self, z: Tokens) -> Float[Tensor, "batch features"]:
        """From the last block's input to the features; where a class token is read, for that token alone.

        The other tokens of the last block reach no output, so leaving them out changes nothing but the time.
        """
        last = self.blocks[-1]
        return self.read(self.norm(last.first_token(z) if self.reads_one_token else last(z)))  # type: ignore[operator]

    def _start(self) -> None:
        """Zero class token and head (3.2); every other module started its own weights."""
        if self.class_token is not None:
            nn.init.zeros_(self.class_token)
        if self.registers is not None:
            nn.init.normal_(self.registers, std=_REGISTER_STD)
        if self.pre_logits is not None:
            start_dense(self.pre_logits)
        start_head(self.head, self.config.head_bias)

    def _layer_index(self, layer: int) -> int:
        depth, layer = self.config.depth, operator.index(layer)
        if not -depth <= layer < depth:
            raise UsageError(f"layer {layer} is not there", wanted=f"a number from 0 to {depth - 1}")
        return layer % depth
