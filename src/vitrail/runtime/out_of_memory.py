"""Memory that ran out, on a GPU or in the machine."""

import gc

import torch


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def release_memory() -> None:
    """Give back what failed work still holds."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
