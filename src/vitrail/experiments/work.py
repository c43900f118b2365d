"""One of several processes of an experiment: `python -m vitrail.experiments.work ASK`, started by a call from Python.

All of them read the same bytes of what was asked. The first writes what happens beside it, a line each, and whoever
fails why; the process of the call reads both.
"""

import json
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NoReturn, TextIO

from vitrail.errors import Notice, VitrailError
from vitrail.experiments.ask import from_ask_json
from vitrail.training.events import OnEvent, Told, to_record

EVENTS, ANSWER, FAILURE = "events.jsonl", "answer.json", "failure-{rank}.json"


def main(place: Path, processes: int | None = None, parent: int | None = None) -> int:
    """Carry out what `place/ask.json` says; with a number, start so many processes that do, for a `parent`."""
    from vitrail.runtime.watch import end_with_parent

    end_with_parent(parent)
    try:
        if processes is not None:
            from vitrail.runtime.launch import launch

            launch("vitrail.experiments.work", [str(place)], processes)
            return 0
        return _carry_out(place)
    except VitrailError as error:
        return error.exit_code


def _carry_out(place: Path) -> int:
    from vitrail.experiments.audience import Audience
    from vitrail.experiments.perform import perform
    from vitrail.runtime.processes import Elsewhere

    rank = int(os.environ.get("RANK", 0))
    ask = from_ask_json(json.loads((place / "ask.json").read_text(encoding="utf-8")))
    with (place / EVENTS if rank == 0 else Path(os.devnull)).open("a", encoding="utf-8") as lines:
        try:
            with redirect_stdout(sys.stderr), _noticing(lines):
                folder, _ = perform(ask, Audience(), _writer(lines) if rank == 0 else None)
        except Elsewhere:
            raise
        except BaseException as error:
            told = failure_json(error) if isinstance(error, VitrailError) else {"traceback": traceback.format_exc()}
            if not isinstance(error, KeyboardInterrupt):
                (place / FAILURE.format(rank=rank)).write_text(json.dumps(told), encoding="utf-8")
            raise
    if rank == 0:
        (place / ANSWER).write_text(json.dumps({"folder": str(folder.path)}), encoding="utf-8")
    return 0


def _writer(lines: TextIO) -> OnEvent:
    def write(event: Told) -> None:
        _line(lines, {"event": to_record(event)})

    return write


@contextmanager
def _noticing(lines: TextIO) -> Iterator[None]:
    """Notices are told like events; other warnings go where they went."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", Notice)
        show = warnings.showwarning

        def tell(message: Any, *rest: Any, **more: Any) -> None:
            if isinstance(message, Notice):
                _line(lines, {"notice": message.marked})
            else:
                show(message, *rest, **more)

        warnings.showwarning = tell
        yield


def _line(lines: TextIO, value: dict[str, Any]) -> None:
    lines.write(json.dumps(value) + "\n")
    lines.flush()


def failure_json(error: VitrailError) -> dict[str, Any]:
    """An error as another process can raise it again."""
    parts = {name: getattr(error, name) for name in ("came", "wanted", "where", "fix", "exit_code")}
    folder = getattr(error, "folder", None)
    return {"kind": type(error).__name__, **parts, "folder": None if folder is None else str(folder)}


def failure_of(values: dict[str, Any]) -> VitrailError:
    """The error again, of its own kind where there is one."""
    kinds = {kind.__name__: kind for kind in _kinds(VitrailError)}
    kind = kinds.get(values["kind"], VitrailError)
    error = kind.__new__(kind)
    VitrailError.__init__(error, values["came"], wanted=values["wanted"], where=values["where"], fix=values["fix"])
    error.exit_code, error.folder = values["exit_code"], values["folder"]
    return error


def _kinds(kind: type[VitrailError]) -> list[type[VitrailError]]:
    return [kind, *(found for one in kind.__subclasses__() for found in _kinds(one))]


def _ended(code: int) -> NoReturn:
    """End, without a wait that was given up: gloo goes on with it in a thread."""
    processes = sys.modules.get("vitrail.runtime.processes")
    if processes is not None and processes.is_left_waiting():
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    where, *number = sys.argv[1:]
    _ended(main(Path(where), *map(int, number)))
