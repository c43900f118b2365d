"""An OpenVINO model: `.xml` with the graph and what is said about it, `.bin` with the weights in float32."""

import re
import threading
from pathlib import Path
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

import numpy as np

from vitrail.errors import DataError
from vitrail.exporting.entries import Entries
from vitrail.exporting.runtimes import Opened, first_line, import_openvino


def write_openvino(onnx: Path, path: Path, entries: Entries) -> None:
    """Write the graph of an ONNX file as OpenVINO has it, without rounding its weights to half precision."""
    openvino = import_openvino()
    model = openvino.Core().read_model(str(onnx))
    for name, text in entries.items():
        model.set_rt_info(text, [name])
    openvino.save_model(model, str(path), compress_to_fp16=False)


def add_openvino_entry(path: Path, name: str, text: str) -> None:
    """Add an entry to a written file; its graph stays as it was compared."""
    whole = path.read_text(encoding="utf-8")
    body, end, rest = whole.rpartition("</rt_info>")
    if not end:
        raise DataError("has no place for what is said about it", where=str(path))
    path.write_text(f"{body}\t<{name} value={quoteattr(text)} />\n\t{end}{rest}", encoding="utf-8")


def read_openvino_entries(path: Path) -> dict[str, str]:
    """What is said about the model, by name: the elements below the last `rt_info`, which belongs to the whole."""
    if not path.with_suffix(".bin").is_file():
        raise DataError(
            f"its weights, {path.with_suffix('.bin').name}, are not beside it",
            where=str(path),
            fix="Copy both files together.",
        )
    found: dict[str, str] = {}
    open_elements: list[str] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        if open_elements == ["net", "rt_info"]:
            found[name] = attributes.get("value", "")
        open_elements.append(name)

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _name: open_elements.pop()
    parser.EntityDeclHandler = _refuse_entities
    try:
        parser.Parse(path.read_bytes(), True)
    except expat.ExpatError as error:
        raise DataError(f"is no OpenVINO model ({error})", where=str(path)) from None
    except _Entities:
        raise DataError("declares entities, which no OpenVINO model does", where=str(path)) from None
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", where=str(path)) from None
    return found


def open_openvino(path: Path, threads: int | None) -> Opened:
    """Load a model and compile it for this CPU, in float32: on some machines OpenVINO would take half of the bits."""
    openvino = import_openvino()
    settings: dict[str, object] = {"INFERENCE_PRECISION_HINT": "f32"}
    if threads is not None:
        settings["INFERENCE_NUM_THREADS"] = threads
    try:
        core = openvino.Core()
        compiled = core.compile_model(core.read_model(str(path)), "CPU", settings)
        logits, features = compiled.output("logits"), compiled.output("features")
        shape = compiled.input("images").partial_shape
    except RuntimeError as error:
        raise DataError(f"OpenVINO cannot load it ({first_line(error)})", where=str(path)) from None

    one_at_a_time = threading.Lock()

    def run(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # OpenVINO refuses a second question before the first is answered, and overwrites its answers.
        with one_at_a_time:
            outputs = compiled(images)
            return np.array(outputs[logits]), np.array(outputs[features])

    version = re.split(r"[-+]", openvino.__version__)[0]
    takes = tuple(side.get_length() if side.is_static else None for side in shape)
    return Opened(runtime=f"openvino {version}", takes=takes, run=run)


class _Entities(Exception):
    pass


def _refuse_entities(*_declaration: object) -> None:
    raise _Entities
