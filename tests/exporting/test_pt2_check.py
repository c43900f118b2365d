"""Nothing in a `.pt2` file runs: of its graph only known operations on tensors and numbers are taken."""

import copy
import io
import json
import pickle
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.exporting.networks import NETWORKS

from vitrail.errors import DataError
from vitrail.exporting import open_exported
from vitrail.exporting.pt2_check import _TARGETS, _ZERO, read_graph, read_parts
from vitrail.exporting.write import write_unverified

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


def assert_as_torch_loads_it(path: Path) -> None:
    """To the last bit, in two batch sizes and, where the file takes it, another image size."""
    exported = open_exported(path)
    config = exported.described.config
    height, width = config.image_size
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = torch.export.load(path).module()
    for size in [(height, width), *([(2 * height, width)] if exported.any_size else [])]:
        images = torch.randn(3, config.channels, *size, generator=torch.Generator().manual_seed(0))
        for count in (2, 3):
            with torch.inference_mode():
                expected = loaded(images[:count])
            for ours, theirs in zip(exported.run(images[:count].numpy()), expected, strict=True):
                np.testing.assert_array_equal(ours, theirs.numpy())


def test_steps_give_what_the_program_of_torch_gives(exports) -> None:
    assert_as_torch_loads_it(exports / "model.pt2")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::vitrail.errors.Notice")
@pytest.mark.parametrize("any_size", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_steps_of_every_network(tmp_path, name, any_size) -> None:
    write_unverified(NETWORKS[name](), tmp_path / "model.pt2", "torch", any_size=any_size)
    assert_as_torch_loads_it(tmp_path / "model.pt2")


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


def argument(name: str, **value: object) -> dict:
    return {"name": name, "arg": value, "kind": 1}


def with_batch_norm(exports: Path, training: dict[str, object]) -> bytes:
    """The network behind statistics of batches, which are added to its weights, and dice."""
    module = part(exports, MODEL)["graph_module"]
    graph, specs = module["graph"], module["signature"]["input_specs"]
    weights = [one["parameter"]["arg"]["name"] for one in specs if "parameter" in one]
    images = next(one["user_input"]["arg"]["as_tensor"]["name"] for one in specs if "user_input" in one)
    values = part(exports, MODEL)
    names = [*("weight", "bias", "running_mean", "running_var")]
    node = {
        "target": "torch.ops.aten.batch_norm.default",
        "inputs": [
            argument("input", as_tensor={"name": images}),
            *(argument(name, as_tensor={"name": weights[0]}) for name in names),
            argument("training", **training),
            argument("momentum", as_float=0.1),
            argument("eps", as_float=1e-5),
            argument("cudnn_enabled", as_bool=False),
        ],
        "outputs": [{"as_tensor": {"name": "normed"}}],
    }
    values["graph_module"]["graph"]["nodes"] = [node, *graph["nodes"]]
    return json.dumps(values).encode()


@pytest.mark.parametrize("training", [{"as_bool": True}, {"as_int": 1}, {"as_string": "yes"}, {"as_none": True}])
def test_a_step_that_would_write_into_the_weights(exports, crafted, tmp_path, training) -> None:
    parts = read_parts(crafted({MODEL: with_batch_norm(exports, {"as_bool": False})}))
    assert read_graph(parts, "x").steps[0].operation == ("batch_norm", "default")
    refused(crafted({MODEL: with_batch_norm(exports, training)}), "batch_norm as in training", tmp_path / "boom")


@pytest.mark.parametrize(
    ("operation", "name", "value"),
    [
        ("dropout", "train", {"as_bool": True}),
        ("dropout", "train", {"as_tensor": {"name": "images"}}),
        ("scaled_dot_product_attention", "dropout_p", {"as_float": 0.1}),
        ("scaled_dot_product_attention", "dropout_p", {"as_float": "NaN"}),
    ],
)
@pytest.mark.parametrize("kind", [1, 2])
def test_a_step_that_rolls_dice(exports, crafted, tmp_path, operation, name, value, kind) -> None:
    values = part(exports, MODEL)
    given = {"name": name, "arg": value, "kind": kind}
    node = {"target": f"torch.ops.aten.{operation}.default", "inputs": [given], "outputs": []}
    values["graph_module"]["graph"]["nodes"].insert(0, node)
    path = crafted({MODEL: json.dumps(values).encode()})
    refused(path, f"{operation} as in training", tmp_path / "boom")


def test_what_torch_says_of_the_operations() -> None:
    """None writes into what it is given, and those that may roll dice are told not to."""
    for operation in (one for one in _TARGETS.values() if len(one) == 2):
        call = getattr(getattr(torch.ops.aten, operation[0]), operation[1])
        assert not call._schema.is_mutable
        names = {argument.name for argument in call._schema.arguments}
        rolls = torch.Tag.nondeterministic_seeded in call.tags
        if rolls or names & {"training", "train", "generator"}:
            assert any(one == operation[0] and name in names for one, name in _ZERO), operation


def code(place: Path) -> str:
    """Python that leaves a trace where it is executed; without a dot, at which torch would cut it."""
    return f'open("{place}", "w")'


def renamed(exports: Path, old: str, new: str) -> dict[str, bytes]:
    """A name changed wherever it stands, so that everything still refers to what it did."""
    return {
        name: json.dumps(part(exports, name)).replace(json.dumps(old), json.dumps(new)).encode()
        for name in (MODEL, WEIGHTS, CONSTANTS)
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("images", "images=({code})"),
        ("model.head.bias", 'x", {code})  #'),
        ("linear", "linear = {code}; y"),
        ("p_model_head_bias", "x: ({code}) = None"),
        ("images", "images "),
        ("images", "ｉmages"),
        ("images", "images\n"),
    ],
)
def test_names_are_names(exports, crafted, tmp_path, old, new) -> None:
    """Torch pastes them into the program that it writes: as a default of an argument, between quotes of a getattr."""
    place = tmp_path / "boom"
    refused(crafted(renamed(exports, old, new.format(code=code(place)))), "the name|the tensor", place)


