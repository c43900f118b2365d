"""A table of names is about all tensors of a network, or nothing is written or read."""

import dataclasses
from pathlib import Path

import pytest
import torch

from vitrail.config import VitConfig
from vitrail.errors import DataError
from vitrail.weights import save
from vitrail.weights.checkpoint import Checkpoint, expected_shapes
from vitrail.weights.layout import Entry, read_entries, write_entries
from vitrail.weights.save import LAYOUTS, write_checkpoint

PLAIN = VitConfig(width=24, depth=1, num_heads=3, mlp_width=48, patch_size=8, image_size=16, num_classes=4, gelu="erf")
STATE = {"a": torch.zeros(2), "b": torch.zeros(2)}
SHAPES = {"a": (2,), "b": (2,)}


def test_a_tensor_that_no_entry_names_is_not_left_behind() -> None:
    with pytest.raises(DataError, match="'b' is missing"):
        write_entries([Entry("a", ("x",))], STATE)
    with pytest.raises(DataError, match="'b' is missing"):
        read_entries([Entry("a", ("x",))], {"x": torch.zeros(2)}, SHAPES, "file")


def test_an_entry_of_no_tensor_and_two_for_one_are_refused() -> None:
    with pytest.raises(DataError, match="'c' is not part"):
        write_entries([Entry("a", ("x",)), Entry("b", ("y",)), Entry("c", ("z",))], STATE)
    with pytest.raises(DataError, match="'x' has 2 places"):
        write_entries([Entry("a", ("x",)), Entry("b", ("x",))], STATE)
    with pytest.raises(DataError, match="'a' has 2 places"):
        write_entries([Entry("a", ("x",)), Entry("a", ("y",))], STATE)


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("change", ["more", "less"])
def test_no_writer_takes_a_network_that_its_config_does_not_describe(layout: str, change: str, tmp_path: Path) -> None:
    state = {name: torch.zeros(shape) for name, shape in expected_shapes(PLAIN).items()}
    if change == "more":
        state["scale"] = torch.zeros(24)
    else:
        del state["norm.bias"]
    suffix = {"google": ".npz", "timm": ".safetensors", "torchvision": ".safetensors"}.get(layout, "")
    target = tmp_path / f"x{suffix}"
    with pytest.raises(DataError, match=r"scale|norm\.bias"):
        write_checkpoint(Checkpoint(config=PLAIN, state=state), target, layout)
    assert not target.exists()


def test_a_part_that_the_table_of_a_layout_forgets_stops_the_writing(monkeypatch, tmp_path: Path) -> None:
    """As if a part had been added to the network and to what the layout says it holds, but not to its names."""
    config = dataclasses.replace(PLAIN, registers=2)
    state = {name: torch.zeros(shape) for name, shape in expected_shapes(config).items()}
    monkeypatch.setattr(save.parts, "refuse_parts", lambda *_: None)
    with pytest.raises(DataError, match="registers"):
        write_checkpoint(Checkpoint(config=config, state=state), tmp_path / "x.safetensors", "timm")
    assert not (tmp_path / "x.safetensors").exists()
