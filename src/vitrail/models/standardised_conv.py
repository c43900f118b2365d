"""Convolutions and pooling of the paper's ResNets: standardised weights, and the two ways to pad."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from vitrail.config.backbone import Standardisation
from vitrail.models.initialise import start_dense


class StandardisedConv2d(nn.Conv2d):
    """A convolution whose kernel is brought to mean 0 and deviation 1 per output filter (Qiao et al., 2019).

    `same` pads as TensorFlow does: the output has ceil(n / stride) cells, and an odd pixel goes to the end.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel_size: int,
        stride: int = 1,
        *,
        same: bool,
        standardisation: Standardisation,
        epsilon: float,
    ) -> None:
        padding = 0 if same else kernel_size // 2
        super().__init__(inputs, outputs, kernel_size, stride, padding, bias=False)
        self.same, self.standardisation, self.epsilon = same, standardisation, epsilon
        start_dense(self)

    def forward(self, input: Tensor) -> Tensor:
        if self.same:
            input = pad_same(input, self.kernel_size[0], self.stride[0])
        return functional.conv2d(input, self.standardised(), None, self.stride, self.padding)

    def standardised(self) -> Tensor:
        """`(w - mean) / (std + epsilon)` or `(w - mean) / sqrt(variance + epsilon)`, with the biased variance."""
        variance, mean = torch.var_mean(self.weight, dim=(1, 2, 3), correction=0, keepdim=True)
        if self.standardisation == "std":
            return (self.weight - mean) / (variance.sqrt() + self.epsilon)
        return (self.weight - mean) * (variance + self.epsilon).rsqrt()


def pad_same(x: Tensor, kernel_size: int, stride: int, value: float = 0.0) -> Tensor:
    """Pad as TensorFlow's SAME: `max((ceil(n / stride) - 1) stride + kernel - n, 0)` in all, the odd one at the end."""
    if kernel_size == 1:
        return x
    height, width = (((side - 1) // stride) * stride + kernel_size - side for side in (x.shape[-2], x.shape[-1]))
    if kernel_size < stride:  # else nothing is below zero, and a size that is not known yet can be exported
        height, width = max(height, 0), max(width, 0)
    return functional.pad(x, (width // 2, width - width // 2, height // 2, height - height // 2), value=value)
