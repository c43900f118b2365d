"""What a folder of ours is, by the format that it names: what goes on with it, and which data it was made from."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vitrail.data.outside import ensure_outside_named
from vitrail.data.sources.files import user_path
from vitrail.errors import command
from vitrail.training.folder import processes_again, verb_of


def ensure_outside_known(folder: Path, target: Path) -> None:
    """Refuse to write where that data lies."""
    for data, root in dict.fromkeys(known_data(folder)):
        ensure_outside_named(data, root, target)


def known_data(folder: Path) -> Iterator[tuple[str, str | None]]:
    """Each data set by its name and, where one was said, the folder of its files; nothing for what is no such folder.

    Folders that are damaged are told elsewhere.
    """
    values = _record(folder)
    match kind_of(folder):
        case "vitrail-run":
            yield from _of_run(values.get("config"))
        case "vitrail-finetune":
            yield from _of_plan(values.get("plan"))
        case "vitrail-selftrain":
            plan = values.get("plan")
            yield from _of_plan(plan)
            images = _texts(plan.get("unlabelled") if isinstance(plan, dict) else None)
            if "data" in images:
                yield images["data"], images.get("root")
        case "vitrail-transfer":
            for pair in _items(values.get("pairs")):
                yield from _of_plan(pair.get("plan"))
        case "vitrail-vtab":
            tasks = values.get("tasks")
            root = _texts(values).get("root")
            yield from ((f"vtab:{task}", root) for task in (tasks if isinstance(tasks, list) else []))
        case "vitrail":
            if data := _texts(values.get("provenance")).get("data"):
                yield data, None


def started_from(folder: Path) -> Iterator[Path]:
    """What the network in a folder started from, what that one started from, and so on, as far as they are there."""
    seen = {folder}
    while (start := _start(folder)) is not None and (folder := user_path(start)) not in seen:
        seen.add(folder)
        yield folder


def _start(folder: Path) -> str | None:
    values = _record(folder)
    plan = values.get("plan")
    holders = (values.get("config"), plan.get("config") if isinstance(plan, dict) else None, values.get("provenance"))
    return next((start for holder in holders if (start := _texts(holder).get("start"))), None)


def format_of(folder: Path) -> str:
    """The format that a folder says it has, such as vitrail-run/1; empty for what says none."""
    return _texts(_record(folder)).get("format", "")


def kind_of(folder: Path) -> str:
    """The same without its version: vitrail-run."""
    return format_of(folder).partition("/")[0]


def resume_command(folder: Path) -> str:
    """The command that goes on with what is in a folder."""
    return command(verb_of(kind_of(folder)), resume=str(folder), **processes_again())


def _record(folder: Path) -> dict[str, Any]:
    try:
        values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _of_plan(plan: Any) -> Iterator[tuple[str, str | None]]:
    if isinstance(plan, dict):
        yield from _of_run(plan.get("config"))


def _of_run(config: Any) -> Iterator[tuple[str, str | None]]:
    data = _texts(config.get("data") if isinstance(config, dict) else None)
    for name, root in (("data", "root"), ("few_shot", "few_shot_root")):
        if name in data:
            yield data[name], data.get(root)


def _texts(values: Any) -> dict[str, str]:
    """What is text in an object."""
    return {name: one for name, one in values.items() if isinstance(one, str)} if isinstance(values, dict) else {}


def _items(values: Any) -> list[dict[str, Any]]:
    return [one for one in values if isinstance(one, dict)] if isinstance(values, list) else []
