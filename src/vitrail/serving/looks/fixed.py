"""What a network has learnt, whatever the image: position similarity and filters (Figure 7)."""

from typing import Any

from vitrail.config.checks import MAX_WIDTH, positive
from vitrail.serving.looks.arrays import array_reply, ensure_sendable
from vitrail.serving.looks.loaded import Loaded
from vitrail.serving.looks.numbers import as_numbers
from vitrail.serving.looks.reply import NotAvailable, Reply, json_reply

_COMPONENTS = 28


def positions(loaded: Loaded) -> Reply:
    """The cosine between the position embeddings of every two patches: (grid_h, grid_w, grid_h, grid_w)."""
    if loaded.network is None or not loaded.facts["can"]["positions"]:
        raise NotAvailable(f"{loaded.facts['network']} on {loaded.facts['backend']} has no table of positions to see")
    grid = tuple(loaded.facts["grid"])
    ensure_sendable(grid + grid, fix="Serve the model with a smaller --image-size.")
    key = ("positions", 0)
    if key not in loaded.fixed:
        from vitrail.inspection import position_similarity

        loaded.fixed[key] = array_reply(position_similarity(loaded.network()).numpy(), loaded.generation)
    return loaded.fixed[key]


def filters(loaded: Loaded, options: dict[str, Any]) -> Reply:
    """The first principal components of the filters that read pixels, each brought to [0, 1]."""
    if loaded.network is None:
        raise NotAvailable(f"{loaded.facts['backend']} computes an exported file, whose filters cannot be seen")
    count = options.get("components", _COMPONENTS)
    positive("components", count)
    # All there are, once: the first few of them are the first few of any.
    key = ("filters", 0)
    if key not in loaded.fixed:
        from vitrail.inspection import principal_filters

        loaded.fixed[key] = principal_filters(loaded.network(), MAX_WIDTH)
    found = loaded.fixed[key]
    return json_reply(
        {
            "layer": found.layer,
            "count": found.count,
            "shares": as_numbers(found.shares[:count].numpy()),
            "components": as_numbers(found.components[:count].numpy()),
            "generation": loaded.generation,
        }
    )
