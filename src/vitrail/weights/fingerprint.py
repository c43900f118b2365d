"""A network known by what it is, whatever file it came from."""

import hashlib
import json
from collections.abc import Mapping

import torch
from torch import Tensor

from vitrail.config import ModelConfig, to_json


def fingerprint(config: ModelConfig, state: Mapping[str, Tensor]) -> str:
    """A hash of the config and of every tensor."""
    return tensors_hash(state, json.dumps(to_json(config), sort_keys=True))


def tensors_hash(state: Mapping[str, Tensor], before: str = "") -> str:
    """A hash of what comes before and of every tensor."""
    found = hashlib.sha256(before.encode())
    for name, tensor in sorted(state.items()):
        found.update(name.encode())
        # As bytes, because numpy has no bfloat16.
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()
