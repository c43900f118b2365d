"""`vitrail demo`: a small Vision Transformer at work, equation by equation."""

import torch
from torch import Tensor

from vitrail.cli.terminal import console
from vitrail.models import VisionTransformer, create_model

_SEVEN = """
............................
............................
............................
............................
......###############.......
......###############.......
.................####.......
.................###........
................####........
................###.........
...............####.........
...............###..........
..............####..........
..............###...........
.............####...........
.............###............
............####............
............###.............
...........####.............
...........###..............
..........####..............
..........###...............
.........####...............
.........###................
............................
............................
............................
............................
"""
_SHADES = " ░▒▓█"


def run() -> None:
    """Build the small network of the study notes, send one drawn digit through it, and show every tensor's shape."""
    out = console()
    torch.manual_seed(0)
    model = create_model("vit-tiny-mnist").eval()
    assert isinstance(model, VisionTransformer)
    config, image = model.config, _image()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    out.print("[bold]An image is worth 16 words:[/] an untrained ViT looks at a 28x28 digit\n")
    out.print(
        f"  {config.depth} blocks, width {config.width}, {config.num_heads} heads, 7x7 patches, "
        f"{parameters:,} parameters\n"
    )
    _print_picture(image)
    with torch.no_grad():
        _print_equations(model, image)
        _print_attention(model, image)
    out.print("\nNext: [bold]vitrail list models[/], then [bold]vitrail info vit-b16[/]")


def _image() -> Tensor:
    rows = [[float(pixel == "#") for pixel in row] for row in _SEVEN.strip().splitlines()]
    return torch.tensor(rows)[None, None] * 2 - 1


def _print_picture(image: Tensor) -> None:
    """Two rows of pixels per line, with the 7x7 patches set apart."""
    pixels = image[0, 0] > 0
    halves = {(False, False): "·", (True, False): "▀", (False, True): "▄", (True, True): "█"}
    lines = []
    for top in range(0, 28, 2):
        cells = [halves[bool(a), bool(b)] for a, b in zip(pixels[top], pixels[top + 1], strict=True)]
        lines.append("  " + " ".join("".join(cells[left : left + 7]) for left in range(0, 28, 7)))
    console().print("\n".join(lines) + "\n", markup=False)


def _print_equations(model: VisionTransformer, image: Tensor) -> None:
    z = model.embed(image)
    steps = [("x", "the image", image), ("x_p E", "16 patches of 49 pixels, each projected", model.embedding(image))]
    steps.append(("(1)  z_0", "class token in front, positions added", z))
    for number, block in enumerate(model.blocks, start=1):
        z = block(z)
        steps.append((f"(2,3) z_{number}", "LayerNorm, attention, add; the same with the MLP", z))
    tokens = model.norm(z)
    steps.append(("(4)  y", "the class token after the last LayerNorm", model.read(tokens)))
    steps.append(("head(y)", "one logit per class; all 0, as the head starts at zero", model(image)))
    for symbol, words, tensor in steps:
        console().print(f"  {symbol:<10} {' x '.join(map(str, tensor.shape)):<17} {words}", markup=False)


def _print_attention(model: VisionTransformer, image: Tensor) -> None:
    _, attention = model.forward_tapped(image, layers=[1])
    to_patches = attention[1].mean(dim=1)[0, 0, 1:].reshape(4, 4)
    scaled = (to_patches - to_patches.min()) / (to_patches.max() - to_patches.min())
    console().print("\n  where the class token of the last block looks (untrained: anywhere):")
    for row in scaled:
        console().print("  " + "".join(_SHADES[round(float(value) * 4)] * 2 for value in row), markup=False)
