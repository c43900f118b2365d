"""Images to patch tokens: the projection E of equation (1), behind a backbone in hybrids."""

from jaxtyping import Float
from torch import Tensor, nn

from vitrail.config import Backbone, ResNetConfig, VitConfig, times
from vitrail.errors import UsageError
from vitrail.models.conv_stem import ConvStem
from vitrail.models.initialise import start_dense
from vitrail.models.resnet import ResNet


class PatchEmbedding(nn.Module):
    """Cut the image, or a backbone's feature map, into patches in raster order and project each: `x_p E` in (1).

    A convolution whose stride is its kernel size is exactly that linear map, without the copy that cutting would cost.
    """

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone = build_backbone(config.backbone, config.channels) if config.backbone else None
        channels = config.backbone.channels if config.backbone else config.channels
        patch_size = config.patch_size
        self.projection = nn.Conv2d(channels, config.width, kernel_size=patch_size, stride=patch_size)
        start_dense(self.projection)

    def forward(self, images: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch patches dim"]:
        check_channels(images, self.config.channels)
        features = images if self.backbone is None else self.backbone(images)
        self._check_grid(images, features)
        return self.projection(features).flatten(2).transpose(1, 2)

    def _check_grid(self, images: Tensor, features: Tensor) -> None:
        patch_height, patch_width = self.config.patch_size
        if (features.shape[2] // patch_height, features.shape[3] // patch_width) != self.config.grid:
            height, width = images.shape[2:]
            raise UsageError(
                f"the images are {times((height, width))} pixels",
                wanted=times(self.config.image_size),
                fix=f"Resize them, or load the model with image_size=({height}, {width}).",
            )


def check_channels(images: Tensor, channels: int) -> None:
    """Refuse images of another number of channels."""
    if images.shape[1] != channels:
        raise UsageError(f"the images have {images.shape[1]} channels", wanted=f"{channels}")


def build_backbone(config: Backbone, channels: int) -> ResNet | ConvStem:
    """Make the network in front of the patches."""
    return ResNet(config, channels) if isinstance(config, ResNetConfig) else ConvStem(config, channels)
