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
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from vitrail.config import BitConfig, Preprocessing, VitConfig
from vitrail.models import BitResNet, Classifier, VisionTransformer
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
    return _saved(model, folder)


def small_convolutions(folder: Path) -> Path:
    """A ResNet as large as tests need, whose grid has 3 x 3 cells; the last ones reach beyond its 94 pixels."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = BitResNet(BitConfig(blocks=(1, 1, 1, 1), width=32, num_classes=len(LABELS), image_size=(94, 94)))
        torch.nn.init.normal_(model.head.weight, std=0.5)
    return _saved(model, folder)


def _saved(model: Classifier, folder: Path) -> Path:
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


def give(page, image: Path) -> None:
    page.set_input_files("#file", image)
    seen(page)


def seen(page, side: str = "a") -> None:
    page.locator(f"#canvas-{side}[data-pending=false]:not([hidden])").wait_for()


def view(page, name: str) -> None:
    page.click(f"#tab-{name}")
    page.locator(f"#panel[data-view={name}]").wait_for()


def shown(page, side: str = "a") -> np.ndarray:
    """The numbers of the heat map in the window."""
    canvas = page.locator(f"#canvas-{side}[data-values]")
    canvas.wait_for()
    return np.array(json.loads(canvas.get_attribute("data-values")))


def slide(page, name: str, value: int) -> None:
    page.locator(f"#{name}").evaluate(
        "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')); }", value
    )


def at_patch(page, patch: int, grid: tuple[int, int] = (4, 4), side: str = "a") -> tuple[float, float]:
    box = page.locator(f"#canvas-{side}").bounding_box()
    row, column = divmod(patch, grid[1])
    return box["x"] + (column + 0.5) * box["width"] / grid[1], box["y"] + (row + 0.5) * box["height"] / grid[0]


@contextmanager
def opened_page(browser, address: str, image: Path, **options) -> Iterator[SimpleNamespace]:
    """A page with an image, every word of its console, and every address that it asked."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "locale": "en-US", **options})
    page = context.new_page()
    page.set_default_timeout(15_000)
    said: list[str] = []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    page.locator("#tabs [role=tab]").first.wait_for()
    give(page, image)
    yield SimpleNamespace(page=page, said=said, asked=asked)
    context.close()


def barriers(page) -> list[tuple[str, str]]:
    """What axe-core finds serious on the page as it is."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]
