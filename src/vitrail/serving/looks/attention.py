"""The attention of one layer: of every token to every token, or of one of them."""

from typing import TYPE_CHECKING, Any

import numpy as np

from vitrail.errors import UsageError
from vitrail.prediction.predictor import Prepared
from vitrail.serving.looks.arrays import array_reply, ensure_sendable
from vitrail.serving.looks.inspections import as_tensor
from vitrail.serving.looks.loaded import Loaded
from vitrail.serving.looks.reply import NotAvailable, Reply

if TYPE_CHECKING:
    from torch import Tensor

    from vitrail.models import Classifier


def attention(loaded: Loaded, options: dict[str, Any], image: Prepared) -> Reply:
    """`softmax(q k^T / sqrt(head_dim))` of a layer: (heads, tokens, tokens), or (heads, tokens) of one query."""
    facts = loaded.facts
    if loaded.network is None or not facts["can"]["attention"]:
        raise NotAvailable(f"{facts['network']} on {facts['backend']} has no attention to look at")
    layer = _number("layer", options.get("layer"), facts["depth"])
    heads, tokens = facts["num_heads"], facts["tokens"]
    if options.get("query") is not None:
        query = _number("query", options["query"], tokens)
        found = _of_one(loaded.network(), as_tensor(image.pixels), layer, query)
    else:
        ensure_sendable((heads, tokens, tokens), fix=f"Ask for one token at a time: ?layer={layer}&query=0.")
        from vitrail.inspection import attention_maps

        found = attention_maps(loaded.network(), as_tensor(image.pixels), [layer])[0, 0].numpy()
    return array_reply(found, loaded.generation)


def _of_one(model: "Classifier", images: "Tensor", layer: int, query: int) -> np.ndarray:
    """One row of every head's matrix, without the others."""
    from itertools import islice

    from vitrail.inspection.looking import finite, in_parts, looking, states, transformer
    from vitrail.inspection.rows import attention_rows

    network = transformer(model, "attention map")
    with looking(network):
        [part] = in_parts(network, images)
        z = next(islice(states(network, part), layer, None))
        block = network.blocks[layer]
        [(_, weights)] = attention_rows(block, network.enter(layer, z), first=query, last=query + 1)  # type: ignore[arg-type]
    return finite(weights[0, :, 0].cpu(), "the attention").numpy()


def _number(name: str, value: Any, count: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < count:
        raise UsageError(f"{name} is {value!r}", wanted=f"a whole number from 0 to {count - 1}")
    return value
