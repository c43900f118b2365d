"""Patches to tokens: the projection E of equation (1)."""

from jaxtyping import Float
from torch import Tensor, nn

from vitrail.config import times
from vitrail.errors import UsageError


class PatchEmbedding(nn.Module):
    """Cut the image into patches in raster order and project each with one linear map, `x_p E` in equation (1).

    A convolution whose stride is its kernel size is exactly that linear map, without the copy that cutting would cost.
    """

    def __init__(self, channels: int, width: int, patch_size: tuple[int, int], grid: tuple[int, int]) -> None:
        super().__init__()
        self.grid = grid
        self.projection = nn.Conv2d(channels, width, kernel_size=patch_size, stride=patch_size)

    def forward(self, images: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch patches dim"]:
        self._check(images)
        return self.projection(images).flatten(2).transpose(1, 2)

    def _check(self, images: Tensor) -> None:
        patch_height, patch_width = self.projection.kernel_size
        _, channels, height, width = images.shape
        if channels != self.projection.in_channels:
            raise UsageError(f"the images have {channels} channels", wanted=f"{self.projection.in_channels}")
        if (height // patch_height, width // patch_width) != self.grid:
            size = (self.grid[0] * patch_height, self.grid[1] * patch_width)
            raise UsageError(
                f"the images are {times((height, width))} pixels",
                wanted=times(size),
                fix=f"Resize them, or load the model with image_size=({height}, {width}).",
            )
