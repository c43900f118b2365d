"""AugReg's rows, typed a second time in a CSV file, against what they expand to."""

import csv
from pathlib import Path

import pytest

from vitrail.config import OptimConfig, ScheduleConfig, TrainConfig, VitConfig
from vitrail.recipes import recipe
from vitrail.recipes.augreg import FINETUNING, PRETRAINING
from vitrail.zoo import ZOO

Line = dict[str, str]


def lines() -> list[Line]:
    path = Path(__file__).parents[1] / "data" / "paper" / "augreg.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_nine_networks_have_three_rows_each():
    assert [row.name for row in PRETRAINING] == [line["name"] for line in lines()]
    assert len(PRETRAINING) == 27


@pytest.mark.parametrize("line", lines(), ids=lambda line: line["name"])
def test_pretraining(line: Line):
    expanded = recipe(line["name"])
    assert (expanded.data, expanded.image_size, expanded.held_out) == (line["data"], 224, 0.01)
    assert expanded.optim == OptimConfig(
        optimizer="adam", lr=1e-3, weight_decay=float(line["weight_decay"]), betas=(0.9, 0.999), clip=1.0
    )
    assert expanded.schedule == ScheduleConfig(decay="cosine", warmup_steps=10_000)
    assert expanded.train == TrainConfig(batch_size=4096, epochs=int(line["epochs"]), loss="sigmoid", keep="last")
    augment = expanded.augment
    assert (augment.crop, augment.min_area, augment.flip) == ("inception", 0.05, True)
    assert (augment.randaugment_layers, augment.mixup) == (int(line["randaugment_layers"]), float(line["mixup"]))
    if augment.randaugment_layers:
        assert augment.randaugment_magnitude == float(line["randaugment_magnitude"])
    assert (str(expanded.score.value) if expanded.score else "") == line["finetuned_imagenet"].removesuffix("0")


@pytest.mark.parametrize("line", lines(), ids=lambda line: line["name"])
def test_network(line: Line):
    """The network of the zoo with a sigmoid head; the hidden tanh layer is left out on ImageNet-21k."""
    network, named = recipe(line["name"]).model, ZOO[line["model"]].config
    assert isinstance(network, VitConfig)
    assert isinstance(named, VitConfig)
    on_imagenet = line["data"] == "i1k"
    assert (network.num_classes, network.head_bias) == ((1_000, -6.9) if on_imagenet else (21_843, -10.0))
    assert network.pre_logits == (named.width if on_imagenet else None)
    assert (network.dropout, network.stochastic_depth) == (float(line["dropout"]), float(line["stochastic_depth"]))
    for field in ("width", "depth", "num_heads", "mlp_width", "patch_size", "backbone", "pool", "position"):
        assert getattr(network, field) == getattr(named, field), field


@pytest.mark.parametrize(
    ("data", "rates", "steps", "warmup", "held_out"),
    [
        ("imagenet", (0.01, 0.03), 20_000, 500, 0.01),
        ("cifar100", (0.001, 0.003, 0.01), 2_500, 200, 0.02),
        ("oxford-pets", (0.001, 0.003, 0.01), 500, 100, 0.1),
        ("vtab-500", (0.001, 0.003, 0.01, 0.03), 500, 100, 0.2),
        ("vtab-2500", (0.001, 0.003, 0.01, 0.03), 2_500, 200, 0.2),
    ],
)
def test_finetuning(data: str, rates: tuple[float, ...], steps: int, warmup: int, held_out: float):
    expanded = recipe(f"augreg-finetune-{data}")
    assert (expanded.data, expanded.image_size, expanded.held_out) == (data, 224, held_out)
    assert expanded.learning_rates == rates
    assert expanded.optim == OptimConfig(optimizer="sgd", lr=rates[0], momentum=0.9, clip=1.0)
    assert expanded.schedule == ScheduleConfig(decay="cosine", warmup_steps=warmup)
    assert expanded.train == TrainConfig(batch_size=512, steps=steps, loss="softmax", keep="last")
    assert (expanded.augment.crop, expanded.augment.resize) == ("resize", 261)
    assert expanded.model is None
    assert len(FINETUNING) == 5
