"""A few convolutions in front of the patches, as torchvision builds them (Xiao et al., 2021)."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vitrail.config import ConvLayerConfig, ConvStemConfig
from vitrail.models.initialise import start_dense


class ConvStem(nn.Module):
    """Convolution, BatchNorm and ReLU per layer; the patch projection that follows is the stem's 1x1 convolution."""

    def __init__(self, config: ConvStemConfig, channels: int) -> None:
        super().__init__()
        inputs = [channels, *(layer.channels for layer in config.layers)]
        self.layers = nn.ModuleList(
            ConvLayer(layer, before, config.batch_norm_epsilon)
            for layer, before in zip(config.layers, inputs, strict=False)
        )

    def forward(
        self, images: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch features map_height map_width"]:
        for layer in self.layers:
            images = layer(images)
        return images


class ConvLayer(nn.Module):
    """One convolution of the stem with its norm."""

    def __init__(self, config: ConvLayerConfig, inputs: int, epsilon: float) -> None:
        super().__init__()
        padding = (config.kernel_size - 1) // 2
        self.convolution = nn.Conv2d(inputs, config.channels, config.kernel_size, config.stride, padding, bias=False)
        self.norm = nn.BatchNorm2d(config.channels, eps=epsilon)
        start_dense(self.convolution)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.norm(self.convolution(x)))
