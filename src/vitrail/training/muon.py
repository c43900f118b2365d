"""Muon: the kernels of the blocks take steps of equal length in every direction, everything else learns by Adam.

The momentum of a kernel is a matrix of which a few directions are strong; Muon makes all its singular values about 1
(Jordan et al., 2024), so that the weak ones are learnt as well. On few images from scratch this is worth several times
the epochs.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

# `p(x) = a x + b x^3 + c x^5` five times brings singular values from (0, 1] to about 1: steep at 0, and no more exact
# than a step of descent needs.
_POLYNOMIAL = (3.4445, -4.7750, 2.0315)
_TIMES = 5
# The root mean square of an update over the learning rate. Adam's is 0.2 to 0.4, so both can share a rate.
_UPDATE = 0.4

Group = dict[str, Any]


class Muon(torch.optim.Optimizer):
    """`m = b m + (1 - b) g`, then `p -= lr * (0.4 sqrt(max(p.shape)) orthogonal((1 - b) g + b m) + weight_decay * p)`.

    A group with `matrices`, the number of matrices that lie joined in each parameter, is moved so; the others by AdamW.
    A step does nothing where `found_inf` is not 0, and never waits for the device.
    """

    def __init__(self, groups: Sequence[Group], *, momentum: float, **adam: Any) -> None:
        self._momentum = momentum
        self._rest = torch.optim.AdamW([group for group in groups if not group["matrices"]], **adam)
        super().__init__(list(groups), {})
        self.found_inf = torch.zeros((), device=groups[0]["params"][0].device)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        # Each time, because loading a state dict makes other dictionaries of both.
        self._rest.state = self.state
        self._rest.param_groups = [group for group in self.param_groups if not group["matrices"]]
        self._rest.found_inf = self.found_inf  # type: ignore[attr-defined]
        self._rest.step()
        moves = (self.found_inf == 0).float()
        for group in self.param_groups:
            if group["matrices"]:
                self._step(group, moves)

    def _step(self, group: Group, moves: Tensor) -> None:
        pieces = [piece for weight in group["params"] for piece in self._pieces(weight, group["matrices"])]
        rate = group["lr"] * moves
        for shape in dict.fromkeys(weight.shape for weight, _, _ in pieces):
            weights, gradients, momenta = map(list, zip(*(p for p in pieces if p[0].shape == shape), strict=True))
            # Not a product with 0, which would keep what is not finite.
            gradient = torch.where(moves > 0, torch.stack(gradients), 0)
            torch._foreach_mul_(momenta, 1 - (1 - self._momentum) * moves)  # type: ignore[reportPrivateImportUsage]
            news = (gradient * ((1 - self._momentum) * moves)).unbind()
            torch._foreach_add_(momenta, news)  # type: ignore[reportPrivateImportUsage]
            update = orthogonal(gradient.lerp(torch.stack(momenta), self._momentum))
            update *= rate * (_UPDATE * math.sqrt(max(shape)))
            torch._foreach_mul_(weights, 1 - rate * group["weight_decay"])  # type: ignore[reportPrivateImportUsage]
            torch._foreach_sub_(weights, update.unbind())  # type: ignore[reportPrivateImportUsage]

    def _pieces(self, weight: Tensor, matrices: int) -> zip:
        """The matrices in a parameter, each with its gradient and its momentum."""
        assert weight.grad is not None
        tensors = (weight, weight.grad, self.state[weight]["momentum_buffer"])
        return zip(*(tensor.chunk(matrices) for tensor in tensors), strict=True)


def orthogonal(matrices: Tensor) -> Tensor:
    """`U p(S) V^T` of `U S V^T`, with every singular value p(S) near 1: a few products in place of a decomposition."""
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices
    # Half precision is enough for a direction, and it is what GPUs multiply fast.
    x = x.bfloat16().contiguous() if x.is_cuda else x.contiguous()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    a, b, c = _POLYNOMIAL
    for _ in range(_TIMES):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    x = x.to(matrices.dtype)
    return x.mT.contiguous() if is_tall else x
