"""Memory is used again only when nobody can see it any more."""

import torch

from vitrail.data.loading.recycle import Recycled

SHAPE = torch.Size((2, 3, 4, 5))


def test_memory_comes_back_when_the_tensor_is_gone() -> None:
    memory = Recycled()
    first = memory.empty(SHAPE)
    place = first.data_ptr()
    del first
    assert memory.empty(SHAPE).data_ptr() == place


def test_memory_that_is_in_use_is_not_given_twice() -> None:
    memory = Recycled()
    held = [memory.empty(SHAPE).fill_(number) for number in range(6)]
    assert len({tensor.data_ptr() for tensor in held}) == 6
    assert [tensor.unique().tolist() for tensor in held] == [[number] for number in range(6)]


def test_a_view_keeps_its_memory() -> None:
    memory = Recycled()
    whole = memory.empty(SHAPE).fill_(7)
    row = whole[1].flatten()[3:]
    del whole
    memory.empty(SHAPE).fill_(0)
    assert row.unique().tolist() == [7]


def test_another_size_gets_memory_of_its_own() -> None:
    memory = Recycled()
    small = memory.empty(SHAPE)
    assert small.shape == SHAPE
    assert small.dtype == torch.float32
    del small
    large = memory.empty(torch.Size((8, 3, 4, 5)))
    assert large.shape == (8, 3, 4, 5)


def test_little_memory_is_kept() -> None:
    memory = Recycled()
    held = [memory.empty(SHAPE) for _ in range(50)]
    held.clear()
    assert len(memory._free) <= 4
