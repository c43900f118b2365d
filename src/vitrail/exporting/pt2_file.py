"""A network as `torch.export` writes it: `.pt2`, computed by torch's operations without the code of the network."""

import io
import math
import operator
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitrail.errors import DataError
from vitrail.exporting.agree import allowed_difference, largest_difference
from vitrail.exporting.entries import Entries
from vitrail.exporting.pt2_check import EXTRA, LARGEST_SIZE, Constant, Graph, Reference, Step, read_graph, read_parts
from vitrail.exporting.runtimes import Opened, first_line, quietly

if TYPE_CHECKING:
    from torch import Tensor
    from torch.export import ExportedProgram

    from vitrail.exporting.network import TwoOutputs

Values = dict[str, Any]

_ON_SIZES: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "neg": operator.neg,
    "max": max,
    "min": min,
}


def write_pt2(network: "TwoOutputs", path: Path, entries: Entries, *, any_size: bool) -> None:
    """Write a network, without an example of its input, which would be pickled."""
    import torch

    from vitrail.exporting.trace import trace

    program = trace(network, any_size=any_size)
    program._example_inputs = None
    for node in program.graph.nodes:
        # Where the code lay on this machine is nobody's business.
        node.meta = {name: value for name, value in node.meta.items() if name == "val"}
    # By way of memory: on a full disk torch's own writer ends the process.
    whole = io.BytesIO()
    with quietly():
        torch.export.save(program, whole, extra_files=dict(entries))
        whole.seek(0)
        _ensure_loads(torch.export.load(whole), network)
    with path.open("wb") as file:
        file.write(whole.getbuffer())


def add_pt2_entry(path: Path, name: str, text: str) -> None:
    """Add an entry to a written file."""
    with zipfile.ZipFile(path, "a", zipfile.ZIP_STORED) as archive:
        root = archive.namelist()[0].partition("/")[0]
        archive.writestr(f"{root}/{EXTRA}{name}", text)


def read_pt2_entries(path: Path) -> dict[str, str]:
    """What is said about the network, by name."""
    return {name.removeprefix(EXTRA): _text(data, path) for name, data in read_parts(path, EXTRA).items()}


def open_pt2(path: Path, threads: int | None) -> Opened:
    """Make a file ready to be computed step by step: torch's loader, which executes what it reads, never sees it."""
    import torch

    parts = read_parts(path)
    graph = read_graph(parts, str(path))
    try:
        weights = _weights(graph, parts)
        steps = [(_operation(step), step, gone) for step, gone in zip(graph.steps, _last_used(graph), strict=True)]
    except Exception as error:  # torch's errors have no common kind
        raise DataError(f"torch cannot load it ({first_line(error)})", where=str(path)) from None
    del parts
    if threads is not None:
        torch.set_num_threads(threads)

    def run(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values: Values = {**weights, graph.images: torch.from_numpy(images)}
        with torch.inference_mode():
            for operation, step, gone in steps:
                result = operation(values)
                given = result if step.gives_list else (result,) * len(step.gives)
                values.update(zip(step.gives, given, strict=True))
                for name in gone:
                    del values[name]
        logits, features = (values[name] for name in graph.gives)
        return logits.numpy(), features.numpy()

    return Opened(runtime=f"torch {torch.__version__}", takes=graph.takes, run=run)


def _ensure_loads(program: "ExportedProgram", network: "TwoOutputs") -> None:
    """Refuse a file of ours that torch's own loader, which is what others use, does not take for the same network."""
    import torch

    config = network.model.config
    images = torch.linspace(-1, 1, 2 * config.channels * math.prod(config.image_size))
    images = images.reshape(2, config.channels, *config.image_size)
    with torch.inference_mode():
        for ours, theirs in zip(network(images), program.module()(images), strict=True):
            apart = largest_difference(ours.numpy(), theirs.numpy())
            # Not a number where the weights are none, which the comparison of images will tell.
            if apart > allowed_difference(ours.numpy()):
                raise DataError(f"torch loads another network than it saved: answers differ by {apart:.3g}")


def _weights(graph: Graph, parts: dict[str, bytes]) -> "dict[str, Tensor]":
    import torch

    # Copies, so that torch aligns them as it likes; one for all tensors that share it.
    kinds = {(one.part, one.dtype) for one in graph.tensors.values()}
    flat = {(part, dtype): torch.tensor(np.frombuffer(parts[part], dtype)) for part, dtype in kinds}
    for one in graph.tensors.values():
        if math.prod(one.sizes) > len(flat[one.part, one.dtype]):
            raise ValueError(f"{one.part} holds fewer numbers than it says")
    return {
        name: flat[one.part, one.dtype].as_strided(one.sizes, one.strides, one.offset)
        for name, one in graph.tensors.items()
    }


def _operation(step: Step) -> Callable[[Values], Any]:
    """A step as a function of what is there so far."""
    import torch

    if len(step.operation) == 1:
        on_sizes = _ON_SIZES[step.operation[0]]
        return lambda values: _size(on_sizes, [_value(one, values) for _, one in step.arguments])
    name, variant = step.operation
    call = getattr(getattr(torch.ops.aten, name), variant)
    known = [argument.name for argument in call._schema.arguments]
    first, rest = [name for name, _ in step.arguments], [name for name, _ in step.named]
    if first != known[: len(first)] or len(rest) != len(set(rest) & set(known[len(first) :])):
        raise ValueError(f"{call} does not take {', '.join(first + rest)[:100]}")
    arguments = [_of_torch(one) for _, one in step.arguments]
    named = {name: _of_torch(one) for name, one in step.named}

    def compute(values: Values) -> Any:
        given = {name: _value(one, values) for name, one in named.items()}
        return call(*[_value(one, values) for one in arguments], **given)

    return compute


def _of_torch(argument: object) -> object:
    import torch

    return getattr(torch, argument.name) if isinstance(argument, Constant) else argument


def _value(argument: Any, values: Values) -> Any:
    if isinstance(argument, Reference):
        return values[argument.name]
    if isinstance(argument, list):
        return [values[one.name] if isinstance(one, Reference) else one for one in argument]
    return argument


def _size(on_sizes: Callable[..., Any], sizes: list[Any]) -> int:
    """Arithmetic on sizes, and on nothing else: a list times a number, or a power of powers, could fill the memory."""
    if not all(type(size) is int and abs(size) <= LARGEST_SIZE for size in sizes):
        raise ValueError("a size is no number of 64 bits")
    return on_sizes(*sizes)


def _last_used(graph: Graph) -> list[list[str]]:
    """What no step needs after each of them."""
    seen, gone = {graph.images, *graph.tensors, *graph.gives}, []
    for step in reversed(graph.steps):
        given = [argument for _, argument in (*step.arguments, *step.named)]
        used = [
            one.name
            for item in given
            for one in (item if isinstance(item, list) else [item])
            if isinstance(one, Reference)
        ]
        last = {*used, *step.gives} - seen
        gone.append(sorted(last))
        seen |= last
    return gone[::-1]


def _text(data: bytes, path: Path) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise DataError("is damaged: it holds names that are no text", where=str(path)) from None
