"""Draw the pictures of the README: `make images`."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps
from rich.console import Console

from vitrail.cli import demo, live, training
from vitrail.cli.live_state import Seen
from vitrail.cli.live_view import View
from vitrail.data.check import check, open_splits
from vitrail.data.check.page import page
from vitrail.training.events import Event
from vitrail.training.log import Watcher

HERE = Path(__file__).parent
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    """Record the demo as it looks in a terminal, and the pages of a run and of a check as they look in a browser."""
    images = HERE / "images"
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        record_demo(images / "demo.svg", images / "live.svg")
        take_picture(Path("runs/demo-1/report.html"), images / "report.png", "1000,1180")
    draw_check(images / "check.png")


def record_demo(whole: Path, live_view: Path) -> None:
    """Run `vitrail demo` here and record all of it, and its live view in the middle of the run."""
    terminal, middle = _recorder(), _recorder()

    @contextlib.contextmanager
    def watching(*arguments: Any, **named: Any) -> Iterator[Watcher]:
        seen = Seen(*arguments, **{name: value for name, value in named.items() if name != "history"})
        shown = []

        def hear(event: Event) -> None:
            seen.hear(event)
            if not shown and seen.step >= 0.6 * seen.steps:
                middle.print(View(seen))
                shown.append(event)

        yield hear
        # Once and not as it moves: a picture holds every line that was ever printed.
        terminal.print(View(seen))

    live.watching = watching
    demo.console = training.console = lambda: terminal
    demo._link = lambda path: f"file:///home/you/{path.as_posix()}"
    sys.argv = ["vitrail", "demo"]
    demo.run()
    _save(terminal, whole, "vitrail demo")
    _save(middle, live_view, "vitrail train")


def _recorder() -> Console:
    nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    return Console(
        record=True, width=92, height=50, highlight=False, force_terminal=True, color_system="truecolor", file=nowhere
    )


def _save(recorder: Console, target: Path, title: str) -> None:
    picture = recorder.export_svg(title=title)
    # Rich points at fonts on the network; a picture of ours asks nothing of anybody.
    target.write_text(re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL), encoding="utf-8")


def take_picture(page_file: Path, target: Path, size: str) -> None:
    """What a browser window of some size shows of a page."""
    browser = next((found for name in _BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        print(f"{target} was not drawn: none of {', '.join(_BROWSERS)} is installed.")
        return
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={size}")
    address = page_file.resolve().as_uri()
    subprocess.run([browser, *options, f"--screenshot={target}", address], check=True, capture_output=True)
    Image.open(target).convert("P", palette=Image.Palette.ADAPTIVE).save(target, optimize=True)


def draw_check(target: Path) -> None:
    """Check a folder of invented windows with some faults in it, and take a picture of the page."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "windows"
        plant(folder)
        splits = open_splits(folder)
        file = Path(scratch) / "check.html"
        shown = page(check(splits, workers=0), splits).replace(str(folder), "windows")
        file.write_text(shown, encoding="utf-8")
        take_picture(file, target, "1000,1130")


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
