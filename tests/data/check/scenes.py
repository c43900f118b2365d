"""Pictures that differ from each other as photos do, and folders of them."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from tests.data.pictures import encoded


def scene(number: int, size: tuple[int, int] = (72, 64)) -> Image.Image:
    """Soft colours, shapes and grain; another number gives another picture."""
    rng = np.random.default_rng(number)
    image = Image.fromarray(rng.integers(0, 256, (5, 5, 3), dtype=np.uint8)).resize(size, Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(image)
    for _ in range(4):
        left, top = int(rng.integers(0, size[0])), int(rng.integers(0, size[1]))
        colour = tuple(rng.integers(0, 256, 3).tolist())
        draw.ellipse([left, top, left + size[0] // 3, top + size[1] // 3], fill=colour)
    grain = rng.normal(0, 4, (size[1], size[0], 1))
    return Image.fromarray(np.clip(np.asarray(image) + grain, 0, 255).astype(np.uint8))


def make_folder(root: Path, splits: dict[str, int], classes: tuple[str, ...] = ("cat", "dog")) -> Path:
    """So many different pictures in each split, classes in turn; the split "" puts the classes at the top."""
    number = 0
    for split, count in splits.items():
        for _ in range(count):
            path = root / split / classes[number % len(classes)] / f"{number:04}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encoded(scene(number), "JPEG", quality=90))
            number += 1
    return root
