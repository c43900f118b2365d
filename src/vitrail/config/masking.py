"""Learning without labels: which patches are hidden, and what is asked about them; values only."""

from dataclasses import dataclass
from typing import Literal, get_args

from vitrail.config.checks import positive
from vitrail.errors import UsageError, choose

Method = Literal["patches", "autoencoder"]
Target = Literal["colour", "small_patch", "pixels"]


@dataclass(frozen=True, kw_only=True)
class MaskingConfig:
    """Masked patch prediction (4.6, B.1.2), or a masked autoencoder (He et al., 2021)."""

    method: Method = "patches"
    """Predict corrupted patches among the others, as the paper; or leave them out, and fill them in by a decoder."""
    target: Target = "colour"
    """Of a patch: its mean colour at 3 bits a channel; that of each of 4x4 parts; or its pixels, as an autoencoder."""
    share: float = 0.5
    """Of the patches that are hidden, the same number in every image."""
    masked: float = 0.8
    """Of the hidden patches, the share whose embedding becomes the mask token (method patches)."""
    swapped: float = 0.1
    """The share whose embedding becomes that of another patch of the image; the rest stays as it is."""
    decoder_width: int = 512
    """Of the tokens of an autoencoder's decoder."""
    decoder_depth: int = 8
    """Blocks of the decoder."""
    decoder_heads: int = 16
    """Attention heads of the decoder."""
    normalised: bool = True
    """Whether an autoencoder predicts each patch relative to the mean and standard deviation of its own pixels."""

    @property
    def guessed(self) -> str:
        """What the share is called that a run watches beside its loss: of right colours, or of explained pixels."""
        return "explained" if self.target == "pixels" else "right colours"

    def __post_init__(self) -> None:
        choose("method", self.method, get_args(Method))
        choose("target", self.target, get_args(Target))
        if self.method == "autoencoder" and self.target != "pixels":
            raise UsageError(f"target is {self.target!r}", wanted="pixels, which is what an autoencoder predicts")
        if not 0 < self.share < 1:
            raise UsageError(f"share is {self.share}", wanted="more than 0 and less than 1")
        if not (self.masked >= 0 and self.swapped >= 0 and self.masked + self.swapped <= 1 + 1e-9):
            raise UsageError(
                f"masked and swapped are {self.masked} and {self.swapped}", wanted="shares that make at most 1 together"
            )
        for name in ("decoder_width", "decoder_depth", "decoder_heads"):
            positive(name, getattr(self, name))
        # A decoder has sincos_2d positions.
        if self.decoder_width % self.decoder_heads or self.decoder_width % 4:
            raise UsageError(
                f"decoder_width is {self.decoder_width}", wanted=f"a multiple of {self.decoder_heads} and of 4"
            )
