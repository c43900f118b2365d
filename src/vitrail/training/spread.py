"""How a network is spread over the processes of a run: whole in one, a copy of it in each (DDP), or a part (FSDP2)."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from vitrail.config import OptimConfig, TrainConfig
from vitrail.config.training import Parallel
from vitrail.errors import UsageError, setting
from vitrail.models import Classifier, PeerNetwork, bit, resnet
from vitrail.models.block import Block
from vitrail.runtime.processes import ALONE, Processes, total_
from vitrail.training.optimizer import MOMENTS

Network = Callable[[Tensor], Tensor]


class Whole:
    """All of the network in one process; what several processes do otherwise is in `Copies` and `Parts`."""

    has_all = True
    """Whether every process has the whole network, and can compute and save it without the others."""
    is_alone = True
    """Whether no other process waits in the middle of a step, so that one that failed can be done again."""
    can_be_captured = True
    """Whether a step can become a CUDA graph."""

    def __init__(self, model: Classifier, processes: Processes = ALONE, *, compiled: bool = False) -> None:
        self.model, self.processes = model, processes
        self.forward: nn.Module = self._wrapped(compiled)
        self.weights: dict[str, Tensor] = self._held_weights()
        """The parameters as the optimiser moves them: what this process has of each."""

    def held(self) -> dict[str, Tensor]:
        """Everything in the network's state as this process has it: weights, and statistics of BatchNorm."""
        return dict(self.model.state_dict()) | self.weights

    def piece(self, is_last: bool) -> AbstractContextManager:
        """Around forward and backward of one micro-batch: only the last of a batch need talk to other processes."""
        return nullcontext()

    def gradients(self, trained: Sequence[Tensor]) -> list[Tensor]:
        """What this process has of the gradient of a batch, brought to the weights that the optimiser moves."""
        return [weight.grad for weight in trained if weight.grad is not None]

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """The norm of the whole gradient."""
        return torch.nn.utils.get_total_norm(gradients)

    def forget_gradients(self) -> None:
        """Let go of gradients that the optimiser does not know by itself."""

    def total_(self, values: Tensor) -> None:
        """Sum over all processes, in place."""

    def share_statistics(self) -> None:
        """The statistics of BatchNorm over the images of all processes."""

    def whole(self, name: str, part: Tensor) -> Tensor:
        """All of a tensor that belongs to the weight of this name; every process has to ask at the same time."""
        return part

    def part(self, name: str, whole: Tensor) -> Tensor:
        """What this process keeps of a whole tensor."""
        return whole

    def shape(self, name: str, part: Tensor) -> torch.Size:
        """Of the whole tensor."""
        return part.shape

    @contextmanager
    def with_weights(self, weights: dict[str, Tensor]) -> Iterator[Network]:
        """The network with other weights in place of its own, as this process has them."""
        yield lambda images: functional_call(self.model, weights, (images,))

    def _wrapped(self, compiled: bool) -> nn.Module:
        return torch.compile(self.model) if compiled else self.model  # type: ignore[return-value]

    def _held_weights(self) -> dict[str, Tensor]:
        return dict(self.model.named_parameters())


class Copies(Whole):
    """The same weights in each process, moved by the same gradient."""

    can_be_captured = False
    is_alone = False

    def piece(self, is_last: bool) -> AbstractContextManager:
        return nullcontext() if is_last else self._copies.no_sync()

    def total_(self, values: Tensor) -> None:
        total_(values, self.processes)

    def share_statistics(self) -> None:
        share_statistics(self)

    def _wrapped(self, compiled: bool) -> nn.Module:
        device = next(self.model.parameters()).device
        with warnings.catch_warnings():
            # Newer versions of torch have another name for an argument, older ones have only this.
            warnings.simplefilter("ignore", FutureWarning)
            self._copies = DistributedDataParallel(
                self.model,
                device_ids=[device.index] if device.type == "cuda" else None,
                # Statistics of BatchNorm are shared once per update, and those of every process count.
                broadcast_buffers=False,
                gradient_as_bucket_view=True,
            )
        self._settle_buckets()
        return torch.compile(self._copies) if compiled else self._copies  # type: ignore[return-value]

    def _settle_buckets(self) -> None:
        """Let DDP sort its buckets now, as it does after its first backward pass.

        Else the first step after a resume would add up in another order than the same step of the unbroken run.
        """
        weight, config = next(self.model.parameters()), self.model.config
        was_training = self.model.training
        self.model.eval()
        images = torch.zeros(1, config.channels, *config.image_size, device=weight.device)
        for _ in range(2):
            (self._copies(images).sum() * 0).backward()
        for parameter in self.model.parameters():
            parameter.grad = None
        self.model.train(was_training)


def share_statistics(spread: Whole) -> None:
    """Running means and variances become the mean of those of all processes."""
    # Those of a frozen one stay as they are, to the last bit.
    norms = [module for module in spread.model.modules() if isinstance(module, _BatchNorm) and module.training]
    values = [value for norm in norms for value in (norm.running_mean, norm.running_var) if value is not None]
    if not values:
        return
    flat = torch.cat([value.flatten() for value in values])
    spread.total_(flat)
    flat /= spread.processes.ranks
    for value, mean in zip(values, flat.split([value.numel() for value in values]), strict=True):
        value.copy_(mean.view_as(value))


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


SHARE_FOR_STATE = 0.4
"""Of a GPU: a copy whose weights, gradients, moments and average take no more leaves enough for activations."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The processes of a run, and how its network is spread over them."""

    processes: Processes
    parallel: Parallel = "auto"


def kind_of_spread(
    model: Classifier, train: TrainConfig, optim: OptimConfig, device: torch.device, placement: Placement | None
) -> type[Whole]:
    """As asked; where it is not said, a copy in each of several processes unless one of them has no room for it."""
    if placement is None or placement.processes.control is None:
        return Whole
    if placement.parallel == "fsdp" and optim.optimizer == "muon":
        raise UsageError(
            "the optimiser is muon and the network in parts (fsdp)",
            wanted=f"whole matrices, as {setting('parallel', 'ddp')} has them, or another {setting('optim.optimizer')}",
        )
    if isinstance(model, PeerNetwork):
        if placement.parallel == "fsdp":
            raise UsageError(
                "a network of another package is asked for in parts (fsdp)",
                wanted=f"a copy in each process, as {setting('parallel', 'ddp')} has it: its blocks are not known here",
            )
        return Whole if placement.processes.ranks == 1 and placement.parallel == "auto" else Copies
    if placement.parallel != "auto":
        return Parts if placement.parallel == "fsdp" else Copies
    if placement.processes.ranks == 1:
        return Whole
    if optim.optimizer == "muon":
        return Copies
    return Parts if placement.processes.agree(_is_large(model, train, optim, device))[0] else Copies


def _is_large(model: Classifier, train: TrainConfig, optim: OptimConfig, device: torch.device) -> bool:
    """Whether what a copy holds besides activations leaves too little of a GPU for them."""
    if device.type != "cuda":
        return False
    # Weights and gradients, and with an average that and its distance from the weights.
    tensors = 2 + MOMENTS[optim.optimizer] + (2 if train.average else 0)
    held = tensors * sum(parameter.nbytes for parameter in model.parameters())
    return held > SHARE_FOR_STATE * torch.cuda.get_device_properties(device).total_memory
