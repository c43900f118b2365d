"""Draw the pictures of the README: `make images`."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps
from rich.console import Console

from vitrail.cli import demo
from vitrail.data.check import check, open_splits
from vitrail.data.check.page import page

HERE = Path(__file__).parent
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    """Record the demo as it looks in a terminal, and the page of a check as it looks in a browser."""
    draw_demo(HERE / "images" / "demo.svg")
    draw_check(HERE / "images" / "check.png")


def draw_demo(target: Path) -> None:
    """Record `vitrail demo`."""
    recorder = Console(record=True, width=92, highlight=False, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    demo.console = lambda: recorder
    demo.run()
    picture = recorder.export_svg(title="vitrail demo")
    # Rich points at fonts on the network; a picture of ours asks nothing of anybody.
    target.write_text(re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL), encoding="utf-8")


def draw_check(target: Path) -> None:
    """Check a folder of invented windows with some faults in it, and take a picture of the page."""
    browser = next((found for name in _BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        print(f"{target} was not drawn: none of {', '.join(_BROWSERS)} is installed.")
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "windows"
        plant(folder)
        splits = open_splits(folder)
        file = Path(scratch) / "check.html"
        shown = page(check(splits, workers=0), splits).replace(str(folder), "windows")
        file.write_text(shown, encoding="utf-8")
        options = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1000,1130")
        subprocess.run([browser, *options, f"--screenshot={target}", file.as_uri()], check=True, capture_output=True)
    Image.open(target).convert("P", palette=Image.Palette.ADAPTIVE).save(target, optimize=True)


def plant(folder: Path) -> None:
    """Sixty stained-glass windows in two classes and two splits, with a copy, a mirrored copy and bad files."""
    generator = np.random.default_rng(16)
    for number in range(60):
        kind, split = ("lancet", "rose")[number % 2], "val" if number % 5 == 4 else "train"
        home = folder / split / kind
        home.mkdir(parents=True, exist_ok=True)
        window(generator, kind).save(home / f"{kind}-{number:02}.jpg", quality=92)
    train = folder / "train"
    shutil.copy(train / "rose" / "rose-01.jpg", folder / "val" / "rose" / "rose-99.jpg")
    shutil.copy(train / "lancet" / "lancet-06.jpg", train / "rose" / "rose-98.jpg")
    mirrored = ImageOps.mirror(Image.open(train / "lancet" / "lancet-02.jpg"))
    mirrored.save(folder / "val" / "lancet" / "lancet-97.jpg", quality=70)
    (train / "rose" / "rose-96.jpg").write_bytes((train / "rose" / "rose-03.jpg").read_bytes()[:3000])
    (train / "lancet" / "lancet-95.jpg").write_text("<!doctype html><title>404</title>")


def window(generator: np.random.Generator, kind: str) -> Image.Image:
    """A window of coloured panes: each pixel has the colour of the nearest point, and lead runs between them."""
    height, width = (240, 160) if kind == "lancet" else (200, 200)
    points = generator.uniform((0, 0), (height, width), (36, 2))
    palette = np.array([(33, 70, 139), (176, 36, 32), (236, 178, 58), (43, 122, 75), (120, 60, 130), (95, 170, 205)])
    colours = palette[generator.integers(0, len(palette), 36)] + generator.integers(-18, 19, (36, 3))
    y, x = np.mgrid[:height, :width]
    distance = np.hypot(y[..., None] - points[:, 0], x[..., None] - points[:, 1])
    nearest = np.sort(distance, axis=-1)
    pixels = colours[distance.argmin(-1)].astype(np.float64)
    pixels *= (0.8 + 0.3 * (1 - y / height))[..., None]
    pixels[nearest[..., 1] - nearest[..., 0] < 4] = 25
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


if __name__ == "__main__":
    main()
