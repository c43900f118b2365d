"""Pictures to measure small models on."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

from vitrail.cli import main


def draw(folder: Path, **classes: int) -> Path:
    """Class folders with so many pictures each; each class has its own colour."""
    for place, (name, images) in enumerate(classes.items()):
        (folder / name).mkdir(parents=True)
        for number in range(images):
            noise = np.random.default_rng([place, number, len(folder.name)]).normal(0, 30, (10, 12, 3))
            pixels = np.clip(noise + np.array([60 * place, 200 - 60 * place, 120]), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


def measured(capsys, *words: str) -> dict:
    """What a command prints as JSON."""
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)
