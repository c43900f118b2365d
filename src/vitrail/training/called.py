"""Call any method of a network with other weights than its own."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call


class _Called(nn.Module):
    """A method of a network as a forward pass, which is what torch can call with other weights."""

    def __init__(self, method: Callable[..., Any]) -> None:
        super().__init__()
        self.network: nn.Module = method.__self__  # type: ignore[attr-defined]
        self._method = method

    def forward(self, *arguments: Any) -> Any:
        return self._method(*arguments)


def called_with(method: Callable[..., Any], weights: dict[str, Tensor], *arguments: Any) -> Any:
    """What a method of a network answers when its weights are these."""
    return functional_call(_Called(method), {f"network.{name}": tensor for name, tensor in weights.items()}, arguments)
