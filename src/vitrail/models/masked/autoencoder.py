"""A masked autoencoder (He et al., 2021): the encoder sees a part of the patches, a light decoder fills in the rest."""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitrail.config import MaskingConfig, Preprocessing, VitConfig
from vitrail.errors import UsageError
from vitrail.models.block import Block
from vitrail.models.fixed_table import Sincos2d
from vitrail.models.initialise import start_dense
from vitrail.models.masked.corruption import draw_order, hidden_patches
from vitrail.models.masked.network import MaskedNetwork, Seen, pixel_answer
from vitrail.models.masked.targets import picture, pixels, standardised

_MASK_STD = 0.02
_MLP_RATIO = 4


class Decoder(nn.Module):
    """A narrow transformer over all patches: those that were seen as tokens, the others as one learned token."""

    def __init__(self, config: VitConfig, masking: MaskingConfig) -> None:
        super().__init__()
        width = masking.decoder_width
        narrow = replace(
            config,
            width=width,
            num_heads=masking.decoder_heads,
            mlp_width=_MLP_RATIO * width,
            depth=masking.decoder_depth,
            position="sincos_2d",
            backbone=None,
            patch_size=config.pixels_per_patch,
            dropout=0.0,
            attention_dropout=0.0,
            stochastic_depth=0.0,
            attention_start="xavier",
        )
        height, side = config.pixels_per_patch
        self.entrance = nn.Linear(config.width, width)
        self.mask_token = nn.Parameter(torch.empty(1, width))
        self.positions = Sincos2d(narrow)
        self.blocks = nn.ModuleList(Block(narrow, 0.0) for _ in range(narrow.depth))
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_epsilon)
        self.prediction = nn.Linear(width, height * side * config.channels)
        nn.init.normal_(self.mask_token, std=_MASK_STD)
        start_dense(self.entrance)
        start_dense(self.prediction)
        self._prefix = config.prefix_tokens

    def forward(
        self, tokens: Float[Tensor, "batch seen dim"], places: Int[Tensor, "batch patches"]
    ) -> Float[Tensor, "batch patches numbers"]:
        """`places` says where in (seen, hidden) each patch of the image is."""
        tokens = self.entrance(tokens)
        prefix, seen = tokens[:, : self._prefix], tokens[:, self._prefix :]
        missing = places.shape[1] - seen.shape[1]
        blanks = self.mask_token.to(seen.dtype).expand(seen.shape[0], missing, -1)
        patches = torch.cat([seen, blanks], dim=1)
        patches = patches.gather(1, places[..., None].expand(-1, -1, patches.shape[2]))
        z = torch.cat([prefix, patches], dim=1) + self.positions()
        for block in self.blocks:
            z = block(z)
        return self.prediction(self.norm(z[:, self._prefix :]))


class MaskedAutoencoder(MaskedNetwork):
    """An encoder of visible patches only, and a decoder that predicts the pixels of the hidden ones."""

    def __init__(self, config: VitConfig, masking: MaskingConfig, preprocessing: Preprocessing) -> None:
        if config.position == "relative" or config.position_at != "stem":
            raise UsageError(
                f"position is {config.position!r} at {config.position_at!r}",
                wanted="positions that are added once, before patches are left out",
            )
        super().__init__(config, masking, preprocessing)
        self.decoder = Decoder(config, masking)

    def forward(self, images: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch 2"]:
        hidden, guesses = self._guess(images)
        wanted = pixels(images, self.config)
        if self.masking.normalised:
            wanted, _, _ = standardised(wanted)
        return pixel_answer(guesses, wanted, hidden)

    def see(self, images: Float[Tensor, "batch channels height width"]) -> Seen:
        hidden, guesses = self._guess(images)
        shown = pixels(self.shown(images), self.config)
        if self.masking.normalised:
            # A patch is guessed up to its mean and contrast, which are lent to it here.
            _, mean, std = standardised(pixels(images, self.config))
            guesses = guesses * std + mean
        guessed = pixels(self.shown(picture(guesses, self.config)), self.config)
        hidden = hidden[..., None]
        corrupted, predicted = torch.where(hidden, 0.5, shown), torch.where(hidden, guessed, shown)
        return Seen(*(picture(each, self.config).clamp(0, 1) for each in (shown, corrupted, predicted)))

    def _guess(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Which patches are hidden, and what the decoder says of every patch."""
        z = self.place(self.embedding(images))
        prefix, patches = z[:, : self.config.prefix_tokens], z[:, self.config.prefix_tokens :]
        count = patches.shape[1]
        order = draw_order(patches.shape[0], count, patches.device)
        seen = count - hidden_patches(count, self.masking)
        visible = patches.gather(1, order[:, :seen, None].expand(-1, -1, patches.shape[2]))
        places = order.argsort(dim=1)
        guesses = self.decoder(self.encode(torch.cat([prefix, visible], dim=1)), places)
        return places >= seen, guesses.float()
