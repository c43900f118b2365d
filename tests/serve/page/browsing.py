"""A model, a server for it and a browser, as the tests of the page use them."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from vitrail.config import Preprocessing, VitConfig
from vitrail.models import VisionTransformer
from vitrail.weights import save_model

CHROMIUM = shutil.which("chromium")
WITHOUT_CHROMIUM = "the page is tested in Chromium (Debian: apt install chromium), which is not here"
# What a class may be called: each must be shown as it is written.
LABELS = (
    "<script>document.title='owned'</script>",
    'it\'s "quoted" & <b>bold</b>',
    "🦊 여우",
    "고양이",
    "plain",
    "a/b\\c",
)


def small_network(folder: Path, *, seed: int = 0, **changes: object) -> Path:
    """A network as large as tests need, with weights that make its answers and its attention differ from flat."""
    sizes = {"width": 24, "depth": 3, "num_heads": 2, "mlp_width": 32, "patch_size": 8, "image_size": 32}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = VisionTransformer(VitConfig(**{"num_classes": len(LABELS), **sizes, **changes}))  # type: ignore[arg-type]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.25)
    model.labels = LABELS[: model.config.num_classes]
    channels = model.config.channels
    model.preprocessing = Preprocessing(mean=(0.5,) * channels, std=(0.5,) * channels, interpolation="bilinear")
    save_model(model, folder)
    return folder


def picture(path: Path, seed: int = 1, size: tuple[int, int] = (48, 40)) -> Path:
    """A photo of nothing, in colours."""
    small = np.random.default_rng(seed).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    Image.fromarray(small).resize(size, Image.Resampling.BICUBIC).save(path)
    return path


@contextmanager
def served(source: Path, *options: str, port: int = 0) -> Iterator[tuple[str, subprocess.Popen]]:
    """The address of `vitrail serve`, once it answers; the processes end with the block."""
    command = [sys.executable, "-m", "vitrail", "serve", str(source), "--port", str(port), "--backend", "torch"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if found := re.search(r"http://[\d.]+:\d+", line):
                break
        else:
            raise AssertionError(f"the server ended: {said}")
        wait_ready(found[0])
        yield found[0], process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_ready(address: str, seconds: float = 60) -> None:
    """Until the server says that its model answers."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"{address}/readyz", timeout=5) as answer:
                if json.load(answer)["ready"]:
                    return
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError("the server did not get ready")