@pytest.mark.parametrize(
    "name", ["torch", "device", "inf", "self", "None", "class", "eval", "__import__", "_guards_fn"]
)
def test_names_that_mean_something_to_python_mean_nothing_here(exports, crafted, tmp_path, toy, name) -> None:
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected = toy(images).numpy()
    found, _ = open_exported(crafted(renamed(exports, "images", name))).run(images.numpy())
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("kind", [1, 2])
def test_names_of_arguments_are_those_of_the_operation(exports, crafted, tmp_path, kind) -> None:
    place = tmp_path / "boom"
    for name in (f"bias={code(place)}, x", "other", "__class__", "weight", ""):
        values = part(exports, MODEL)
        values["graph_module"]["graph"]["nodes"][-1]["inputs"][-1].update(name=name, kind=kind)
        refused(crafted({MODEL: json.dumps(values).encode()}), "the name|does not take", place)


def fields(value: object, path: tuple = (), kind: tuple = ()) -> dict[tuple, tuple]:
    """A place for each kind of field: the keys that lead there, by those of them that the network does not choose."""
    found = {kind: path} if path else {}
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        chosen = isinstance(key, int) or (kind and kind[-1] in ("config", "tensor_values", "sym_int_values"))
        found |= fields(one, (*path, key), (*kind, "any" if chosen else key))
    return found


@pytest.mark.parametrize("name", [MODEL, WEIGHTS])
def test_every_field(exports, name) -> None:
    """Whatever a field says is refused or means nothing; `benchmarks/fuzz_pt2.py` hunts for longer."""
    parts = read_parts(exports / "model.pt2")
    expected, honest = read_graph(parts, "here"), part(exports, name)
    places = fields(honest)
    assert len(places) > (80 if name == MODEL else 10)
    refusals = 0
    for *above, last in places.values():
        for hostile in ('x", open("boom", "w"))  #', 2**70, [{}]):
            holder = values = copy.deepcopy(honest)
            for key in above:
                holder = holder[key]
            holder[last] = hostile
            try:
                assert read_graph({**parts, name: json.dumps(values).encode()}, "here") == expected, (above, last)
            except DataError:
                refusals += 1
    assert refusals > len(places)


@pytest.mark.parametrize(
    "expression",
    ["__import__('pathlib').Path('{place}').touch()", "Pow(Pow(Integer(9), Integer(9)), Integer(999999999))"],
)
def test_expressions_guards_trees_and_metadata_are_not_read(exports, crafted, tmp_path, expression) -> None:
    place = tmp_path / "boom"
    told = expression.format(place=place)
    values = part(exports, MODEL)
    graph = values["graph_module"]["graph"]
    values["guards_code"] = [told]
    values["range_constraints"] = {told: {"min_val": 0, "max_val": 1}}
    values["graph_module"]["treespec_namedtuple_fields"] = {"a": {"field_names": [told]}}
    for name in ("in_spec", "out_spec"):
        values["graph_module"]["module_call_graph"][0]["signature"][name] = told
    graph["nodes"][0]["metadata"] = {"stack_trace": told, "nn_module_stack": told, "source_fn_stack": told}
    graph["tensor_values"]["images"]["sizes"][0] = {"as_expr": {"expr_str": told, "hint": None}}
    graph["sym_int_values"] = {name: {"as_expr": {"expr_str": told}} for name in graph["sym_int_values"]}
    open_exported(crafted({MODEL: json.dumps(values).encode()})).run(np.zeros((1, 3, 32, 32), np.float32))
    assert not place.exists()


