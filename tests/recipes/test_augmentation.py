"""Augmentation as the recipes name it."""

import ast
import json
from pathlib import Path

import pytest

from vitrail.errors import UsageError
from vitrail.recipes import RECIPES, recipe
from vitrail.recipes.augmentation import AUGREG, augreg, bit_hyperrule


def test_every_recipe_of_the_paper_says_how_images_are_augmented() -> None:
    for name in [name for name, row in RECIPES.items() if row.source.startswith("Table")]:
        augment = recipe(name).augment
        assert augment.flip
        assert not augment.is_mixing
        assert augment.randaugment_layers == 0
    assert recipe("vit-b16-i21k-90ep").augment.crop == "inception"
    assert recipe("vit-b16-i21k-90ep").augment.min_area == 0.05
    assert (recipe("finetune-cifar10").augment.crop, recipe("finetune-cifar10").augment.resize) == ("resize", 448)


@pytest.mark.parametrize(
    ("level", "layers", "magnitude", "mixup"),
    [("none", 0, 0, 0), ("light1", 2, 0, 0), ("medium1", 2, 15, 0.2), ("strong2", 2, 20, 0.8)],
)
def test_levels_of_augreg(level: str, layers: int, magnitude: float, mixup: float) -> None:
    found = augreg(level)
    assert (found.randaugment_layers, found.mixup) == (layers, mixup)
    assert layers == 0 or found.randaugment_magnitude == magnitude
    assert len(AUGREG) == 7


def test_an_unknown_level_is_suggested() -> None:
    with pytest.raises(UsageError, match="Did you mean 'medium2'"):
        augreg("medium-2")


def test_bit_hyperrule_is_that_of_the_released_code(fixtures: Path) -> None:
    expected = json.loads((fixtures / "bit_hyperrule" / "hyperrule.json").read_text())
    for images in (1_000, 50_000, 1_281_167):
        for size, (resize, crop) in expected["resolution"].items():
            height, width = ast.literal_eval(size)
            found, augment = bit_hyperrule(height, width, images)
            assert (found, augment.resize, augment.crop) == (crop, resize, "resize")
            assert augment.mixup == expected[str(images)]["mixup"]
