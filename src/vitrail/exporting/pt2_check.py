"""A `.pt2` file as a list of steps: tensors, and operations that are known to be harmless.

`torch.export.load` writes a Python program of such a file and executes it, names of the file and all, unpickles some of
its parts and evaluates others. So it never sees one: the graph is read here as plain data, of which nothing but known
operations, plain numbers, references and tensors is taken, and `pt2_file` computes it step by step.
"""

import json
import math
import re
import zipfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from vitrail.errors import DataError, command
from vitrail.runtime.archives import Refused, ensure_stored

EXTRA = "extra/"

_MODEL = "models/model.json"
_WEIGHTS, _CONSTANTS = "data/weights/model_weights_config.json", "data/constants/model_constants_config.json"
_UNUSED = (
    "data/sample_inputs/model.pt",
    "archive_format",
    "archive_version",
    ".data/version",
    ".data/serialization_id",
)
_ORDER = "byteorder"
_TENSORS = re.compile(r"data/(weights/weight|constants/tensor)_[0-9]{1,6}")
# Bytes of all that is parsed, of which each takes up to forty of memory. A ViT-L for any size has 0.83 million of them,
# 48 blocks 1.6, and the names of 21,843 classes add one or two.
_LARGEST_TEXT = 12 << 20
_SCHEMA = 8

# Operations of torch by their variant; none of them looks at a file or calls what it is given, and none writes into a
# tensor or rolls dice but those whose arguments say so, which have to be zero.
_ZERO = {("batch_norm", "training"), ("dropout", "train"), ("scaled_dot_product_attention", "dropout_p")}
_OPERATIONS = {
    "default": (
        "_assert_tensor_metadata",
        "abs",
        "arange",
        "batch_norm",
        "cat",
        "clamp",
        "clone",
        "constant_pad_nd",
        "conv2d",
        "cos",
        "dropout",
        "einsum",
        "expand",
        "expand_as",
        "gather",
        "gelu",
        "group_norm",
        "layer_norm",
        "linear",
        "matmul",
        "max_pool2d",
        "neg",
        "new_zeros",
        "pad",
        "permute",
        "relu",
        "reshape",
        "scaled_dot_product_attention",
        "sin",
        "stack",
        "tanh",
        "unsqueeze",
        "view",
        "zeros",
    ),
    "Tensor": (
        "add",
        "div",
        "mul",
        "slice",
        "sub",
    ),
    "start": ("arange",),
    "start_step": ("arange",),
    "using_ints": ("flatten",),
    "dim": (
        "mean",
        "squeeze",
    ),
    "Scalar": (
        "pow",
        "rsub",
    ),
    "int": (
        "select",
        "softmax",
        "sym_size",
        "transpose",
        "unbind",
        "unflatten",
    ),
    "dtype": ("to",),
}
_ON_SIZES = ("add", "sub", "mul", "floordiv", "mod", "neg")
LARGEST_SIZE = 2**63 - 1
_TARGETS = {
    **{f"torch.ops.aten.{name}.{variant}": (name, variant) for variant, names in _OPERATIONS.items() for name in names},
    # Of Python on whole numbers.
    **{f"_operator.{name}": (name,) for name in _ON_SIZES},
    **{f"torch.sym_{name}": (name,) for name in ("max", "min")},
}

# What torch's archive calls them by number.
_DTYPES = {1: "uint8", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64", 12: "bool"}
_LAYOUTS = {7: "strided"}
_MEMORY_FORMATS = {1: "contiguous_format", 2: "channels_last", 4: "preserve_format"}
_FLOATS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}

# Names only refer to each other, and to the arguments of operations; what is no name is still not worth reading on.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_PATH = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+){0,63}")
_STRING = re.compile(r"[a-z, .>-]{0,80}")
_Kind = TypeVar("_Kind")


@dataclass(frozen=True)
class Reference:
    """What an earlier step gave, or an input."""

    name: str


@dataclass(frozen=True)
class Constant:
    """A constant of torch that is no number, such as a type: one of few names, all of them from here."""

    name: str