def test_other_arguments(exports, crafted, tmp_path) -> None:
    for argument in (
        {"as_custom_obj": {"name": "x", "class_fqn": "y"}},
        {"as_operator": "torch.ops.aten.linear.default"},
        {"as_graph": {"name": "x", "graph": {}}},
        {"as_device": {"type": "cuda", "index": 0}},
        {"as_string": "x" * 100},
        {"as_int": 1, "as_none": True},
        {"as_int": 2**63},
        {"as_tensor": {"name": "nowhere"}},
    ):
        values = part(exports, MODEL)
        values["graph_module"]["graph"]["nodes"][-1]["inputs"][0]["arg"] = argument
        refused(crafted({MODEL: json.dumps(values).encode()}), "its graph has", tmp_path / "boom")


def test_json_that_readers_take_differently(exports, crafted, tmp_path) -> None:
    text = json.dumps(part(exports, MODEL))
    for changed, match in (
        (text[:-1] + ', "guards_code": ["exit()"]}', "a key stands twice"),
        (text.replace('"as_int": 0', '"as_int": NaN', 1), "NaN is no number"),
        ("[" * 100_000, "not valid JSON"),
        (text.replace('"major": 8', '"major": 9'), "written in version 9"),
    ):
        refused(crafted({MODEL: changed.encode()}), match, tmp_path / "boom")


def test_tensors_that_are_larger_than_what_is_stored(exports, crafted, tmp_path) -> None:
    """By its strides, a tensor could be a thousand times as large as the file, or begin outside it."""
    for change in (
        {"sizes": [{"as_int": 2**40}], "strides": [{"as_int": 0}]},
        {"storage_offset": {"as_int": 2**20}},
        {"strides": [{"as_int": 2**50}] * 4},
        {"sizes": [{"as_int": -1}] * 4},
        {"dtype": 8},
    ):
        values = part(exports, WEIGHTS)
        next(iter(values["config"].values()))["tensor_meta"].update(change)
        refused(
            crafted({WEIGHTS: json.dumps(values).encode()}), "torch cannot load it|its graph has", tmp_path / "boom"
        )


def test_sizes_that_grow_without_end(exports, crafted) -> None:
    """A product of products would fill the memory with one number."""
    values = part(exports, MODEL)
    nodes = values["graph_module"]["graph"]["nodes"]
    size = {"target": "torch.ops.aten.sym_size.int", "inputs": [], "outputs": [{"as_sym_int": {"as_name": "n0"}}]}
    size["inputs"] = [
        {"name": "self", "arg": {"as_tensor": {"name": "images"}}, "kind": 1},
        {"name": "dim", "arg": {"as_int": 3}, "kind": 1},
    ]
    grown = [
        {
            "target": "_operator.mul",
            "inputs": [{"name": name, "arg": {"as_sym_int": {"as_name": f"n{number}"}}, "kind": 1} for name in "ab"],
            "outputs": [{"as_sym_int": {"as_name": f"n{number + 1}"}}],
        }
        for number in range(60)
    ]
    nodes[:0] = [size, *grown]
    run = open_exported(crafted({MODEL: json.dumps(values).encode()})).run
    with pytest.raises(DataError, match="64 bits"):
        run(np.zeros((1, 3, 32, 32), np.float32))


def test_sizes_that_are_not_true(exports, crafted, tmp_path) -> None:
    refused(crafted({}, zipfile.ZIP_DEFLATED), "is compressed", tmp_path / "boom")
    content = bytearray((exports / "model.pt2").read_bytes())
    place = content.index(b"PK\x01\x02")
    content[place + 20 : place + 28] = b"\xfe\xff\xff\xff" * 2  # 4 GB, stored, in a small file
    (tmp_path / "large.pt2").write_bytes(content)
    refused(tmp_path / "large.pt2", "larger than it is|not a complete", tmp_path / "boom")


@pytest.mark.parametrize("name", [MODEL, "extra/vitrail", "extra/more"])
def test_text_that_no_network_needs_is_not_parsed(exports, crafted, tmp_path, name) -> None:
    """Each of its bytes would take forty."""
    with zipfile.ZipFile(exports / "model.pt2") as good:
        text = good.read(f"archive/{name}").rstrip() if name != "extra/more" else b"{}"
    path = crafted({name: text[:-1] + b', "junk": [' + b"{}," * (5 << 20) + b"0]}"})
    tracemalloc.start()
    try:
        refused(path, "bytes of text", tmp_path / "boom")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


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
