"""A `.pt2` file before torch sees it: a copy in memory that holds tensors and known operations, and nothing that runs.

Torch unpickles parts of such a file, evaluates others as Python, and calls any function of its modules that the graph
names. So nothing is handed to it that was not read and allowed here.
"""

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vitrail.errors import DataError
from vitrail.weights.record import parse_json

EXTRA = "extra/"

_MODEL = "models/model.json"
_CONFIGS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
_SAMPLES = "data/sample_inputs/model.pt"
_PLAIN = ("archive_format", "archive_version", "byteorder", ".data/version", ".data/serialization_id")
_TENSORS = re.compile(r"data/(weights/weight|constants/tensor)_\d+")
_PAYLOAD = re.compile(r"(weight|tensor)_\d+")

# Operations of torch by their variant, and of Python on sizes.
_OPERATIONS = {
    "default": (
        "_assert_scalar",
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
_ON_SIZES = ("add", "sub", "mul", "floordiv", "mod", "neg", "getitem", "ge", "le", "eq", "ne", "lt", "gt")
_TARGETS = frozenset(
    {f"torch.ops.aten.{name}.{variant}" for variant, names in _OPERATIONS.items() for name in names}
    | {f"_operator.{name}" for name in _ON_SIZES}
    | {"torch.sym_max", "torch.sym_min"}
)
_ARGUMENTS = frozenset(
    f"as_{name}"
    for name in (
        *("none", "tensor", "tensors", "optional_tensors", "string", "scalar_type", "device", "layout"),
        *("memory_format", "int", "ints", "float", "floats", "bool", "bools"),
        *("name", "expr", "sym_int", "sym_ints"),
    )
)
# Sizes that vary, as torch writes them: functions of named symbols, without a name or a sign beyond these.
_EXPRESSION = re.compile(
    r"(?:Symbol\('[su]\d{1,4}', positive=True, integer=True\)|Integer\(-?\d{1,20}\)"
    r"|(?:Add|Mul|Pow|Max|Min|Mod|PythonMod|FloorDiv|CeilDiv|CleanDiv)\(|[ ,)])*"
)
_LARGE = re.compile(r"Integer\(-?\d{4}")
_SYMBOL = re.compile(r"[su]\d{1,4}")
_TREES = ("builtins.tuple", "builtins.list", "builtins.dict", None)


def read_parts(path: Path) -> dict[str, bytes]:
    """Every part of a file by its name, as it lies there: not compressed, not larger than the file, and known."""
    where = str(path)
    try:
        with zipfile.ZipFile(path) as archive:
            infos = [info for info in archive.infolist() if not info.is_dir()]
            for info in infos:
                if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
                    raise DataError(f"its part {info.filename!r} is compressed", where=where)
            if sum(info.file_size for info in infos) > path.stat().st_size:
                raise DataError("says that it is larger than it is", where=where, fix="Copy the file again.")
            parts = [(info.filename.partition("/")[2], archive.read(info)) for info in infos]
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise DataError(f"is not a complete .pt2 file ({error})", where=where, fix="Copy the file again.") from None
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", where=where) from None
    found = dict(parts)
    if len(found) != len(parts):
        raise DataError("holds two parts of one name", where=where)
    for name in found:
        if not _is_known(name):
            raise DataError(f"holds {name!r}, which is no part of an exported network", where=where)
    return found


def checked_copy(parts: dict[str, bytes], where: str) -> io.BytesIO:
    """An archive that torch may load, without example inputs, which are pickled, and guards, which are code."""
    program = _parsed(parts, _MODEL, where)
    _check_program(program, where)
    for name in _CONFIGS:
        _check_payloads(_parsed(parts, name, where), where)
    program["guards_code"] = []
    kept = {name: data for name, data in parts.items() if not name.startswith(EXTRA)}
    kept |= {_MODEL: json.dumps(program).encode(), _SAMPLES: b""}
    copy = io.BytesIO()
    with zipfile.ZipFile(copy, "w", zipfile.ZIP_STORED) as archive:
        for name, data in kept.items():
            archive.writestr(f"model/{name}", data)
    copy.seek(0)
    return copy


def _is_known(name: str) -> bool:
    plain = name in (_MODEL, _SAMPLES, *_CONFIGS, *_PLAIN) or _TENSORS.fullmatch(name) is not None
    return plain or (name.startswith(EXTRA) and "/" not in name.removeprefix(EXTRA))


def _parsed(parts: dict[str, bytes], name: str, where: str) -> dict[str, Any]:
    if name not in parts:
        raise DataError(f"has no part {name!r}", wanted="a file of `vitrail export --to torch`", where=where)
    values = parse_json(parts[name].decode(errors="replace"), f"{where}, {name}")
    if not isinstance(values, dict):
        raise DataError("holds no JSON object", where=f"{where}, {name}")
    return values


def _check_payloads(config: dict[str, Any], where: str) -> None:
    """Refuse whatever is not a plain tensor."""
    payloads = config.get("config")
    for payload in payloads.values() if isinstance(payloads, dict) else [None]:
        if not _is_plain_tensor(payload):
            raise DataError(
                "holds pickled objects, which can run anything and are never loaded",
                wanted="plain tensors",
                where=where,
                fix="Export the model anew with `vitrail export MODEL --to torch`.",
            )


def _is_plain_tensor(payload: object) -> bool:
    if not isinstance(payload, dict) or not _PAYLOAD.fullmatch(str(payload.get("path_name"))):
        return False
    return payload.get("use_pickle") is False and isinstance(payload.get("tensor_meta"), dict)


def _check_program(program: dict[str, Any], where: str) -> None:
    """Refuse every operation, argument and expression that is not known to be harmless."""
    for key, value in _items(program):
        if key == "target" and isinstance(value, str) and value not in _TARGETS:
            raise _foreign(f"the operation {value!r}", where)
        if key.startswith("as_") and key not in _ARGUMENTS:
            raise _foreign(f"an argument of the kind {key!r}", where)
        if key == "expr_str" and not _is_harmless(value):
            raise _foreign(f"the expression {str(value)[:60]!r}", where)
        if key in ("in_spec", "out_spec"):
            _check_tree(value, where)
        if key == "treespec_namedtuple_fields" and value:
            raise _foreign("types of its own", where)
    ranges = program.get("range_constraints", {})
    for name in ranges if isinstance(ranges, dict) else [None]:
        if not _SYMBOL.fullmatch(str(name)):
            raise _foreign(f"the symbol {str(name)[:60]!r}", where)


def _is_harmless(expression: object) -> bool:
    """Whether an expression is only arithmetic, and not with powers of powers that would take for ever."""
    if not isinstance(expression, str) or not _EXPRESSION.fullmatch(expression):
        return False
    powers = expression.count("Pow(")
    return not powers or (powers == 1 and not _LARGE.search(expression))


def _check_tree(text: object, where: str) -> None:
    values = parse_json(text, where) if isinstance(text, str) else None
    for key, value in _items(values):
        if key == "type" and value not in _TREES:
            raise _foreign(f"the type {value!r}", where)


def _items(value: object) -> Iterator[tuple[str, Any]]:
    """Every key and value of a JSON document, however deep."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield from one.items()
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def _foreign(what: str, where: str) -> DataError:
    return DataError(f"its graph has {what}, which no network of ours has", where=where)
