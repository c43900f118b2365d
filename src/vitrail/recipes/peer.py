"""A recipe of ours with a network of timm or torchvision in the place of its own, as a baseline beside it."""

from dataclasses import replace

from vitrail.config import PeerConfig, PeerName, VitConfig
from vitrail.recipes.expanded import Recipe

_COLOURS = 3


def with_peer(row: Recipe, peer: PeerName) -> Recipe:
    """The same data, augmentation, length and image size; Adam where the row has Muon, which is for our blocks."""
    assert isinstance(row.model, VitConfig)
    grey = row.preprocessing
    colour = replace(grey, mean=grey.mean * _COLOURS, std=grey.std * _COLOURS) if len(grey.mean) == 1 else grey
    optim = row.optim
    return replace(
        row,
        # As ours are called by network and data: vit-cifar10.
        name=f"{peer.name}-{row.data}",
        model=PeerConfig(package=peer.package, name=peer.name, image_size=row.model.image_size, channels=_COLOURS),
        optim=replace(optim, optimizer="adam", momentum=0.9) if optim.optimizer == "muon" else optim,
        preprocessing=colour,
        score=None,
    )