@dataclass(frozen=True)
class Stored:
    """A tensor as it lies in a part of the archive."""

    part: str
    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Step:
    """One operation on what is there."""

    operation: tuple[str, ...]
    """Name and variant of an operation of torch, or the name of one of Python on sizes."""
    arguments: tuple[tuple[str, Any], ...]
    """By position, each with its name."""
    named: tuple[tuple[str, Any], ...]
    gives: tuple[str, ...]
    gives_list: bool


@dataclass(frozen=True)
class Graph:
    """A network as steps."""

    images: str
    takes: tuple[int | None, ...]
    """The shape of the images; none where a side may vary."""
    tensors: dict[str, Stored]
    steps: tuple[Step, ...]
    gives: tuple[str, ...]


def read_parts(path: Path, beginning: str = "") -> dict[str, bytes]:
    """The parts of a file whose names begin so: not compressed, not larger than the file, and known."""
    where = str(path)
    try:
        with zipfile.ZipFile(path) as archive:
            ensure_stored(path, archive)
            infos = [info for info in archive.infolist() if not info.is_dir()]
            named = {info.filename.partition("/")[2]: info for info in infos}
            if len(named) != len(infos):
                raise DataError("holds two parts of one name", where=where)
            for name in named:
                if not _is_known(name):
                    raise DataError(f"holds {name!r}, which is no part of an exported network", where=where)
            text = sum(info.file_size for name, info in named.items() if not _TENSORS.fullmatch(name))
            if text > _LARGEST_TEXT:
                came = f"has {text:,} bytes of text beside its weights"
                raise DataError(came, wanted=f"at most {_LARGEST_TEXT:,}", where=where)
            return {name: archive.read(info) for name, info in named.items() if name.startswith(beginning)}
    except Refused as error:
        fix = f"Export the model anew with `{command('export', 'MODEL', to='torch')}`."
        raise DataError(str(error), where=where, fix=fix) from None
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise DataError(f"is not a complete .pt2 file ({error})", where=where, fix="Copy the file again.") from None
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", where=where) from None


def read_graph(parts: dict[str, bytes], where: str) -> Graph:
    """The steps of a network; everything that they do not need is left unread."""
    try:
        return _graph(parts, where)
    except _Foreign as error:
        raise DataError(f"its graph has {error}, which no network of ours has", where=where) from None


class _Foreign(Exception):
    """What a graph has and should not."""


def _is_known(name: str) -> bool:
    plain = name in (_MODEL, _WEIGHTS, _CONSTANTS, _ORDER, *_UNUSED) or _TENSORS.fullmatch(name) is not None
    return plain or (name.startswith(EXTRA) and "/" not in name.removeprefix(EXTRA))


def _graph(parts: dict[str, bytes], where: str) -> Graph:
    if parts.get(_ORDER, b"little") != b"little":
        raise DataError(f"its byte order is {parts[_ORDER][:20]!r}", wanted="'little'", where=where)
    program = _parsed(parts, _MODEL, where)
    version = _get(_get(program, "schema_version", dict), "major", int)
    if version != _SCHEMA:
        raise DataError(f"its graph is written in version {version}", wanted=f"version {_SCHEMA}", where=where)
    module = _get(program, "graph_module", dict)
    graph, signature = _get(module, "graph", dict), _get(module, "signature", dict)
    stored: dict[str, Stored] = {}
    for config in (_WEIGHTS, _CONSTANTS):
        payloads = _get(_parsed(parts, config, where), "config", dict)
        for path, payload in payloads.items():
            _take(_text(path, _PATH, "the tensor"), stored)
            stored[path] = _stored(payload, config.rpartition("/")[0], parts, where)
    tensors: dict[str, Stored] = {}
    images: list[str] = []
    for spec in _get(signature, "input_specs", list):
        kind, value = _only(spec)
        if kind == "user_input":
            images.append(_tensor(_get(value, "arg", dict)))
        elif kind in ("parameter", "buffer", "tensor_constant"):
            path = _text(_get(value, f"{kind}_name", str), _PATH, "the tensor")
            if path not in stored:
                raise _Foreign(f"the tensor {path!r}, of which the file has no numbers")
            tensors[_take(_name(_get(value, "arg", dict)), tensors)] = stored[path]
        else:
            raise _Foreign(f"an input of the kind {kind[:60]!r}")
    if len(images) != 1:
        raise _Foreign(f"{len(images)} inputs beside its weights")
    there = set(tensors)
    there.add(_take(images[0], there))
    steps = tuple(_step(node, there) for node in _get(graph, "nodes", list))
    gives = tuple(_output(spec) for spec in _get(signature, "output_specs", list))
    for name in gives:
        _ensure_there(Reference(name), there)
    if len(gives) != 2:
        raise _Foreign(f"{len(gives)} outputs")
    meta = _get(_get(graph, "tensor_values", dict), images[0], dict)
    takes = tuple(_side(one) for one in _get(meta, "sizes", list))
    return Graph(images[0], takes, tensors, steps, gives)


