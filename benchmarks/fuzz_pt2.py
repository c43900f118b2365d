"""Hostile `.pt2` files: whatever a field says, the file is computed or refused in one sentence, and nothing of it runs.

Each file is an honest one with some strings, numbers, structures, parts or pickles changed. Most of what is put in
would write a file of its own, a canary, wherever it is executed. Every batch is opened in a process of its own, so that
a crash is seen and counted; `--source` opens with the vitrail of another folder, to see what an older one lets through.
"""

import argparse
import collections
import copy
import io
import itertools
import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from pathlib import Path
from typing import Any

from machine import describe_versions

import vitrail
from vitrail.config import BitConfig, ConvLayerConfig, ConvStemConfig, ResNetConfig
from vitrail.exporting.write import write_unverified

_BATCH = 200
_SLOW = 10.0
_MODEL, _SAMPLES = "models/model.json", "data/sample_inputs/model.pt"
_CONFIGS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
_STEM = ConvStemConfig(layers=(ConvLayerConfig(channels=8, kernel_size=3, stride=2),))
_NETWORKS: dict[str, tuple[Any, dict[str, Any], bool]] = {
    "a ViT": ("vit-test", {}, False),
    "a ViT for any size": ("vit-test", {}, True),
    "relative positions for any size": ("vit-test", {"position": "relative"}, True),
    "sines and attention pooling": ("vit-test", {"position": "sincos_2d", "pool": "map"}, True),
    "a convolutional stem with batch norm": ("vit-test", {"backbone": _STEM, "patch_size": 4}, False),
    "a hybrid": (
        "vit-test",
        {"backbone": ResNetConfig(blocks=(1, 1), width=32), "patch_size": 1, "image_size": 64},
        False,
    ),
    "a BiT": (BitConfig(blocks=(1, 1, 1, 1), width=32, image_size=(64, 64), num_classes=5), {}, False),
}
# How code gets out of what is pasted around it. Where names are pasted: as an argument with a default or a type, on the
# left of an assignment, between the quotes of a getattr.
_IN_NAMES = (
    "images=({code})",
    "x=({code}), y",
    "x: ({code}) = None",
    "x = {code}; y",
    'x", {code})  #',
    "x', {code})  #",
)
# And elsewhere: strings of each kind, f-strings, lines, comments, expressions, paths.
_IN_TEXTS = (
    "{code}",
    'x"+str({code})+"',
    "x'+str({code})+'",
    'x"]; {code}; y = ["',
    "x']; {code}; y = ['",
    "{{{code}}}",
    '"""\n{code}\n"""',
    "x\n    {code}\n    y",
    "x\n{code}\n",
    "x): pass\n{code}\ndef f(y",
    "x  # \\\n    {code}",
    "Symbol('s0', positive=True, integer=True) + {code}",
    "Add(Integer(1), {code})",
    "lambda: {code}",
    "[{code} for _ in (1,)]",
    "L['images'].size()[0] == {code}",
    "x.{code}",
    "x\x00{code}",
    "../../{code}",
)
_CODES = (
    'open("{canary}", "w")',
    "open('{canary}', 'w')",
    "__import__('os').mkdir('{canary}')",
    "exec(\"open('{canary}', 'w')\")",
    "ｏｐｅｎ('{canary}', 'w')",
)
# Names that are good Python and better not taken: keywords, builtins, what generated programs use, what torch reaches.
_WORDS = (
    *("self", "torch", "device", "inf", "nan", "None", "True", "class", "lambda", "def", "import", "args", "kwargs"),
    *("__import__", "__class__", "__globals__", "eval", "exec", "open", "forward", "_guards_fn", "fx_pytree", "pytree"),
    *("torch.os.system", "torch.load", "torch.hub.load", "builtins.eval", "os.system", "#import:os", "_operator.call"),
    *("torch.ops.aten.from_file.default", "torch.ops.aten.set_.source_Tensor", "torch.classes.load_library"),
    *(
        "collections.defaultdict",
        "../../../etc/passwd",
        "/dev/zero",
        "cuda:0",
        "meta",
        "",
        "ｆｏｏ",
        "\u202e",
        "\ud800",
    ),
    *("NaN", "Infinity", "x" * 5000),
)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 2**31, 2**62, 2**63, -(2**63), 10**30, 0.5, 1e308, "", [], {}),
    *({"as_none": True}, {"as_int": 3}, {"as_string": "x"}, {"as_tensor": {"name": "images"}}, [[[[]]]], {"": {}}),
    *({"as_operator": "torch.ops.aten.linear.default"}, {"as_custom_obj": {"name": "x", "class_fqn": "y"}}),
    *({"as_graph": {"name": "x", "graph": {}}}, {"as_expr": {"expr_str": "Integer(1)", "hint": None}}),
)
_ADDED = (
    *("metadata", "stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node", "custom"),
    *("guards_code", "forward_arg_names", "as_expr", "expr_str", "as_operator", "class_fqn", "type", "context"),
    *("treespec_namedtuple_fields", "use_pickle", "path_name", "is_hop_single_tensor_return", "as_string", "__class__"),
)
# Fields that hold names and texts, of which more are drawn.
_TEXTS = (
    *("name", "as_name", "parameter_name", "buffer_name", "target", "as_string", "expr_str", "fqn", "path_name"),
    *("in_spec", "out_spec", "torch_version", "type", "metadata", "guards_code"),
)
# Where keys are names of the network.
_BY_NAME = ("config", "tensor_values", "sym_int_values", "range_constraints", "opset_version")
_WORKER = """
import contextlib, os, resource, signal, sys, time
resource.setrlimit(resource.RLIMIT_DATA, (6 << 30, 6 << 30))
import numpy as np, torch
from vitrail.errors import VitrailError
from vitrail.exporting import open_exported
torch.set_num_threads(1)
def late(*_): raise TimeoutError("took more than a minute")
signal.signal(signal.SIGALRM, late)
for name in sys.argv[1:]:
    begin = time.perf_counter()
    signal.alarm(60)
    try:
        with contextlib.redirect_stdout(open(os.devnull, "w")):
            exported = open_exported(name)
            height, width = exported.described.config.image_size
            exported.run(np.zeros((2, exported.described.config.channels, height, width), np.float32))
        told = "ran"
    except VitrailError as error:
        told = "refused" if str(error).isprintable() and len(str(error)) < 1000 else f"told as {str(error)[:100]!r}"
    except BaseException as error:
        told = f"{type(error).__name__}: {str(error)[:100]!r}"
    signal.alarm(0)
    print(name, round(time.perf_counter() - begin, 3), told, sep="\\t", flush=True)
"""


