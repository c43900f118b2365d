"""What the 1,000 outputs of networks trained on ImageNet-1k are called, in the order of the WordNet numbers."""

from importlib.resources import files


def imagenet_classes() -> tuple[str, ...]:
    """As torchvision names them."""
    text = files("vitrail.zoo").joinpath("imagenet_classes.txt").read_text(encoding="utf-8")
    return tuple(text.splitlines())
