"""Which patches are hidden, and what stands in their place (B.1.2)."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vitrail.config import MaskingConfig


@dataclass(frozen=True)
class Corruption:
    """What happens to each patch of a batch."""

    hidden: Bool[Tensor, "batch patches"]
    """Those that are to be predicted."""
    masked: Bool[Tensor, "batch patches"]
    """Of these, those that become the mask token."""
    swapped: Bool[Tensor, "batch patches"]
    """Of these, those that become another patch; the others stay as they are."""
    donors: Int[Tensor, "batch patches"]
    """That other patch, of the same image and never the patch itself."""

    def apply(
        self, patches: Float[Tensor, "batch patches dim"], mask_token: Float[Tensor, "1 dim"]
    ) -> Float[Tensor, "batch patches dim"]:
        """The embeddings that the encoder sees, still without positions."""
        others = patches.gather(1, self.donors[..., None].expand_as(patches))
        patches = torch.where(self.swapped[..., None], others, patches)
        return torch.where(self.masked[..., None], mask_token.to(patches.dtype), patches)


def draw_corruption(batch: int, patches: int, masking: MaskingConfig, device: torch.device) -> Corruption:
    """Hide the same number of patches in every image, each of them with the chances of the config.

    Drawn from torch's generator of the device, which a run seeds anew for every step, as for dropout.
    """
    hidden = draw_order(batch, patches, device).argsort(dim=1) < hidden_patches(patches, masking)
    fate = torch.rand(batch, patches, device=device)
    places = torch.arange(patches, device=device)
    steps = torch.randint(1, patches, (batch, patches), device=device)
    return Corruption(
        hidden=hidden,
        masked=hidden & (fate < masking.masked),
        swapped=hidden & (fate >= masking.masked) & (fate < masking.masked + masking.swapped),
        donors=(places + steps) % patches,
    )


def draw_order(batch: int, patches: int, device: torch.device) -> Int[Tensor, "batch patches"]:
    """The patches of each image in an order of its own."""
    return torch.rand(batch, patches, device=device).argsort(dim=1)


def hidden_patches(patches: int, masking: MaskingConfig) -> int:
    """How many patches of an image are hidden: one at least, and one at least is left."""
    return min(max(round(masking.share * patches), 1), patches - 1)