class Bomb:
    """A pickle that writes the canary when it is loaded."""

    def __init__(self, canary: str) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (self.canary,)


def seeds(folder: Path) -> dict[str, dict[str, bytes]]:
    """The parts of one honest file of every kind of network that is written."""
    found = {}
    for about, (name, overrides, any_size) in _NETWORKS.items():
        path = folder / "seed.pt2"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            write_unverified(vitrail.create_model(name, **overrides), path, "torch", any_size=any_size)
        with zipfile.ZipFile(path) as archive:
            found[about] = {one.partition("/")[2]: archive.read(one) for one in archive.namelist()}
    return found


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON document, as the keys that lead there."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in inner for place in places(one, (*path, key)))]


def kinds_of_places(document: Any) -> list[list[tuple[Any, ...]]]:
    """Places that say the same kind of thing together, so that a rare field is drawn as often as a common one."""
    groups: dict[tuple[str, ...], list[tuple[Any, ...]]] = collections.defaultdict(list)
    for place in places(document):
        if place:
            keys = ("any" if before in _BY_NAME else key for before, key in itertools.pairwise(("", *place)))
            groups[tuple(key for key in keys if isinstance(key, str))].append(place)
    return list(groups.values())


def hostile(draw: random.Random, canary: str) -> Any:
    """Something that should not stand where a name or a number stands."""
    if draw.random() < 0.75:
        return draw.choice(draw.choice((_IN_NAMES, _IN_TEXTS))).format(code=draw.choice(_CODES).format(canary=canary))
    return draw.choice(_WORDS) if draw.random() < 0.6 else copy.deepcopy(draw.choice(_VALUES))


