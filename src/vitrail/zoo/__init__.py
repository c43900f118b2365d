"""The networks that have a name, each a row of plain data."""

from vitrail.errors import choose
from vitrail.zoo.architectures import ARCHITECTURES
from vitrail.zoo.costs import COSTS
from vitrail.zoo.published import PUBLISHED
from vitrail.zoo.rows import Published, ZooRow

ZOO: dict[str, ZooRow] = {
    network.key: ZooRow(
        key=network.key,
        name=network.name,
        about=network.about,
        config=network.config,
        # A new row has no cost yet: `vitrail info` measures it, and the test over the zoo asks for it.
        parameters=COSTS.get(network.key, (0, 0))[0],
        macs=COSTS.get(network.key, (0, 0))[1],
        note=network.note,
        published=PUBLISHED.get(network.key),
    )
    for network in ARCHITECTURES
}


_BY_NAME = {row.name: key for key, row in ZOO.items()}


def zoo_row(key: str) -> ZooRow:
    """Look a network up by key, or by the name the paper prints (ViT-B/16)."""
    key = _BY_NAME.get(key, key)
    return ZOO[choose("model", key, ZOO)]


__all__ = ["ZOO", "Published", "ZooRow", "zoo_row"]
