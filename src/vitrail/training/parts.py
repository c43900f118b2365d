"""A part of the network in every process (FSDP2): weights, gradients and moments are cut into equal rows.

A block's weights are put together just before it is computed and let go of right after. The optimiser and the average
work on the rows as plain tensors: what they compute is the same number for number, whoever holds it.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from vitrail.models import bit, resnet
from vitrail.models.block import Block
from vitrail.runtime.processes import total_
from vitrail.training.copies import share_statistics
from vitrail.training.spread import Network, Whole

_ROWS = (Shard(0),)


class Parts(Whole):
    """Some rows of every tensor in each process."""

    has_all = False
    can_be_captured = False
    is_alone = False

    def piece(self, is_last: bool) -> AbstractContextManager:
        assert isinstance(self.model, FSDPModule)
        self.model.set_requires_gradient_sync(is_last)
        return nullcontext()

    def gradients(self, trained: Sequence[Tensor]) -> list[Tensor]:
        for name, weight in self.weights.items():
            gradient = self._sharded[name].grad
            weight.grad = None if gradient is None else _rows(gradient)
        return super().gradients(trained)

    def norm(self, gradients: list[Tensor]) -> Tensor:
        square = super().norm(gradients).square()
        self.total_(square)
        return square.sqrt()

    def forget_gradients(self) -> None:
        for parameter in self._sharded.values():
            parameter.grad = None

    def total_(self, values: Tensor) -> None:
        total_(values, self.processes)

    def share_statistics(self) -> None:
        share_statistics(self)

    def whole(self, name: str, part: Tensor) -> Tensor:
        if not self._is_part(name, part):
            return part
        whole = self._sharded[name]
        rows = DTensor.from_local(part, self._mesh, _ROWS, shape=whole.shape, stride=whole.stride(), run_check=False)
        # One at a time and away from the GPU, which need not have room for all of them.
        return rows.full_tensor().cpu()

    def part(self, name: str, whole: Tensor) -> Tensor:
        if not self._is_part(name, whole):
            return whole
        return _rows(distribute_tensor(whole, self._mesh, _ROWS, src_data_rank=None))

    def shape(self, name: str, part: Tensor) -> torch.Size:
        return self._sharded[name].shape if self._is_part(name, part) else part.shape

    @contextmanager
    def with_weights(self, weights: dict[str, Tensor]) -> Iterator[Network]:
        held = self.held()
        others = [(held[name], other) for name, other in weights.items() if other is not held[name]]
        # The blocks put their weights together out of this very memory.
        _exchange(others)
        try:
            yield self.model
        finally:
            _exchange(others)
            # What is outside of the blocks stays put together after a forward pass, with the other weights in it.
            assert isinstance(self.model, FSDPModule)
            self.model.reshard()

    def _is_part(self, name: str, tensor: Tensor) -> bool:
        """Numbers such as the optimiser's count of steps are the same everywhere."""
        return name in self._sharded and tensor.ndim > 0

    def _wrapped(self, compiled: bool) -> nn.Module:
        device = next(self.model.parameters()).device
        self._mesh: DeviceMesh = init_device_mesh(device.type, (self.processes.ranks,))
        for module in list(self.model.modules()):
            if isinstance(module, Block):
                if compiled:
                    # Block by block, because what lies between them talks to other processes.
                    module.compile()
                fully_shard(module, mesh=self._mesh)
                # The last block is asked for one token alone where no other is read.
                register_fsdp_forward_method(module, "first_token")
            elif isinstance(module, bit.Unit | resnet.Unit):
                fully_shard(module, mesh=self._mesh)
        fully_shard(self.model, mesh=self._mesh)
        return self.model

    def _held_weights(self) -> dict[str, Tensor]:
        self._sharded = dict(self.model.named_parameters())
        return {
            name: nn.Parameter(_rows(parameter.detach()), requires_grad=parameter.requires_grad)
            for name, parameter in self._sharded.items()
        }


def _rows(tensor: Tensor) -> Tensor:
    assert isinstance(tensor, DTensor)
    return tensor.to_local()


@torch.no_grad()
def _exchange(pairs: list[tuple[Tensor, Tensor]]) -> None:
    for one, other in pairs:
        kept = one.clone()
        one.copy_(other)
        other.copy_(kept)
