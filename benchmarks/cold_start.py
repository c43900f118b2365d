"""Seconds from the command to the answer for one photo: ours beside scripts with timm and Hugging Face.

Each contender is a fresh process. What a backend cannot do without, to import it and to read the weights, is timed as
well: the rest is ours.
"""

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from machine import describe_machine, describe_versions

from vitrail import load_model, save_model
from vitrail.exporting.write import write_unverified

_TIMM = """
import sys, timm, torch
from PIL import Image
from safetensors.torch import load_file
network = timm.create_model("vit_tiny_patch16_224.augreg_in21k_ft_in1k").eval()
network.load_state_dict(load_file(sys.argv[1]))
transform = timm.data.create_transform(**timm.data.resolve_data_config({}, model=network), is_training=False)
with torch.inference_mode():
    chances = network(transform(Image.open(sys.argv[2]).convert("RGB"))[None]).softmax(1)[0]
print(chances.topk(5))
"""
_HUGGING_FACE = """
import sys, torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageClassification
processor = AutoImageProcessor.from_pretrained(sys.argv[1])
network = AutoModelForImageClassification.from_pretrained(sys.argv[1]).eval()
with torch.inference_mode():
    chances = network(**processor(Image.open(sys.argv[2]).convert("RGB"), return_tensors="pt")).logits.softmax(1)[0]
print(chances.topk(5))
"""
_BASE_TORCH = """
import sys, torch
from safetensors.torch import load_file
load_file(sys.argv[1])
"""
_BASE_OPENVINO = """
import sys, numpy, openvino
openvino.Core().compile_model(sys.argv[1], "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
"""
_BASE_ONNX = """
import sys, numpy, onnxruntime
onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
"""


def commands(source: str, photo: str, folder: Path) -> dict[str, list[str]]:
    """Every contender as it is started."""
    python = sys.executable
    model = load_model(source, preprocessing="augreg")
    save_model(model, folder / "ours")
    save_model(model, folder / "huggingface", layout="huggingface")
    for kind, name in (("onnx", "file.onnx"), ("openvino", "file.xml")):
        write_unverified(model, folder / name, kind)
    ours = [python, "-m", "vitrail", "predict"]
    onnx, openvino = str(folder / "file.onnx"), str(folder / "file.xml")
    return {
        "vitrail, a model folder in torch": [*ours, str(folder / "ours"), photo, "--backend", "torch"],
        "import torch, read the weights": [python, "-c", _BASE_TORCH, str(folder / "ours" / "model.safetensors")],
        "vitrail, exported to ONNX": [*ours, onnx, photo],
        "import onnxruntime, open the file": [python, "-c", _BASE_ONNX, onnx],
        "vitrail, exported to OpenVINO": [*ours, openvino, photo],
        "import openvino, open the file": [python, "-c", _BASE_OPENVINO, openvino],
        "a script with timm": [python, "-c", _TIMM, source, photo],
        "a script with Hugging Face": [python, "-c", _HUGGING_FACE, str(folder / "huggingface"), photo],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", help="a timm file of ViT-Ti/16")
    parser.add_argument("photo")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # Each process starts in that folder.
        source, photo = (str(Path(name).resolve()) for name in (options.source, options.photo))
        contenders = commands(source, photo, Path(folder))
        seconds: dict[str, list[float]] = {name: [] for name in contenders}
        for round_number in range(options.rounds + 1):
            order = list(contenders)
            random.Random(round_number).shuffle(order)
            for name in order:
                begin = time.perf_counter()
                subprocess.run(contenders[name], check=True, capture_output=True, cwd=folder)
                # The first round fills the caches of the disk.
                if round_number:
                    seconds[name].append(time.perf_counter() - begin)
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    rows = []
    for name, values in seconds.items():
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
        rows.append(f"| {name} | {middle[name]:.2f} | {low:.2f} to {high:.2f} |")
    names = list(contenders)
    shares = ", ".join(
        f"{kind} {statistics.median(a - b for a, b in zip(seconds[ours], seconds[base], strict=True)):.2f} s"
        for kind, ours, base in zip(("torch", "onnxruntime", "OpenVINO"), names[0:6:2], names[1:6:2], strict=True)
    )
    text = "\n".join(
        [
            "# From the command to the answer",
            "",
            f"- machine: {describe_machine(torch.device('cpu'))}",
            f"- versions: {describe_versions(['timm', 'huggingface'])}",
            f"- one photo, ViT-Ti/16; {options.rounds} rounds of fresh processes in shuffled order after one uncounted",
            "",
            "| what is started | seconds | quartiles |",
            "|---|---:|---:|",
            *rows,
            "",
            f"Ours beside importing the backend and reading the weights, paired by round: {shares}.",
        ]
    )
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
