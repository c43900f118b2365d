"""Recipes that follow from the size of the data: BiT's against traces of its released code, ours against its words."""

import ast
import json
from pathlib import Path

import pytest

from vitrail.config import OptimConfig
from vitrail.errors import UsageError
from vitrail.recipes import RECIPES, folder_recipe, hyperrule_recipe, masked_recipe, recipe
from vitrail.training import learning_rate
from vitrail.training.schedule import resolved


@pytest.fixture
def released(fixtures: Path) -> dict:
    return json.loads((fixtures / "bit_hyperrule" / "hyperrule.json").read_text())


@pytest.mark.parametrize("images", [1_000, 50_000, 1_281_167])
def test_hyperrule_is_exactly_that_of_the_released_code(released: dict, images: int):
    expected, found = released[str(images)], hyperrule_recipe(images, 224, 224)
    assert found.train.steps == expected["end_step"]
    assert [found.schedule.warmup_steps, *found.schedule.boundaries, found.train.steps] == expected["schedule"]
    assert found.augment.mixup == expected["mixup"]
    schedule = resolved(found.schedule, found.optim, expected["end_step"])
    assert len(expected["lr"]) >= 12
    for step, rate in expected["lr"].items():
        assert learning_rate(schedule, int(step)) == rate, step


def test_hyperrule_resolutions_are_those_of_the_released_code(released: dict):
    for size, (resize, crop) in released["resolution"].items():
        found = hyperrule_recipe(1_000, *ast.literal_eval(size))
        assert (found.augment.crop, found.augment.resize, found.image_size) == ("resize", resize, crop)


def test_what_the_hyperrule_says_of_all_data():
    found = hyperrule_recipe(5_000, 300, 400)
    assert found.name == "finetune-bit-hyperrule"
    assert found.optim == OptimConfig(optimizer="sgd", lr=0.003, momentum=0.9)
    assert (found.schedule.decay, found.train.batch_size, found.train.loss) == ("steps", 512, "softmax")
    assert found.learning_rates == (0.003,)


@pytest.mark.parametrize(("images", "steps"), [(19_999, 500), (20_000, 10_000), (499_999, 10_000), (500_000, 20_000)])
def test_where_the_hyperrule_changes(images: int, steps: int):
    assert hyperrule_recipe(images, 32, 32).train.steps == steps
    assert (hyperrule_recipe(images, 32, 32).augment.mixup > 0) == (images >= 20_000)


@pytest.mark.parametrize(
    ("images", "batch", "steps", "warmup"),
    [
        (1, 16, 500, 100),
        (127, 16, 500, 100),
        (255, 16, 500, 100),
        (256, 32, 500, 100),
        (1_000, 64, 500, 100),
        (4_095, 256, 500, 100),
        (4_096, 512, 500, 100),
        (19_999, 512, 500, 100),
        (20_000, 512, 2_500, 200),
        (100_000, 512, 10_000, 500),
        (2_000_000, 512, 10_000, 500),
    ],
)
def test_folder(images: int, batch: int, steps: int, warmup: int):
    found = folder_recipe(images, 2, 224)
    assert (found.train.batch_size, found.train.steps, found.schedule.warmup_steps) == (batch, steps, warmup)
    assert found.train.keep == "last"
    assert found.optim == OptimConfig(optimizer="sgd", lr=0.003, momentum=0.9, clip=1.0)
    assert found.learning_rates == (0.003, 0.01, 0.03)


def test_a_folder_is_cropped_to_the_size_asked_for():
    found = folder_recipe(1_000, 10, 384)
    assert (found.image_size, found.augment.crop, found.augment.resize) == (384, "resize", 448)
    assert folder_recipe(1_000, 10, 224).augment.resize == 261


@pytest.mark.parametrize(("images", "classes", "held_out"), [(199, 10, 0.2), (200, 10, None), (20_000, 1_001, 0.2)])
def test_more_is_held_out_of_small_classes(images: int, classes: int, held_out: float | None):
    assert folder_recipe(images, classes, 224).held_out == held_out


@pytest.mark.parametrize("name", ["finetune-bit-hyperrule", "finetune-folder"])
def test_a_rule_alone_is_no_recipe(name: str):
    assert name in RECIPES
    with pytest.raises(UsageError, match=r"number of images.*--data D --recipe " + name):
        recipe(name)


def test_a_cpu_gets_a_run_that_people_can_wait_for():
    found, small = folder_recipe(50_000, 10, 224, on_cpu=True), folder_recipe(100, 10, 224, on_cpu=True)
    assert (found.train.steps, found.train.batch_size, found.learning_rates) == (150, 32, (0.01,))
    assert (found.optim.lr, small.train.batch_size) == (0.01, 16)


@pytest.mark.parametrize(("images", "steps"), [(5_000, 1_500), (50_000, 10_000), (1_281_167, 250_000)])
def test_a_network_without_labels_is_tuned_longer_than_one_with(images: int, steps: int):
    found = masked_recipe(images, 224)
    assert found.train.steps == steps > (folder_recipe(images, 10, 224).train.steps or 0)
    assert (found.optim.optimizer, found.optim.layer_decay, found.stochastic_depth) == ("adam", 0.75, 0.1)
    assert (found.augment.mixup, found.augment.cutmix, found.train.label_smoothing) == (0.8, 1.0, 0.1)


def test_small_images_are_shifted_and_signs_never_flipped():
    photo, sign = masked_recipe(5_000, 32), masked_recipe(5_000, 28)
    assert (photo.augment.crop, photo.augment.pad, photo.augment.flip, photo.optim.optimizer) == (
        "pad",
        4,
        True,
        "muon",
    )
    assert (sign.augment.crop, sign.augment.pad, sign.augment.flip) == ("pad", 3, False)
    assert sign.augment.randaugment_layers == 0


def test_a_cpu_tunes_large_images_for_a_short_time_and_small_ones_as_a_gpu_does():
    assert masked_recipe(5_000, 224, on_cpu=True).train.steps == folder_recipe(5_000, 10, 224, on_cpu=True).train.steps
    small, elsewhere = masked_recipe(5_000, 32, on_cpu=True), masked_recipe(5_000, 32)
    assert (small.train, len(small.learning_rates)) == (elsewhere.train, 1)
