"""A small network and a small photo, to be looked at."""

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from vitrail import create_model, save_model
from vitrail.config import Preprocessing
from vitrail.data.transforms.fit_image import fit_image, normalised
from vitrail.models import Classifier

HALF = Preprocessing(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), interpolation="bilinear")
LABELS = ("고양이", "<script>alert(1)</script>", 'a "quoted" 🐕')


def network(seed: int = 0, key: str = "vit-test", **overrides) -> Classifier:
    """A network whose weights are all random, none of them zero."""
    small = {"width": 16, "num_heads": 2, "patch_size": 4} if key == "vit-test" else {}
    model = create_model(key, **{"num_classes": 3, "image_size": 16, **small, **overrides})
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    model.preprocessing = HALF
    model.labels = LABELS if model.config.num_classes == len(LABELS) else None
    return model.eval()


def model_folder(path: Path, seed: int = 0, **overrides) -> Path:
    """The network as a model folder."""
    save_model(network(seed, **overrides), path)
    return path


# The networks of seed 0 and 1 as `vitrail export` writes them: a worker opens one in a second, writing one takes ten.
EXPORTED = [Path(__file__).parent / f"small-{seed}.onnx" for seed in (0, 1)]


def write_exported() -> None:
    """Make these files anew, where their format changes: `python -m tests.serving.looks.served`."""
    from vitrail.exporting.write import write_unverified

    for seed, path in enumerate(EXPORTED):
        write_unverified(network(seed), path, "onnx")


def logits_of(seed: int, body: bytes) -> np.ndarray:
    """What the network of this seed says of an image, in torch."""
    model = network(seed)
    with Image.open(io.BytesIO(body)) as image:
        pixels = normalised(fit_image(image.convert("RGB"), model.config.image_size, HALF), HALF)
    with torch.no_grad():
        return model(torch.from_numpy(pixels)[None])[0].numpy()


def photo(seed: int = 0, size: tuple[int, int] = (40, 30), kind: str = "PNG", mode: str = "RGB") -> bytes:
    """An encoded image of noise."""
    shape = (*size, 3) if mode == "RGB" else size
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


if __name__ == "__main__":
    write_exported()