def changed(document: Any, groups: list[list[tuple[Any, ...]]], draw: random.Random, canary: str) -> tuple[str, str]:
    """A document with one field changed, as text, and what to replace in it by what so that references still hold."""
    texts = [group for group in groups if group[0][-1] in _TEXTS]
    *above, last = draw.choice(draw.choice(texts if texts and draw.random() < 0.6 else groups))
    holder = document
    try:
        for key in above:
            holder = holder[key]
        old = holder[last]
    except (KeyError, IndexError, TypeError):
        # An earlier change took it away.
        return "", ""
    new = hostile(draw, canary)
    match draw.randrange(10):
        case 0 | 1 | 2 | 3 | 4 if isinstance(old, str) and isinstance(new, str):
            # The same name everywhere, in other parts too: this is how a name passes every look for what it refers to.
            return json.dumps(old), json.dumps(draw.choice((new, new, old + new, new + old, old.replace("tuple", new))))
        case 5 if isinstance(last, str) and isinstance(new, str):
            return json.dumps(last), json.dumps(new)
        case 6:
            del holder[last]
        case 7 if isinstance(old, dict):
            old[draw.choice(_ADDED)] = new
        case 7 if isinstance(old, list):
            old.insert(draw.randrange(len(old) + 1), new)
        case 8 if isinstance(last, str) and isinstance(new, str):
            holder[new] = holder.pop(last)
        case _:
            holder[last] = new
    return "", ""


def crafted(
    seed: dict[str, bytes], groups: dict[str, Any], draw: random.Random, canary: str
) -> list[tuple[str, bytes]]:
    """The parts of a hostile file made of an honest one."""
    parts = dict(seed)
    documents = {name: json.loads(seed[name]) for name in (_MODEL, *_CONFIGS)}
    replacements = []
    for _ in range(draw.choice((1, 1, 1, 1, 2, 4))):
        name = draw.choice((_MODEL, _MODEL, _MODEL, *_CONFIGS))
        replacements.append(changed(documents[name], groups[name], draw, canary))
    for name, document in documents.items():
        text = json.dumps(document)
        for old, new in replacements:
            text = text.replace(old, new) if old else text
        parts[name] = text.encode()
    bomb = pickle.dumps(Bomb(canary))
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("x/data.pkl", bomb)
        archive.writestr("x/version", "3")
    listed = list(parts.items())
    match draw.randrange(48):
        case 0:
            listed.append((draw.choice(("data/weights/model.pt", "data/constants/opaque_obj_0", "a.so")), bomb))
        case 1:
            parts[_SAMPLES] = draw.choice((bomb, whole.getvalue()))
            listed = list(parts.items())
        case 2:
            number = draw.randrange(len(listed))
            listed.append((listed[number][0], draw.choice((bomb, listed[number][1], b"{}"))))
        case 3:
            number = draw.randrange(len(listed))
            listed[number] = (draw.choice((f"../{listed[number][0]}", f"/{canary}", canary)), listed[number][1])
        case 4:
            number = draw.randrange(len(listed))
            listed[number] = (listed[number][0], draw.choice((bomb, whole.getvalue(), b"", b"\0" * 1000)))
        case 5:
            config = json.loads(seed[_CONFIGS[0]])
            one = draw.choice(list(config["config"].values()))
            one.update(use_pickle=True, path_name=draw.choice((one["path_name"], "custom_obj_0", "opaque_obj_0")))
            parts |= {_CONFIGS[0]: json.dumps(config).encode(), f"data/weights/{one['path_name']}": whole.getvalue()}
            listed = list(parts.items())
        case 6:
            # One key twice: readers differ in which they take.
            text = parts[_MODEL].decode()
            extra = json.dumps({"guards_code": [hostile(draw, canary)]})[1:-1]
            listed = [(name, f"{text[:-1]}, {extra}}}".encode() if name == _MODEL else data) for name, data in listed]
        case 7:
            deep = b"[" * draw.choice((500, 100_000))
            listed = [(name, deep if name == _MODEL else data) for name, data in listed]
    return listed


def plan(groups: dict[str, Any]) -> list[tuple[str, tuple[Any, ...], str]]:
    """Every kind of text of a file with every escape: the part, the place and the escape."""
    return [
        (name, group[-1], escape)
        for escape in (*_IN_NAMES, *_IN_TEXTS)
        for name, found in groups.items()
        for group in found
        if group[0][-1] in _TEXTS
    ]


