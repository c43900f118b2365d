"""A network as an ONNX file, by torch's exporter."""

from pathlib import Path
from typing import Any

import torch

from vitrail.errors import UsageError
from vitrail.exporting.entries import Entries
from vitrail.exporting.network import TwoOutputs
from vitrail.exporting.onnx_read import METADATA
from vitrail.exporting.protobuf import bytes_field, text_field
from vitrail.exporting.runtimes import first_line, needs, quietly
from vitrail.exporting.trace import trace

# A file of protobuf ends at 2 GiB; beyond, weights lie in a file beside it.
LARGEST = 1_900_000_000


def write_onnx(network: TwoOutputs, path: Path, entries: Entries, *, any_size: bool) -> None:
    """Write a network; beyond 2 GB its weights go into a second file beside it."""
    with needs("onnx"):
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    traced = trace(network, any_size=any_size)
    with quietly():
        try:
            program = torch.onnx.export(
                traced,
                dynamo=True,
                input_names=["images"],
                output_names=["logits", "features"],
                verbose=False,
            )
        except Exception as error:  # the exporter's errors have no common kind
            raise UsageError(f"torch cannot export this network to ONNX ({first_line(error)})") from error
    assert program is not None
    _forget_origin(program.model)
    program.model.metadata_props.update(entries)
    size = sum(tensor.numel() * tensor.element_size() for tensor in network.state_dict().values())
    program.save(str(path), external_data=size > LARGEST)


def add_onnx_entry(path: Path, name: str, text: str) -> None:
    """Add an entry to a written file: protobuf reads what follows the end as if it had been in its place."""
    with path.open("ab") as file:
        file.write(bytes_field(METADATA, text_field(1, name) + text_field(2, text)))


def _forget_origin(model: Any) -> None:
    """Leave out where the code of each node lay on this machine: nobody's business, and as large as a small network."""
    for part in (model, model.graph, *model.graph, *model.graph.initializers.values()):
        part.metadata_props.clear()
