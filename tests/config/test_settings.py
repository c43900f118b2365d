"""What was given: names, values and what is laid over a config, from words and from Python alike."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from vitrail.config import BitConfig, Names, Settings, VitConfig, read_texts, read_values
from vitrail.config.settings import all_names
from vitrail.errors import UsageError, VitrailError
from vitrail.recipes import recipe
from vitrail.zoo import zoo_row


@dataclass(frozen=True, kw_only=True)
class Own:
    """What a verb takes besides."""

    rates: tuple[float, ...] | None = None
    name: str | None = None
    seeds: int = 1
    quick: bool = False


NAMES = Names(Own, {"dropout": "model.dropout"})


@pytest.mark.parametrize(
    ("written", "full"),
    [
        ("lr", "optim.lr"),
        ("optim.lr", "optim.lr"),
        ("batch-size", "train.batch_size"),
        ("data", "data.data"),
        ("data_root", "data.root"),
        ("root", "data.root"),
        ("rates", "rates"),
        ("dropout", "model.dropout"),
        ("model.blocks", "model.blocks"),
        ("model.backbone.layers.3.channels", "model.backbone.layers.3.channels"),
    ],
)
def test_names_are_dotted_short_and_with_hyphens(written: str, full: str) -> None:
    assert NAMES.full(written) == full


@pytest.mark.parametrize(
    ("written", "meant"),
    [("epoch", "train.epochs"), ("model.widht", "model.width"), ("rate", "rates"), ("optim.label_smoothing", "train.")],
)
def test_a_wrong_name_suggests_another(written: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"there is no {written}.*Did you mean {meant}"):
        NAMES.full(written)


@pytest.mark.parametrize("written", ["", ".", "optim.", "optim", "model.backbone.layers.x.channels", "zzz", "--lr"])
def test_what_is_no_name(written: str) -> None:
    with pytest.raises(UsageError, match="there is no"):
        NAMES.full(written)


CASES: list[tuple[str, list[str] | bool, Any, Any]] = [
    ("lr", ["0.1"], 0.1, 0.1),
    ("lr", ["1"], 1, 1.0),
    ("epochs", ["3"], 3, 3),
    ("epochs", ["None"], None, None),
    ("optim.clip", ["None"], None, None),
    ("optim.clip", ["2.5"], 2.5, 2.5),
    ("optim.betas", ["0.9", "0.99"], [0.9, 0.99], (0.9, 0.99)),
    ("schedule.boundaries", [], (), ()),
    ("schedule.boundaries", ["1", "20"], range(1, 21, 19), (1, 20)),
    ("rates", ["0.1", "0.2"], np.array([0.1, 0.2]), (0.1, 0.2)),
    ("model.image_size", ["8", "16"], (8, 16), (8, 16)),
    ("model.image_size", ["8", "8"], 8, (8, 8)),
    ("augment.crop", ["pad"], "pad", "pad"),
    ("train.compile", False, False, False),
    ("quick", True, True, True),
    ("split", ["train[:10%]"], "train[:10%]", "train[:10%]"),
    ("name", ["7"], "7", "7"),
    ("held_out", ["0"], np.float64(0), 0.0),
    ("seeds", ["2"], np.int64(2), 2),
]


@pytest.mark.parametrize(("name", "texts", "value", "wanted"), CASES)
def test_words_and_values_come_to_the_same(name: str, texts: list[str] | bool, value: Any, wanted: Any) -> None:
    typed, given = read_texts({name: texts}, NAMES), read_values({name: value}, NAMES)
    assert dict(typed) == dict(given) == {NAMES.full(name): wanted}
    assert type(typed[NAMES.full(name)]) is type(given[NAMES.full(name)]) is type(wanted)
    assert dict(read_values(typed.json(), NAMES)) == dict(typed)


@pytest.mark.parametrize(
    ("name", "texts", "value", "wanted"),
    [
        ("lr", ["high"], "high", "a number"),
        ("epochs", ["2.5"], 2.5, "a whole number or None"),
        ("optim.betas", ["0.9"], [0.9], "2 numbers"),
        ("augment.crop", ["centre"], "centre", "inception or resize or pad or whole"),
        ("rates", ["0.1", "x"], ["x"], "numbers or None"),
        ("train.compile", ["maybe"], "maybe", "True or False"),
        ("lr", [], None, "a number"),
        ("epochs", ["True"], True, "a whole number or None"),
        ("model.backbone", ["x"], "x", "its parts by name"),
        ("data", ["a", "b"], ["a", "b"], "a text"),
    ],
)
def test_a_value_that_does_not_fit_is_told_in_words(name: str, texts: list[str], value: Any, wanted: str) -> None:
    for read in (lambda: read_texts({name: texts}, NAMES), lambda: read_values({name: value}, NAMES)):
        with pytest.raises(UsageError) as caught:
            read()
        assert caught.value.wanted.startswith(wanted), caught.value


def test_what_is_computed_cannot_be_given_and_nothing_twice() -> None:
    for name in ("schedule.lr", "schedule.steps", "model.num_classes"):
        with pytest.raises(UsageError, match="cannot be set"):
            read_values({name: 1}, NAMES)
    with pytest.raises(UsageError, match="given twice"):
        read_values({"lr": 1, "optim.lr": 2}, NAMES)


def test_not_given_is_not_there_and_none_is_a_value() -> None:
    given = read_values({"optim.clip": None}, NAMES)
    assert "optim.clip" in given and given["optim.clip"] is None
    assert "optim.lr" not in given and len(Settings()) == 0
    chosen = recipe("vit-digits")
    assert chosen.optim.clip == 1.0
    assert given.over(chosen.optim, "optim").clip is None
    assert Settings().over(chosen.optim, "optim") == chosen.optim


def test_laid_over_a_config_however_deep() -> None:
    network = recipe("vit-folder").model
    assert isinstance(network, VitConfig) and network.backbone is not None
    given = read_values({"model.backbone.layers.0.channels": 24, "model.depth": 2}, NAMES)
    changed = given.over(network, "model")
    assert (changed.backbone.layers[0].channels, changed.depth) == (24, 2)  # type: ignore[union-attr]
    assert changed.backbone.layers[1:] == network.backbone.layers[1:]  # type: ignore[union-attr]


def test_a_network_has_its_own_settings() -> None:
    given = read_values({"model.blocks": (1, 1, 1, 1)}, NAMES)
    bit = zoo_row("bit-r50x1").config
    assert isinstance(bit, BitConfig)
    assert given.over(bit, "model").blocks == (1, 1, 1, 1)
    with pytest.raises(UsageError, match=r"model\.blocks is no setting of this network"):
        given.over(zoo_row("vit-b16").config, "model")
    with pytest.raises(UsageError, match="no setting of this network"):
        read_values({"model.backbone.layers.9.channels": 3}, NAMES).over(recipe("vit-folder").model, "model")


def test_a_value_that_no_config_takes_is_told_when_it_is_laid() -> None:
    with pytest.raises(VitrailError, match="lr is -1"):
        read_values({"lr": -1}, NAMES).over(recipe("vit-digits").optim, "optim")


def test_what_a_verb_takes_is_filled_with_its_defaults() -> None:
    given = read_values({"rates": (0.1,), "lr": 0.2}, NAMES)
    assert given.filled(Own) == Own(rates=(0.1,))
    assert dict(given.of_runs()) == {"optim.lr": 0.2}
    assert dict(given.without("rates")) == {"optim.lr": 0.2}


def test_every_name_is_one() -> None:
    for name in all_names():
        assert NAMES.full(name) == name and NAMES.hints(name)
