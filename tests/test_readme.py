"""The README is true: its commands and its Python run, and its tree lists every source file."""

import re
import shlex
from pathlib import Path

import pytest

from vitrail.cli import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Blocks of code; one behind a comment that says why is not run."""
    runnable = re.sub(r"<!-- not run: .*? -->\n```.*?```", "", README, flags=re.DOTALL)
    return re.findall(rf"```{language}\n(.*?)```", runnable, flags=re.DOTALL)


@pytest.fixture
def checkout(tmp_path, monkeypatch) -> Path:
    """A folder that looks like the checkout, so that what the README writes does not land in it."""
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_run(checkout, capsys) -> None:
    commands = [line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ vitrail")]
    assert len(commands) >= 6
    for command in commands:
        assert main(shlex.split(command, comments=True)[1:]) == 0, command
        assert capsys.readouterr().out


def test_the_make_targets_exist() -> None:
    targets = re.findall(r"^\$ make ([\w-]+)", README, flags=re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {"demo", "test"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_python_runs(checkout) -> None:
    program = "\n".join(blocks("python"))
    assert "load_model" in program
    names: dict = {}
    exec(compile(program, "README.md", "exec"), names)
    assert names["logits"].shape == (2, 5)
    assert names["tokens"].shape == (2, 129, 48)
    assert names["attention"][0].shape == (2, 4, 129, 129)
    assert (checkout / "my-model.npz").exists()


def test_the_tree_lists_every_source_file() -> None:
    found = re.search(r"^```\nsrc/vitrail/\n(.*?)```", README, flags=re.DOTALL | re.MULTILINE)
    assert found
    listed, folder = set(), ""
    for line in found[1].splitlines():
        name = line.split()[0]
        if line.startswith("    "):
            listed.add(folder + name)
        elif name.endswith("/"):
            folder = name
        else:
            listed.add(name)
    package = ROOT / "src" / "vitrail"
    there = {str(file.relative_to(package)) for file in package.rglob("*.py") if not file.name.startswith("__")}
    assert listed == there
