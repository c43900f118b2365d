"""A network as `torch.export` writes it: `.pt2`, to be run by torch without the code of the network."""

import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vitrail.errors import DataError
from vitrail.export.entries import Entries
from vitrail.export.pt2_check import EXTRA, checked_copy, read_parts
from vitrail.export.runtimes import Opened, first_line, quietly

if TYPE_CHECKING:
    from vitrail.export.network import TwoOutputs


def write_pt2(network: "TwoOutputs", path: Path, entries: Entries, *, any_size: bool) -> None:
    """Write a network, without an example of its input, which would be pickled."""
    import torch

    from vitrail.export.trace import trace

    program = trace(network, any_size=any_size)
    program._example_inputs = None
    for node in program.graph.nodes:
        # Where the code lay on this machine is nobody's business.
        node.meta = {name: value for name, value in node.meta.items() if name == "val"}
    # By way of memory: on a full disk torch's own writer ends the process.
    whole = io.BytesIO()
    with quietly():
        torch.export.save(program, whole, extra_files=dict(entries))
    with path.open("wb") as file:
        file.write(whole.getbuffer())


def add_pt2_entry(path: Path, name: str, text: str) -> None:
    """Add an entry to a written file."""
    with zipfile.ZipFile(path, "a", zipfile.ZIP_STORED) as archive:
        root = archive.namelist()[0].partition("/")[0]
        archive.writestr(f"{root}/{EXTRA}{name}", text)


def read_pt2_entries(path: Path) -> dict[str, str]:
    """What is said about the network, by name."""
    parts = read_parts(path)
    return {name.removeprefix(EXTRA): _text(data, path) for name, data in parts.items() if name.startswith(EXTRA)}


def open_pt2(path: Path, threads: int | None) -> Opened:
    """Load what was found harmless."""
    import torch

    copy = checked_copy(read_parts(path), str(path))
    try:
        with quietly():
            program = torch.export.load(copy)
            network = program.module()
        [name] = program.graph_signature.user_inputs
        [shape] = [node.meta["val"].shape for node in program.graph.nodes if node.name == name]
    except Exception as error:  # torch's errors have no common kind
        raise DataError(f"torch cannot load it ({first_line(error)})", where=str(path)) from None
    if threads is not None:
        torch.set_num_threads(threads)

    def run(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with torch.inference_mode():
            logits, features = network(torch.from_numpy(images))
        return logits.numpy(), features.numpy()

    takes = tuple(side if isinstance(side, int) else None for side in shape)
    return Opened(runtime=f"torch {torch.__version__}", takes=takes, run=run)


def _text(data: bytes, path: Path) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise DataError("is damaged: it holds names that are no text", where=str(path)) from None