def renamed(seed: dict[str, bytes], planned: tuple[str, tuple[Any, ...], str], canary: str) -> list[tuple[str, bytes]]:
    """The parts of an honest file with one text changed wherever it stands."""
    name, place, escape = planned
    old = json.loads(seed[name])
    for key in place:
        old = old[key]
    new = escape.format(code=_CODES[0].format(canary=canary))
    texts = {one: seed[one].decode().replace(json.dumps(old), json.dumps(new)) for one in (_MODEL, *_CONFIGS)}
    return list({**seed, **{one: text.encode() for one, text in texts.items()}}.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--source", type=Path, help="a folder with another vitrail")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    counts: collections.Counter[str] = collections.Counter()
    odd: list[str] = []
    slowest = 0.0
    environment = {**os.environ, **({"PYTHONPATH": str(options.source)} if options.source else {})}
    with tempfile.TemporaryDirectory() as first:
        honest = seeds(Path(first))
    groups = {
        about: {name: kinds_of_places(json.loads(parts[name])) for name in (_MODEL, *_CONFIGS)}
        for about, parts in honest.items()
    }
    for one in groups.values():
        # A network without constants has no field there.
        one.update({name: found or one[_MODEL] for name, found in one.items()})
    fields = sum(len(found) for one in groups.values() for found in one.values())
    first, *_ = honest
    planned = plan(groups[first])[::-1]
    ends = time.monotonic() + 60 * options.minutes
    while time.monotonic() < ends:
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for number in range(_BATCH):
                about, canary = draw.choice(list(honest)), f"{folder}/canary{number}"
                if planned:
                    parts = renamed(honest[first], planned.pop(), canary)
                else:
                    parts = crafted(honest[about], groups[about], draw, canary)
                files.append(Path(folder) / f"{number}.pt2")
                with warnings.catch_warnings(), zipfile.ZipFile(files[-1], "w") as archive:
                    warnings.simplefilter("ignore")
                    for name, data in parts:
                        archive.writestr(f"archive/{name.encode(errors='replace').decode()}", data)
            run = subprocess.run(
                [sys.executable, "-c", _WORKER, *map(str, files)], capture_output=True, text=True, env=environment
            )
            lines = [line.split("\t") for line in run.stdout.splitlines()]
            for _, seconds, told in lines:
                slowest = max(slowest, float(seconds))
                is_known = told in ("ran", "refused")
                counts[told if is_known else "anything else"] += 1
                if not is_known or float(seconds) > _SLOW:
                    odd.append(f"{told}, {seconds} s")
            fired = sorted(Path(folder).glob("canary*"))
            counts["fired"] += len(fired)
            odd += [f"a canary fired: {_told(lines, path.name.removeprefix('canary'))}" for path in fired]
            if run.returncode:
                counts["crashed"] += 1
                odd.append(f"exit code {run.returncode} at file {len(lines)}: {run.stderr[-200:]}")
    text = "\n".join(
        [
            "# Hostile `.pt2` files",
            "",
            f"- versions: {describe_versions([])}",
            f"- {options.minutes:g} minutes, seed {options.seed}; {len(honest)} honest files ({', '.join(honest)}) "
            f"with {fields} kinds of fields in all; first every text of one file with every escape, then one to four "
            "fields of each file changed at random: names, paths, "
            "operations, arguments, expressions, metadata, trees, guards and structures, parts of the archive, "
            "pickles; in three of four by code that writes a file where it is executed",
            "",
            f"{sum(counts[one] for one in ('ran', 'refused', 'anything else')):,} files: {counts['ran']:,} were opened "
            f"and computed, {counts['refused']:,} were refused in a sentence, {counts['anything else']:,} ended in "
            f"anything else, {counts['crashed']:,} crashes, **{counts['fired']:,} canaries fired**. The slowest took "
            f"{slowest:.2f} s.",
            *(f"- {one}" for one in odd[:20]),
        ]
    )
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n", encoding="utf-8")


def _told(lines: list[list[str]], number: str) -> str:
    return next((told for name, _, told in lines if Path(name).stem == number), "the process ended")


if __name__ == "__main__":
    main()
