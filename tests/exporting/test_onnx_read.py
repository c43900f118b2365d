"""An ONNX file is looked at before a runtime gets it."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.exporting.conftest import prepared_for

from vitrail.errors import DataError
from vitrail.exporting import onnx_write, open_exported
from vitrail.exporting.onnx_read import read_onnx_entries
from vitrail.exporting.write import export_model, files_of


def outside(location: str) -> onnx.TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


def model_with(*, initializer=(), nodes=()) -> onnx.ModelProto:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    return helper.make_model(helper.make_graph(list(nodes), "g", [value], [value], initializer=list(initializer)))


def nested(location: str) -> onnx.ModelProto:
    branch = helper.make_graph([helper.make_node("Constant", [], ["c"], value=outside(location))], "b", [], [])
    return model_with(nodes=[helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch)])


def of_function(location: str) -> onnx.ModelProto:
    model = model_with()
    function = model.functions.add(name="f", domain="d")
    function.attribute_proto.append(helper.make_attribute("default", outside(location)))
    return model


def of_training(location: str) -> onnx.ModelProto:
    model = model_with()
    model.training_info.add().initialization.initializer.append(outside(location))
    return model


MADE = [lambda where: model_with(initializer=[outside(where)]), nested, of_function, of_training]


@pytest.mark.parametrize(
    "location",
    ["../../secret", "/etc/passwd", "folder/weights", "..", "", "C:\\secret", "\\\\host\\share", "*/_ORT_MEM_ADDR_/*"],
)
@pytest.mark.parametrize("made", MADE, ids=["weights", "nested", "function", "training"])
def test_weights_elsewhere_are_refused(tmp_path: Path, location, made) -> None:
    (tmp_path / "secret").write_bytes(b"12345678")
    place = tmp_path / "a" / "b"
    place.mkdir(parents=True)
    (place / "model.onnx").write_bytes(made(location).SerializeToString())
    with pytest.raises(DataError, match="its weights are said to be in"):
        open_exported(place / "model.onnx")


def test_weights_that_were_left_behind(tmp_path) -> None:
    (tmp_path / "model.onnx").write_bytes(model_with(initializer=[outside("model.onnx.data")]).SerializeToString())
    with pytest.raises(DataError, match=r"which is not beside it.*Copy both files"):
        read_onnx_entries(tmp_path / "model.onnx")


@pytest.mark.slow
def test_large_weights_lie_beside(tmp_path, toy, monkeypatch) -> None:
    monkeypatch.setattr(onnx_write, "LARGEST", 1000)
    export_model(toy, tmp_path / "model.onnx", "onnx", *prepared_for(toy))
    assert [path.name for path in files_of(tmp_path / "model.onnx")] == ["model.onnx", "model.onnx.data"]
    exported = open_exported(tmp_path / "model.onnx")
    assert exported.run(np.zeros((1, 3, 32, 32), np.float32))[0].shape == (1, 10)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not protobuf at all",
        b"\x3a" + b"\x80" * 8 + b"\x10",  # a graph of 2^60 bytes
        b"\x3a" + b"\xff" * 20,
        b"\x0c\x00",
    ],
)
def test_what_is_no_onnx(tmp_path, content) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(DataError, match=r"model\.onnx"):
        open_exported(tmp_path / "model.onnx")


def test_a_file_that_was_cut_off(tmp_path, exports) -> None:
    whole = (exports / "model.onnx").read_bytes()
    for length in (10, len(whole) // 2, len(whole) - 5):
        (tmp_path / "model.onnx").write_bytes(whole[:length])
        with pytest.raises(DataError, match="damaged or cut off"):
            open_exported(tmp_path / "model.onnx")


def test_a_file_of_another_exporter_says_what_is_missing(tmp_path) -> None:
    weight = numpy_helper.from_array(np.zeros(2, np.float32), "w")
    model = model_with(initializer=[weight], nodes=[helper.make_node("Add", ["x", "w"], ["y"])])
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(DataError, match="does not say what its classes are"):
        open_exported(tmp_path / "model.onnx")


def test_other_readers_read_it(exports) -> None:
    model = onnx.load(exports / "model.onnx")
    onnx.checker.check_model(model)
    assert [one.name for one in model.graph.output] == ["logits", "features"]
    entries = {one.key: one.value for one in model.metadata_props}
    assert entries == read_onnx_entries(exports / "model.onnx")


def test_names_in_a_file_do_not_reach_the_terminal_as_commands(tmp_path, exports, monkeypatch) -> None:
    # A short name, because long messages are cut off.
    monkeypatch.chdir(tmp_path)
    model = onnx.load(exports / "model.onnx")
    model.graph.node[3].op_type = "\x1b]"
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(DataError) as refused:
        open_exported(Path("model.onnx"))
    assert r"\x1b]" in str(refused.value)
    assert str(refused.value).isprintable()
