"""Features of mean zero and deviation one in every dimension, as seen on the images that are learnt from."""

from dataclasses import dataclass

from torch import Tensor

# Of big_vision: a dimension that never changes would be divided by zero.
_EPSILON = 1e-5


@dataclass(frozen=True)
class Whitening:
    """Mean and deviation of each dimension, float64 (dim,)."""

    mean: Tensor
    scale: Tensor

    @classmethod
    def of(cls, features: Tensor) -> "Whitening":
        """What these features, float64 (images, dim), are whitened by: the deviation is that of a population."""
        return cls(features.mean(dim=0), features.std(dim=0, correction=0) + _EPSILON)

    def __call__(self, features: Tensor) -> Tensor:
        """These features whitened, in float64."""
        return (features.to(self.mean) - self.mean).div_(self.scale)
