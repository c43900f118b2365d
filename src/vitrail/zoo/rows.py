"""What a row of the zoo holds."""

from dataclasses import dataclass

from vitrail.config import ModelConfig, Preprocessing


@dataclass(frozen=True, kw_only=True)
class Published:
    """Weights that others published for a network, with what is needed to use them."""

    hub: str
    """Repository on the Hugging Face hub."""
    licence: str
    image_size: int
    num_classes: int
    preprocessing: Preprocessing
    megabytes: int
    """Size of the float32 file, in units of 10^6 bytes."""


@dataclass(frozen=True, kw_only=True)
class ZooRow:
    """A named network: the key people type, the name the paper prints, and its config."""

    key: str
    name: str
    about: str
    config: ModelConfig
    parameters: int
    """At the config's own image size and number of classes."""
    macs: int
    """Multiply-adds of one forward pass of one image."""
    note: str = ""
    """What a reader of other sources may stumble over."""
    published: Published | None = None
