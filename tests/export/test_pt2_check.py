"""Nothing in a `.pt2` file runs: torch is given a copy that holds only what is known to be harmless."""

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from vitrail.errors import DataError
from vitrail.export import open_exported

MODEL, WEIGHTS = "models/model.json", "data/weights/model_weights_config.json"
CONSTANTS, SAMPLES = "data/constants/model_constants_config.json", "data/sample_inputs/model.pt"


class Bomb:
    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self):
        return Path.touch, (self.place,)


@pytest.fixture
def crafted(exports, tmp_path) -> Callable[..., Path]:
    """A copy of a good file with some parts changed or added."""

    def make(changes: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
        path = tmp_path / "crafted.pt2"
        with zipfile.ZipFile(exports / "model.pt2") as good, zipfile.ZipFile(path, "w", compression) as bad:
            names = [info.filename.partition("/")[2] for info in good.infolist()]
            for name in [*names, *(name for name in changes if name not in names)]:
                bad.writestr(f"archive/{name}", changes.get(name) or good.read(f"archive/{name}"))
        return path

    return make


def part(exports: Path, name: str) -> dict:
    with zipfile.ZipFile(exports / "model.pt2") as good:
        return json.loads(good.read(f"archive/{name}"))


def refused(path: Path, match: str, place: Path) -> None:
    with pytest.raises(DataError, match=match):
        open_exported(path)
    assert not place.exists(), "the bomb went off"


def test_the_bomb_works(tmp_path) -> None:
    """So that what follows cannot pass by accident."""
    pickle.loads(pickle.dumps(Bomb(tmp_path / "boom")))  # noqa: S301
    assert (tmp_path / "boom").exists()


def test_ours_holds_nothing_that_is_pickled(exports) -> None:
    with zipfile.ZipFile(exports / "model.pt2") as good:
        assert good.read(f"archive/{SAMPLES}") == b""
        assert not any(name.endswith((".pkl", ".pt")) for name in good.namelist() if SAMPLES not in name)
    assert not any(one["use_pickle"] for one in part(exports, WEIGHTS)["config"].values())


@pytest.mark.parametrize("config", [WEIGHTS, CONSTANTS])
@pytest.mark.parametrize("prefix", ["weight_0", "tensor_0", "custom_obj_0", "opaque_obj_0"])
def test_a_pickled_payload(exports, crafted, tmp_path, config, prefix) -> None:
    place = tmp_path / "boom"
    values = part(exports, config)
    values["config"]["bomb"] = {"path_name": prefix, "is_param": False, "use_pickle": True, "tensor_meta": None}
    buffer = io.BytesIO()
    torch.save(Bomb(place), buffer)
    folder = config.rpartition("/")[0]
    path = crafted({config: json.dumps(values).encode(), f"{folder}/{prefix}": buffer.getvalue()})
    refused(path, "pickled objects|is no part of an exported network", place)


def test_a_flag_that_is_not_there_is_no_excuse(exports, crafted, tmp_path) -> None:
    values = part(exports, WEIGHTS)
    del next(iter(values["config"].values()))["use_pickle"]
    refused(crafted({WEIGHTS: json.dumps(values).encode()}), "pickled objects", tmp_path / "boom")


def test_pickled_example_inputs_are_never_read(crafted, tmp_path) -> None:
    place = tmp_path / "boom"
    buffer = io.BytesIO()
    torch.save(Bomb(place), buffer)
    path = crafted({SAMPLES: buffer.getvalue()})
    assert open_exported(path).run(np.zeros((1, 3, 32, 32), np.float32))[0].shape == (1, 10)
    assert not place.exists()


@pytest.mark.parametrize(
    "name", ["data/weights/model.pt", "serialized_state_dict.pt", "version", "data/aotinductor/m/a.so"]
)
def test_parts_of_older_or_other_archives(crafted, tmp_path, name) -> None:
    place = tmp_path / "boom"
    refused(crafted({name: pickle.dumps(Bomb(place))}), "is no part of an exported network", place)


@pytest.mark.parametrize(
    "target",
    ["torch.os.system", "torch.ops.aten.from_file.default", "torch.load", "#import:os", "math.factorial", "eval"],
)
def test_other_operations(exports, crafted, tmp_path, target) -> None:
    values = part(exports, MODEL)
    values["graph_module"]["graph"]["nodes"][0]["target"] = target
    refused(crafted({MODEL: json.dumps(values).encode()}), "the operation", tmp_path / "boom")


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('pathlib').Path('{place}').touch()",
        "Symbol('s0', positive=True, integer=True).__class__",
        "Pow(Pow(Integer(9), Integer(9)), Integer(9))",
        "Pow(Integer(9), Integer(999999999))",
        "lambda: 1",
        5,
    ],
)
def test_expressions_are_only_arithmetic(exports, crafted, tmp_path, expression) -> None:
    place = tmp_path / "boom"
    values = part(exports, MODEL)
    told = expression.format(place=place) if isinstance(expression, str) else expression
    values["graph_module"]["graph"]["nodes"][0]["metadata"]["x"] = {"as_expr": {"expr_str": told, "hint": None}}
    refused(crafted({MODEL: json.dumps(values).encode()}), "the expression", place)


def test_guards_are_not_executed(exports, crafted, tmp_path) -> None:
    place = tmp_path / "boom"
    values = part(exports, MODEL)
    values["guards_code"] = [f"__import__('pathlib').Path({str(place)!r}).touch() or True"]
    open_exported(crafted({MODEL: json.dumps(values).encode()})).run(np.zeros((1, 3, 32, 32), np.float32))
    assert not place.exists()


def test_other_arguments_symbols_and_types(exports, crafted, tmp_path) -> None:
    for change, match in (
        (lambda values: values["graph_module"]["graph"]["inputs"].append({"as_custom_obj": {}}), "an argument"),
        (lambda values: values["range_constraints"].update({"exit()": {}}), "the symbol"),
        (lambda values: values["graph_module"].update(treespec_namedtuple_fields={"a": 1}), "types of its own"),
    ):
        values = part(exports, MODEL)
        change(values)
        refused(crafted({MODEL: json.dumps(values).encode()}), match, tmp_path / "boom")


def test_sizes_that_are_not_true(exports, crafted, tmp_path) -> None:
    refused(crafted({}, zipfile.ZIP_DEFLATED), "is compressed", tmp_path / "boom")
    content = bytearray((exports / "model.pt2").read_bytes())
    place = content.index(b"PK\x01\x02")
    content[place + 20 : place + 28] = b"\xfe\xff\xff\xff" * 2  # 4 GB, stored, in a small file
    (tmp_path / "large.pt2").write_bytes(content)
    refused(tmp_path / "large.pt2", "larger than it is|not a complete", tmp_path / "boom")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x02}q\x00.", b"x" * 1000])
def test_what_is_no_archive(tmp_path, content) -> None:
    (tmp_path / "model.pt2").write_bytes(content)
    refused(tmp_path / "model.pt2", "is not a complete .pt2 file", tmp_path / "boom")


def test_two_parts_of_one_name(exports, tmp_path) -> None:
    path = tmp_path / "twice.pt2"
    path.write_bytes((exports / "model.pt2").read_bytes())
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr(f"archive/{MODEL}", b"{}")
    refused(path, "two parts of one name", tmp_path / "boom")
