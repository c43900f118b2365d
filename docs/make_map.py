"""Write docs/map.md: every source file with the first sentence of its docstring."""

import ast
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "vitrail"
# Rooms from the top of the house down: each imports only from those below it.
ROOMS = (
    "cli",
    "serving",
    "experiments",
    "reports",
    "training",
    "prediction",
    "exporting",
    "evaluation",
    "inspection",
    "weights",
    "models",
    "data",
    "runtime",
    "recipes",
    "zoo",
    "config",
)
_HEAD = """\
# Where things are

Every source file and what it is for, in its own words. A room imports only from the rooms below it; `models` and `data`
do not know each other. `make map` writes this page from the docstrings.
"""


def render() -> str:
    """The page as text."""
    lines = [_HEAD]
    for room in ROOMS:
        lines += _folder(PACKAGE / room, depth=2)
    lines += ["## The top", "", *(_line(PACKAGE / name) for name in ("__init__.py", "__main__.py", "errors.py")), ""]
    return "\n".join(lines)


def _folder(folder: Path, depth: int) -> list[str]:
    files = [file for file in sorted(folder.glob("*.py")) if file.name != "__init__.py"]
    title = f"{'#' * depth} {folder.relative_to(PACKAGE).as_posix()}/"
    lines = [title, "", _sentence(folder / "__init__.py"), "", *(_line(file) for file in files), ""]
    for inner in sorted(path.parent for path in folder.glob("*/__init__.py")):
        lines += _folder(inner, depth + 1)
    return lines


def _line(file: Path) -> str:
    return textwrap.fill(f"- `{file.name}`: {_sentence(file)}", 120, subsequent_indent="  ", break_long_words=False)


def _sentence(file: Path) -> str:
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


if __name__ == "__main__":
    (ROOT / "docs" / "map.md").write_text(render(), encoding="utf-8")
