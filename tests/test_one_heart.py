"""What decides a run stands in one typed place: below the command line there are no words, and in it no decisions."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import vitrail

HOME = Path(vitrail.__file__).parent
CLI = HOME / "cli"
# Processes that are started with an argument of their own, and the reader of folders that kept words.
ENTRIES = {"serving/engine/worker.py", "serving/http/server.py", "experiments/work.py"}
OLD = {"experiments/old_vtab.py"}


def modules(*, below: bool) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(HOME.rglob("*.py")):
        if path.is_relative_to(CLI) != below and path.name != "__main__.py":
            yield str(path.relative_to(HOME)), ast.parse(path.read_text(encoding="utf-8"))


def names_in(tree: ast.Module) -> set[str]:
    """Everything that is called something: names, attributes, arguments, fields, keywords and imports."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)) | ast.Attribute(attr=name):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.ImportFrom(names=aliases) | ast.Import(names=aliases):
                found |= {alias.asname or alias.name for alias in aliases}
            case _:
                pass
    return found


def test_the_tree_is_walked() -> None:
    assert len(list(modules(below=True))) > 200 and len(list(modules(below=False))) > 30


def test_nothing_below_the_command_line_reads_what_was_typed() -> None:
    reads = {name for name, tree in modules(below=True) if "argv" in names_in(tree)}
    assert reads <= ENTRIES, reads - ENTRIES


def test_nothing_below_the_command_line_takes_or_stores_words() -> None:
    """`words` are prose in pages and random bits elsewhere; what experiments take and store are values."""
    rooms = ("experiments/", "training/", "recipes/", "config/", "evaluation/", "prediction/")
    holders: set[str] = set()
    for name, tree in modules(below=True):
        if not name.startswith(rooms) or name in OLD:
            continue
        for node in ast.walk(tree):
            arguments = (
                [one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)]
                if isinstance(node, ast.FunctionDef | ast.Lambda)
                else []
            )
            fields = [
                one.target.id
                for one in (node.body if isinstance(node, ast.ClassDef) else [])
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            ]
            if {"words", "argv"} & {*arguments, *fields}:
                holders.add(f"{name}:{node.lineno}")
    assert not holders, holders


@pytest.mark.parametrize("word", ["is_given", "typed_value", "return_unknown_args", "RunConfig"])
def test_the_command_line_decides_nothing(word: str) -> None:
    """It may look at the config of a run that is there, but builds none."""
    users = {}
    for name, tree in modules(below=False):
        if word == "RunConfig":
            built = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == word]
            users[name] = bool(built)
        else:
            users[name] = word in names_in(tree)
    assert not [name for name, is_user in users.items() if is_user]


def test_no_message_below_the_command_line_spells_an_option() -> None:
    """Errors and notices name settings; the edge writes them as options or as keywords."""
    option = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
    spelled = set()
    for name, tree in modules(below=True):
        for node in ast.walk(tree):
            is_message = isinstance(node, ast.Call) and re.search(
                r"(Error|^notice|Stopped|Diverged)$", ast.unparse(node.func)
            )
            if not is_message:
                continue
            texts = [
                one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)
            ]
            # Of other programs: torchrun, docker, curl.
            texts = [text for text in texts if not re.search(r"torchrun|docker|--nproc|--shm|curl", text)]
            if any(option.search(text) for text in texts):
                spelled.add(f"{name}:{node.lineno}")
    assert not spelled, spelled
