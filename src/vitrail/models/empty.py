"""A network that is about to get its weights: no memory, and no first weights to be thrown away."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.overrides import TorchFunctionMode

from vitrail.config import ModelConfig
from vitrail.models.classifier import Classifier
from vitrail.models.create import build

Network = TypeVar("Network", bound=Classifier)


# How `torch.nn.init.trunc_normal_` draws in versions that ask nobody about it.
_TRUNCATED = {torch.Tensor.uniform_, torch.Tensor.erfinv_, torch.Tensor.mul_, torch.Tensor.add_, torch.Tensor.clamp_}


class _NoStart(TorchFunctionMode):
    """Leaves parameters as they are where `torch.nn.init` would fill them.

    On the meta device there is nothing to fill, and to pretend so would load torch's compiler: a second and a half.
    """

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init" or func in _TRUNCATED:
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


def build_empty(config: ModelConfig) -> Classifier:
    """The network of a config on the meta device."""
    return empty(lambda: build(config))


def empty(make: Callable[[], Network]) -> Network:
    """Whatever network is made, on the meta device."""
    with torch.device("meta"), _NoStart():
        return make()
