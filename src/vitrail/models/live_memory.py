"""How much memory is alive while a network runs: every tensor followed from its making to the end of its last view."""

import weakref
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@dataclass
class _Block:
    label: str
    size: int
    views: int = 0


class LiveMemory(TorchDispatchMode):
    """Counts what operations make while it is active; what was there before is not counted, nor are its views.

    Works on tensors without data (`FakeTensorMode`). Every block of memory gets the present `label`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.label = "made"
        self.now: Counter[str] = Counter()
        """Bytes that are alive, by label."""
        self.peak = 0
        """Most bytes that were alive at once."""
        self._blocks: dict[int, _Block] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = {_key(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._follow(tensor, func, inputs)
        return result

    def label_of(self, func: Any, inputs: Collection[int]) -> str:
        """What a new block is; `inputs` are the keys of the memory that the operation read."""
        return self.label

    def grew(self) -> None:
        """Called whenever a block was made."""
        self.peak = max(self.peak, self.now.total())

    def relabel(self, tensor: Tensor, label: str) -> None:
        """Say what a block turned out to be."""
        block = self._blocks.get(_key(tensor))
        if block is not None:
            self.now[block.label] -= block.size
            self.now[label] += block.size
            block.label = label

    def _follow(self, tensor: Tensor, func: Any, inputs: Collection[int]) -> None:
        key = _key(tensor)
        block = self._blocks.get(key)
        if block is None:
            if key in inputs:
                return  # a view of a weight or of the input
            block = self._blocks[key] = _Block(self.label_of(func, inputs), tensor.untyped_storage().nbytes())
            self.now[block.label] += block.size
            self.grew()
        block.views += 1
        weakref.finalize(tensor, self._release, key)

    def _release(self, key: int) -> None:
        block = self._blocks[key]
        block.views -= 1
        if not block.views:
            del self._blocks[key]
            self.now[block.label] -= block.size


def _key(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata
