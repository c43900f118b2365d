"""What is saved must load again: a network that its config does not describe is refused before anything is written."""

import dataclasses
import json

import pytest
import torch
from torch import nn

import vitrail
from vitrail.config import ResNetConfig, VitConfig, preset
from vitrail.errors import Notice, UsageError
from vitrail.models import VisionTransformer

CONFIG = VitConfig(width=24, depth=2, num_heads=3, mlp_width=40, patch_size=(4, 4), image_size=(16, 16), num_classes=3)


def refusal(model, path) -> str:
    with pytest.raises(UsageError) as caught:
        vitrail.save_model(model, path)
    assert not path.exists()
    return str(caught.value)


def test_a_replaced_head_is_refused_with_the_way_to_do_it(tmp_path) -> None:
    model = VisionTransformer(CONFIG)
    model.head = nn.Linear(24, 5)
    message = refusal(model, tmp_path / "x")
    assert "the tensor 'head.weight' has shape (5, 24); wanted (3, 24)" in message
    assert "load_model(..., num_classes=)" in message


def test_a_compiled_network_is_saved_as_the_network_it_wraps(tmp_path) -> None:
    model = VisionTransformer(CONFIG)
    vitrail.save_model(torch.compile(model, backend="eager"), tmp_path / "x")
    assert torch.equal(vitrail.load_model(tmp_path / "x").head.weight, model.head.weight)


def test_a_position_of_ones_own_is_refused(tmp_path) -> None:
    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(17, 24))

        def forward(self) -> torch.Tensor:
            return self.table * 3

    message = refusal(VisionTransformer(CONFIG, position=Mine()), tmp_path / "x")
    assert "a position embedding of its own" in message


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("labels", ("one",), "labels holds 1 values; wanted 3 texts, one per class"),
        ("labels", (1, 2, 3), "labels holds 3 values; wanted 3 texts"),
        ("preprocessing", "google", "preprocessing is 'google'; wanted a vitrail.config.Preprocessing"),
        ("metrics", {"top1": float("nan")}, "cannot be written as JSON"),
        ("metrics", {"top1": torch.tensor(1.0)}, "cannot be written as JSON"),
    ],
)
def test_facts_that_would_not_load_are_refused(name, value, told, tmp_path) -> None:
    model = VisionTransformer(CONFIG)
    setattr(model, name, value)
    assert told in refusal(model, tmp_path / "x")


def test_a_network_without_memory_is_refused(tmp_path) -> None:
    with torch.device("meta"):
        model = VisionTransformer(CONFIG)
    assert "has no weights to save" in refusal(model, tmp_path / "x")


def test_tied_weights_are_written_twice(tmp_path) -> None:
    model = VisionTransformer(CONFIG)
    model.blocks[1].mlp.expand.weight = model.blocks[0].mlp.expand.weight
    vitrail.save_model(model, tmp_path / "x")
    loaded = vitrail.load_model(tmp_path / "x")
    assert torch.equal(loaded.blocks[0].mlp.expand.weight, loaded.blocks[1].mlp.expand.weight)


def test_what_a_npz_leaves_out_is_told(tmp_path) -> None:
    model = VisionTransformer(CONFIG)
    model.labels, model.preprocessing = ("a", "b", "c"), preset("imagenet")
    with pytest.warns(Notice) as told:
        vitrail.save_model(model, tmp_path / "x.npz", layout="google")
    words = " ".join(str(one.message) for one in told)
    assert "cannot hold class names" in words
    assert "cannot hold preprocessing" in words


def test_double_precision_is_told_when_it_is_lost(tmp_path) -> None:
    vitrail.save_model(VisionTransformer(CONFIG).double(), tmp_path / "x")
    with pytest.warns(Notice, match="stored as float64 and used as float32"):
        assert vitrail.load_model(tmp_path / "x").head.weight.dtype == torch.float32


def test_a_file_name_is_no_folder(tmp_path) -> None:
    assert "the vitrail layout cannot be written to" in refusal(VisionTransformer(CONFIG), tmp_path / "x.npz")


@pytest.mark.parametrize("size", [(41, 17), (33, 40), (1, 8)])
@pytest.mark.parametrize("layout", ["vitrail", "google"])
def test_hybrids_take_any_size_through_files(size, layout, tmp_path) -> None:
    backbone = ResNetConfig(blocks=(1, 1), width=32)
    config = dataclasses.replace(CONFIG, patch_size=(1, 1), backbone=backbone, image_size=size)
    model = VisionTransformer(config).eval()
    nn.init.normal_(model.head.weight)
    target = tmp_path / ("x.npz" if layout == "google" else "x")
    vitrail.save_model(model, target, layout=layout)
    images = torch.randn(1, 3, *size)
    loaded = vitrail.load_model(target, image_size=size)
    assert torch.equal(loaded(images), model(images))


def test_the_record_is_plain_json_with_text_as_it_is(tmp_path) -> None:
    model = VisionTransformer(CONFIG)
    model.labels = ("가", "<b>", "../x")
    vitrail.save_model(model, tmp_path / "x")
    text = (tmp_path / "x" / "config.json").read_text(encoding="utf-8")
    assert "가" in text
    assert json.loads(text)["format"] == "vitrail/1"
