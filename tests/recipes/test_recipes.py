"""The tables of the paper, typed a second time in CSV files, against the rows and what they expand to."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from vitrail.config import BitConfig, OptimConfig, ScheduleConfig, TrainConfig, preset
from vitrail.errors import UsageError
from vitrail.recipes import RECIPES, RuleRow, augreg, masked, recipe, recipe_title, rules, small
from vitrail.recipes.finetuning import TABLE_4
from vitrail.recipes.pretraining import TABLE_3
from vitrail.zoo import ZOO

PAPER = Path(__file__).parents[1] / "data" / "paper"
CLASSES = {"jft": 18_291, "i21k": 21_843, "i1k": 1_000}
HELD_OUT = {"jft": None, "i21k": 0.01, "i1k": 0.01}
NETWORKS = {"vit-b16 i21k": "ViT-B/16 from ImageNet-21k", "vit-l16 i21k": "ViT-L/16 from ImageNet-21k"}

Line = dict[str, str]


def table(name: str) -> dict[str, Line]:
    with (PAPER / name).open(encoding="utf-8", newline="") as file:
        return {line["name"]: line for line in csv.DictReader(file)}


PRETRAINING = table("table3.csv")
FINETUNING = table("table4.csv")
# Rows whose network can be built; networks that join the zoo later are covered from then on.
EXPANDABLE = {name: line for name, line in PRETRAINING.items() if line["model"] in ZOO}
WITH_TRANSFORMER = {name: line for name, line in EXPANDABLE.items() if not line["model"].startswith("bit-")}


def number(text: str) -> float | None:
    return float(text) if text else None


def rates(line: Line) -> tuple[float, ...]:
    return tuple(float(rate) for rate in line["learning_rates"].split())


def each(lines: dict[str, Line]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("line", list(lines.values()), ids=list(lines))


def test_every_row_of_table_3_is_there_once():
    assert sorted(row.name for row in TABLE_3) == sorted(PRETRAINING)


def test_every_row_of_table_4_is_there_once():
    assert sorted(row.name for row in TABLE_4) == sorted(FINETUNING)


def test_the_recipes_of_the_paper_are_the_rows_of_both_tables():
    of_the_paper = {name for name, row in RECIPES.items() if row.source.startswith("Table")}
    assert of_the_paper == set(PRETRAINING) | set(FINETUNING)


def test_no_two_rows_share_a_name():
    rows = [*TABLE_3, *TABLE_4, *augreg.PRETRAINING, *augreg.FINETUNING, *small.SMALL, *masked.MASKED]
    rows += [rules.HYPERRULE, rules.FOLDER, rules.MASKED]
    assert len({row.name for row in rows}) == len(rows) == len(RECIPES)


@pytest.mark.parametrize("name", [name for name, row in RECIPES.items() if not isinstance(row, RuleRow)])
def test_what_every_recipe_has(name: str):
    expanded = recipe(name)
    assert (expanded.name, expanded.source) == (name, RECIPES[name].source)
    assert expanded.optim.lr == expanded.learning_rates[0]
    assert expanded.train.keep == ("best" if name == "vit-folder" else "last")
    if expanded.model is not None:
        channels = expanded.model.channels
        assert len(expanded.preprocessing.mean) == channels
        assert expanded.model.image_size == (expanded.image_size, expanded.image_size)
    # Exactly one way of saying how long the warm-up is.
    assert bool(expanded.schedule.warmup_steps) != bool(expanded.schedule.warmup_share)


def test_all_vision_transformers_of_table_3_can_be_expanded():
    assert {name for name in PRETRAINING if name.startswith("vit-")} <= set(EXPANDABLE)


@each(PRETRAINING)
def test_pretraining_row(line: Line):
    (row,) = [row for row in TABLE_3 if row.name == line["name"]]
    assert row.model == line["model"]
    assert row.data == line["data"]
    assert row.epochs == int(line["epochs"])
    assert row.lr == float(line["learning_rate"])
    assert row.decay == line["decay"]
    assert row.weight_decay == float(line["weight_decay"])
    assert row.dropout == float(line["dropout"])
    assert row.source == "Table 3"
    assert (row.score.value if row.score else None) == number(line["finetuned_imagenet"])
    assert (row.score.source if row.score else "") == line["score_source"]


@each(FINETUNING)
def test_finetuning_row(line: Line):
    (row,) = [row for row in TABLE_4 if row.name == line["name"]]
    assert row.data == line["data"]
    assert row.steps == int(line["steps"])
    assert row.learning_rates == rates(line)
    assert row.warmup_steps == int(line["warmup_steps"])
    assert row.held_out == float(line["held_out_fraction"])
    assert row.source == "Table 4"
    assert row.score is not None
    assert row.score.value == float(line["expected"])
    assert row.score.source == line["score_source"]
    assert row.score.what.startswith(NETWORKS[line["expected_for"]])


@each(EXPANDABLE)
def test_pretraining_recipe(line: Line):
    expanded = recipe(line["name"])
    assert expanded.name == line["name"]
    assert expanded.data == line["data"]
    assert expanded.image_size == int(line["image_size"])
    assert expanded.optim == OptimConfig(
        optimizer="adam",
        lr=float(line["learning_rate"]),
        weight_decay=float(line["weight_decay"]),
        betas=(0.9, 0.999),
        clip=number(line["gradient_clip"]),
    )
    assert expanded.schedule == ScheduleConfig(
        decay=line["decay"], warmup_steps=int(line["warmup_steps"]), linear_end=1e-5
    )
    assert expanded.train == TrainConfig(
        batch_size=int(line["batch_size"]), epochs=int(line["epochs"]), steps=None, loss="sigmoid", keep="last"
    )
    assert expanded.preprocessing == preset("google")
    assert expanded.learning_rates == (float(line["learning_rate"]),)
    assert expanded.held_out == HELD_OUT[line["data"]]
    assert expanded.source == "Table 3"
    assert (expanded.score.value if expanded.score else None) == number(line["finetuned_imagenet"])
    assert (expanded.score.source if expanded.score else "") == line["score_source"]


@each(EXPANDABLE)
def test_network_of_a_pretraining_recipe(line: Line):
    network = recipe(line["name"]).model
    assert network is not None
    assert network.num_classes == CLASSES[line["data"]]
    assert network.head_bias == -10
    assert network.image_size == (int(line["image_size"]), int(line["image_size"]))


@each(WITH_TRANSFORMER)
def test_transformer_of_a_pretraining_recipe(line: Line):
    """The hidden tanh layer of the 2020 head is as wide as the tokens, and the rest is the network of the zoo."""
    network, named = recipe(line["name"]).model, ZOO[line["model"]].config
    assert network is not None
    assert not isinstance(network, BitConfig)
    assert not isinstance(named, BitConfig)
    assert network.pre_logits == network.width == named.width
    assert network.dropout == float(line["dropout"])
    for field in ("depth", "num_heads", "mlp_width", "patch_size", "pool", "position", "gelu"):
        assert getattr(network, field) == getattr(named, field), field


@each(FINETUNING)
def test_finetuning_recipe(line: Line):
    expanded = recipe(line["name"])
    assert expanded.name == line["name"]
    assert expanded.data == line["data"]
    assert expanded.image_size == int(line["image_size"])
    assert expanded.optim == OptimConfig(
        optimizer="sgd",
        lr=rates(line)[0],
        weight_decay=float(line["weight_decay"]),
        momentum=float(line["momentum"]),
        clip=float(line["gradient_clip"]),
    )
    assert expanded.schedule.decay == line["decay"]
    assert expanded.schedule.warmup_steps == int(line["warmup_steps"])
    assert expanded.train == TrainConfig(
        batch_size=int(line["batch_size"]), steps=int(line["steps"]), epochs=None, loss="softmax", keep="last"
    )
    assert expanded.preprocessing == preset("google")
    assert expanded.learning_rates == rates(line)
    assert expanded.held_out == float(line["held_out_fraction"])
    assert expanded.model is None
    assert expanded.source == "Table 4"
    assert expanded.score is not None
    assert expanded.score.value == float(line["expected"])
    assert expanded.score.source == line["score_source"]


def test_a_wrong_name_gets_a_suggestion():
    with pytest.raises(UsageError, match=r"^Unknown recipe 'finetune-cifar'\. Did you mean 'finetune-cifar10'"):
        recipe("finetune-cifar")
    with pytest.raises(UsageError, match=r"^Unknown recipe 'ViT-B16-i21k-90'\. Did you mean 'vit-b16-i21k-90ep'"):
        recipe("ViT-B16-i21k-90")


def test_a_recipe_with_another_network_is_not_called_by_its_name_alone() -> None:
    own = recipe("bit-r50x1-jft-7ep").model
    assert isinstance(own, BitConfig)
    assert recipe_title("bit-r50x1-jft-7ep", own) == "bit-r50x1-jft-7ep"
    fewer_classes = replace(own, num_classes=3, image_size=(32, 32))
    assert recipe_title("bit-r50x1-jft-7ep", fewer_classes) == "bit-r50x1-jft-7ep"
    toy = replace(own, blocks=(1, 1, 1, 1), width=32)
    assert recipe_title("bit-r50x1-jft-7ep", toy) == "bit-r50x1-jft-7ep with another network"
    assert recipe_title("finetune-folder", toy) == "finetune-folder"
    assert recipe_title("a name of another version", toy) == "a name of another version"
