"""What running out of memory looks like, and what is given back."""

import gc
import weakref

import pytest
import torch

from vitrail.runtime.out_of_memory import is_out_of_memory, release_memory


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        torch.cuda.OutOfMemoryError("CUDA out of memory."),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate memory: you tried to"),
    ],
)
def test_errors_that_say_so(error) -> None:
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        OSError("can't allocate memory"),
        ValueError("out of memory"),
        KeyboardInterrupt(),
    ],
)
def test_errors_that_do_not(error) -> None:
    assert not is_out_of_memory(error)


def test_what_torch_really_raises() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


def test_what_only_refers_to_itself_is_given_back() -> None:
    class Held:
        def __init__(self) -> None:
            self.itself = self

    gc.disable()
    try:
        gone = weakref.ref(Held())
        assert gone() is not None
        release_memory()
        assert gone() is None
    finally:
        gc.enable()


def test_the_cache_of_a_gpu_is_emptied_only_where_there_is_one(monkeypatch) -> None:
    emptied = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(True))
    for is_there in (False, True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=is_there: there)
        release_memory()
        assert bool(emptied) == is_there
