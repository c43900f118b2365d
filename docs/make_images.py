"""Draw the pictures of the README: `make images`."""

import os
import re
from pathlib import Path

from rich.console import Console

from vitrail.cli import demo

HERE = Path(__file__).parent


def main() -> None:
    """Record `vitrail demo` and save it as it looks in a terminal."""
    recorder = Console(record=True, width=92, highlight=False, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    demo.console = lambda: recorder
    demo.run()
    picture = recorder.export_svg(title="vitrail demo")
    # Rich points at fonts on the network; a picture of ours asks nothing of anybody.
    picture = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)
    (HERE / "images" / "demo.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
