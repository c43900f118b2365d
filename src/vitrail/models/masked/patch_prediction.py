"""Masked patch prediction: half of the patch embeddings are corrupted, and what they were is predicted (4.6, B.1.2)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vitrail.config import MaskingConfig, Preprocessing, VitConfig
from vitrail.models.initialise import start_head
from vitrail.models.masked.corruption import Corruption, draw_corruption
from vitrail.models.masked.network import MaskedNetwork, Seen, mean_of_hidden, pixel_answer
from vitrail.models.masked.targets import LEVELS, colour_values, colours, parts_of_a_side, picture, pixels

_MASK_STD = 0.02


class MaskedPatchPrediction(MaskedNetwork):
    """The paper's network with a mask token, and a linear layer that reads the target off each patch's last token."""

    def __init__(self, config: VitConfig, masking: MaskingConfig, preprocessing: Preprocessing) -> None:
        super().__init__(config, masking, preprocessing)
        height, width = config.pixels_per_patch
        self._side = parts_of_a_side(config) if masking.target == "small_patch" else 1
        outputs = self._side**2 * LEVELS**config.channels
        if masking.target == "pixels":
            outputs = height * width * config.channels
        self.mask_token = nn.Parameter(torch.empty(1, config.width))
        self.prediction = nn.Linear(config.width, outputs)
        nn.init.normal_(self.mask_token, std=_MASK_STD)
        start_head(self.prediction, 0.0)

    def forward(self, images: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch 2"]:
        corruption, guesses = self._guess(images)
        if self.masking.target == "pixels":
            return pixel_answer(guesses, pixels(images, self.config), corruption.hidden)
        losses, right = self._colour_losses(guesses, images)
        return torch.stack([mean_of_hidden(values, corruption.hidden) for values in (losses, right)], dim=1)

    def see(self, images: Float[Tensor, "batch channels height width"]) -> Seen:
        corruption, guesses = self._guess(images)
        shown = pixels(self.shown(images), self.config)
        hidden = corruption.hidden[..., None]
        blank = torch.where(corruption.masked[..., None], 0.5, shown)
        donors = shown.gather(1, corruption.donors[..., None].expand_as(shown))
        corrupted = torch.where(corruption.swapped[..., None], donors, blank)
        if self.masking.target == "pixels":
            guessed = pixels(self.shown(picture(guesses, self.config)), self.config)
        else:
            coarse = colour_values(self._by_part(guesses).argmax(dim=-1), self.config)
            (rows, columns), (height, width) = self.config.grid, self.config.pixels_per_patch
            fine = functional.interpolate(coarse, size=(rows * height, columns * width), mode="nearest")
            guessed = pixels(fine, self.config)
        predicted = torch.where(hidden, guessed, shown)
        return Seen(*(picture(each, self.config).clamp(0, 1) for each in (shown, corrupted, predicted)))

    def _guess(self, images: Tensor) -> tuple[Corruption, Tensor]:
        patches = self.embedding(images)
        corruption = draw_corruption(patches.shape[0], patches.shape[1], self.masking, patches.device)
        tokens = self.encode(self.place(corruption.apply(patches, self.mask_token)))
        return corruption, self.prediction(tokens[:, self.config.prefix_tokens :]).float()

    def _colour_losses(self, guesses: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy and right guesses of every patch, means over its parts."""
        wanted, by_part = colours(images, self.config, self.preprocessing_used, self._side), self._by_part(guesses)
        losses = functional.cross_entropy(by_part.flatten(0, 2), wanted.flatten(), reduction="none")
        right = by_part.argmax(dim=-1) == wanted
        return losses.view_as(wanted).mean(dim=-1), right.float().mean(dim=-1)

    def _by_part(self, guesses: Tensor) -> Tensor:
        return guesses.unflatten(-1, (self._side**2, -1))
