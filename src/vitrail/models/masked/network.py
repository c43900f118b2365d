"""What the networks share that learn from hidden patches: an encoder whose weights are all that is kept."""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vitrail.config import MaskingConfig, Preprocessing, VitConfig
from vitrail.errors import UsageError
from vitrail.models.vit import VisionTransformer

# Of an image of one colour, which leaves nothing to explain.
_LEAST_VARIANCE = 1e-6


@dataclass(frozen=True)
class Seen:
    """A few images as people see them, values from 0 to 1: (batch, channels, height, width) each."""

    original: Tensor
    corrupted: Tensor
    """With hidden patches as the network gets them; grey stands for what it does not see."""
    predicted: Tensor
    """With what the network puts in place of the hidden patches."""


class MaskedNetwork(VisionTransformer):
    """A Vision Transformer without a head that answers with (loss, how much was guessed) of each image.

    Every weight that a Vision Transformer has keeps its name; what is only for pre-training has others.
    """

    def __init__(self, config: VitConfig, masking: MaskingConfig, preprocessing: Preprocessing) -> None:
        if config.num_classes or config.pre_logits:
            raise UsageError("the network has a head", wanted="one with num_classes=0, which learns without labels")
        if config.pool == "map":
            raise UsageError("the pool is map", wanted="token or mean: attention pooling would learn nothing")
        if config.grid[0] * config.grid[1] < 2:
            raise UsageError("the image is one patch", wanted="at least two, so that one can be predicted")
        super().__init__(config)
        self.masking, self.preprocessing_used = masking, preprocessing
        self.encoder_names = frozenset(name for name, _ in self.named_parameters())

    @abstractmethod
    def forward(self, images: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch 2"]:
        """The loss of each image, a mean over its hidden patches, and how much of them was guessed, from 0 to 1."""

    @abstractmethod
    def see(self, images: Float[Tensor, "batch channels height width"]) -> Seen:
        """Original, corrupted and predicted images, for the eye."""

    def shown(self, images: Float[Tensor, "batch channels height width"]) -> Tensor:
        """Images as they were before they were normalised."""
        used = self.preprocessing_used
        mean, std = (images.new_tensor(values)[:, None, None] for values in (used.mean, used.std))
        return images * std + mean


def mean_of_hidden(
    values: Float[Tensor, "batch patches"], hidden: Bool[Tensor, "batch patches"]
) -> Float[Tensor, "batch"]:
    """The mean over the hidden patches of each image."""
    return (values * hidden).sum(dim=1) / hidden.sum(dim=1)


def pixel_answer(
    guesses: Float[Tensor, "batch patches numbers"],
    wanted: Float[Tensor, "batch patches numbers"],
    hidden: Bool[Tensor, "batch patches"],
) -> Float[Tensor, "batch 2"]:
    """The mean squared error of the hidden patches, and the share of their variance that the guess explains."""
    losses = mean_of_hidden((guesses - wanted).square().mean(dim=-1), hidden)
    middle = mean_of_hidden(wanted.mean(dim=-1), hidden)
    variance = mean_of_hidden((wanted - middle[:, None, None]).square().mean(dim=-1), hidden)
    explained = (1 - losses / variance.clamp(min=_LEAST_VARIANCE)).clamp(0, 1)
    return torch.stack([losses, explained], dim=1)
