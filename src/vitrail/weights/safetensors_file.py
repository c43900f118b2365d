"""Safetensors files: read and written with errors a person can act on."""

import re
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from vitrail.errors import DataError


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors by name, and the text metadata.

    The tensors are copied out of the file: a mapped one may start at any byte, and kernels round differently on
    unaligned memory, so that a loaded network would not give its saved twin's logits to the last bit.
    """
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            return tensors, dict(file.metadata() or {})
    except (SafetensorError, OSError, ValueError) as error:
        raise DataError(
            f"is not a complete .safetensors file ({error})", where=str(path), fix="Download or copy the file again."
        ) from error


def write_safetensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors and text metadata; the caller makes it atomic."""
    written: dict[str, Tensor] = {}
    places: set[int] = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().contiguous()
        # The format has no shared memory: a tensor that lies where another does is copied.
        written[name] = tensor.clone() if tensor.untyped_storage().data_ptr() in places else tensor
        places.add(tensor.untyped_storage().data_ptr())
    try:
        save_file(written, path, dict(metadata))
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]) if number else 0, str(error)) from error
