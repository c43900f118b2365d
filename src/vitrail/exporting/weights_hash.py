"""Which weights an exported file was made of: one of older weights must not pass for one of these."""

import re
from collections.abc import Mapping

from torch import Tensor

from vitrail.weights.fingerprint import tensors_hash

_POSITIONS = re.compile(r"positions\.|.*\.relative\.")


def weights_hash(state: Mapping[str, Tensor]) -> str:
    """A hash of the weights but the tables of positions, which another image size resizes."""
    kept = {name: tensor for name, tensor in state.items() if not _POSITIONS.match(name)}
    return tensors_hash(kept)