def _parsed(parts: dict[str, bytes], name: str, where: str) -> dict[str, Any]:
    if name not in parts:
        wanted = f"a file of `{command('export', to='torch')}`"
        raise DataError(f"has no part {name!r}", wanted=wanted, where=where)
    try:
        values = json.loads(parts[name], object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not valid JSON ({error})", where=f"{where}, {name}") from None
    return _ensure(values, dict, name)


def _stored(payload: object, folder: str, parts: dict[str, bytes], where: str) -> Stored:
    payload = _ensure(payload, dict, "tensor")
    meta, part = payload.get("tensor_meta"), f"{folder}/{payload.get('path_name')}"
    if payload.get("use_pickle") is not False or not isinstance(meta, dict) or not _TENSORS.fullmatch(part):
        raise DataError(
            "holds pickled objects, which can run anything and are never loaded",
            wanted="plain tensors",
            where=where,
            fix=f"Export the model anew with `{command('export', 'MODEL', to='torch')}`.",
        )
    if part not in parts:
        raise DataError(f"has no part {part!r}", where=where, fix="Copy the file again.")
    return Stored(
        part=part,
        dtype=_choice(meta.get("dtype"), _DTYPES, "the type"),
        sizes=tuple(_size(one) for one in _get(meta, "sizes", list)),
        strides=tuple(_size(one) for one in _get(meta, "strides", list)),
        offset=_size(meta.get("storage_offset")),
    )


def _step(node: object, there: set[str]) -> Step:
    node = _ensure(node, dict, "node")
    target = _get(node, "target", str)
    if target not in _TARGETS:
        raise _Foreign(f"the operation {target[:60]!r}")
    by_position, by_name = [], []
    for one in _get(node, "inputs", list):
        given = (_name(one), _argument(_get(one, "arg", dict)))
        _ensure_there(given[1], there)
        if (_TARGETS[target][0], given[0]) in _ZERO and given[1] != 0:
            raise _Foreign(f"{_TARGETS[target][0]} as in training ({given[0]} {str(given[1])[:60]})")
        kind = _get(one, "kind", int)
        if kind not in (1, 2) or (kind == 1 and by_name):
            raise _Foreign(f"an argument of the kind {kind}")
        (by_position if kind == 1 else by_name).append(given)
    outputs = [_only(one) for one in _get(node, "outputs", list)]
    if len(outputs) > 1:
        raise _Foreign(f"an operation with {len(outputs)} outputs")
    gives: tuple[str, ...] = ()
    for kind, value in outputs:
        if kind == "as_tensors":
            gives = tuple(_name(one) for one in _ensure(value, list, kind))
        elif kind in ("as_tensor", "as_sym_int"):
            gives = (_name(value) if kind == "as_tensor" else _name(value, "as_name"),)
        elif kind != "as_none":
            raise _Foreign(f"an output of the kind {kind[:60]!r}")
    for name in gives:
        there.add(_take(name, there))
    gives_list = any(kind == "as_tensors" for kind, _ in outputs)
    return Step(_TARGETS[target], tuple(by_position), tuple(by_name), gives, gives_list)


def _argument(argument: dict[str, Any]) -> Any:
    """What is given to an operation: numbers, flags, few words, and references."""
    kind, value = _only(argument)
    match kind:
        case "as_none":
            return None
        case "as_tensor":
            return Reference(_name(value))
        case "as_tensors":
            return [Reference(_name(one)) for one in _ensure(value, list, kind)]
        case "as_int":
            return _whole(value)
        case "as_ints":
            return [_whole(one) for one in _ensure(value, list, kind)]
        case "as_float":
            return _number(value)
        case "as_bool":
            return _ensure(value, bool, kind)
        case "as_string":
            return _text(value, _STRING, "the text")
        case "as_sym_int":
            return _whole_or_reference(value)
        case "as_sym_ints":
            return [_whole_or_reference(one) for one in _ensure(value, list, kind)]
        case "as_scalar_type":
            return Constant(_choice(value, _DTYPES, "the type"))
        case "as_layout":
            return Constant(_choice(value, _LAYOUTS, "the layout"))
        case "as_memory_format":
            return Constant(_choice(value, _MEMORY_FORMATS, "the memory format"))
        case "as_device" if value == {"type": "cpu", "index": None}:
            return "cpu"
        case _:
            raise _Foreign(f"an argument of the kind {kind[:60]!r}")


def _output(spec: object) -> str:
    kind, value = _only(spec)
    if kind != "user_output":
        raise _Foreign(f"an output of the kind {kind[:60]!r}")
    return _tensor(_get(value, "arg", dict))


def _tensor(argument: dict[str, Any]) -> str:
    kind, value = _only(argument)
    if kind != "as_tensor":
        raise _Foreign(f"an input or output of the kind {kind[:60]!r}")
    return _name(value)


def _whole_or_reference(argument: object) -> int | Reference:
    kind, value = _only(argument)
    return _whole(value) if kind == "as_int" else Reference(_name(argument, "as_name"))


def _side(size: object) -> int | None:
    """A side of the images; an expression, whatever it says, is one that varies."""
    return None if _only(size)[0] == "as_expr" else _size(size)


def _size(value: object) -> int:
    number = _whole(_get(value, "as_int", int))
    if number < 0:
        raise _Foreign(f"a tensor of size {number}")
    return number


def _name(value: object, key: str = "name") -> str:
    return _text(_get(value, key, str), _NAME, "the name")


def _text(value: object, pattern: re.Pattern[str], what: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise _Foreign(f"{what} {str(value)[:60]!r}")
    return value


def _whole(value: object) -> int:
    number = _ensure(value, int, "whole number")
    if abs(number) > LARGEST_SIZE:
        raise _Foreign("a number of more than 64 bits")
    return number


def _number(value: object) -> float:
    if isinstance(value, str) and value in _FLOATS:
        return _FLOATS[value]
    if isinstance(value, float):
        return value
    return float(_whole(value))


def _choice(value: object, known: dict[int, str], what: str) -> str:
    if type(value) is not int or value not in known:
        raise _Foreign(f"{what} {str(value)[:60]!r}")
    return known[value]


def _only(union: object) -> tuple[str, Any]:
    """The one entry of a dictionary that says by its key what its value is."""
    values = _ensure(union, dict, "argument")
    if len(values) != 1:
        raise _Foreign(f"an argument of {len(values)} kinds")
    return next(iter(values.items()))


def _get(values: object, key: str, kind: type[_Kind]) -> _Kind:
    return _ensure(_ensure(values, dict, key).get(key), kind, key)


def _ensure(value: object, kind: type[_Kind], what: str) -> _Kind:
    # True is a whole number for Python, and not here.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _Foreign(f"{type(value).__name__} for {what[:60]!r}")
    return value


def _ensure_there(given: object, there: set[str]) -> None:
    for one in given if isinstance(given, list) else [given]:
        if isinstance(one, Reference) and one.name not in there:
            raise _Foreign(f"the name {one.name!r}, which nothing before it has")


def _take(name: str, taken: Collection[str]) -> str:
    """A name that is still free."""
    if name in taken:
        raise _Foreign(f"the name {name!r} twice")
    return name


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key stands twice")
    return values


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")
