"""The load of `serving.py` on `vitrail serve`, LitServe and BentoML, which serve one ONNX file, each in its turn.

The peers live in an environment of their own; their programs are in `serving_peers/`.
"""

import argparse
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from machine import describe_machine, describe_versions
from serving_client import FORM, form

from serving import (
    HERE,
    Memory,
    Server,
    clients,
    family,
    measure_capacity,
    milliseconds,
    percentile,
    recovery,
    serving,
    tell,
    times_of,
)

_BATCH = 8
_BATCH_WAIT = 0.003
_CONCURRENCY = 32
_LOADS = (0.5, 1.0, 4.0)
_AFTER_FLOOD = 15.0
# What `vitrail serve` lets a request take at most, and what its queue is bounded by: ServeConfig's defaults.
_DEADLINES = (5.0, 1.0)
_LONGEST_START = 60.0
_CLOSE = 1e-4


@dataclass
class Level:
    """What came of one level of load."""

    name: str
    asked: float
    answered: float
    good: dict[float, float]
    """Answers per second within each deadline."""
    times: list[float]
    refused: list[float]
    failed: int


@dataclass
class Measured:
    """One server, from its start to its end."""

    name: str
    greeting: str
    capacity: float = 0.0
    levels: list[Level] = field(default_factory=list)
    recovered: str = ""
    peak: float = 0.0
    memory: float = 0.0


@contextlib.contextmanager
def vitrail(file: Path, options: argparse.Namespace) -> Iterator[Server]:
    """Ours, as people start it."""
    settings = argparse.Namespace(
        model=str(file), serve=["--batch-size", str(_BATCH), "--batch-wait", str(_BATCH_WAIT)]
    )
    with serving(settings) as server:
        yield server


@contextlib.contextmanager
def litserve(file: Path, options: argparse.Namespace) -> Iterator[Server]:
    """LitServe: one worker, its batching, nothing else set."""
    port = _free_port()
    command = [str(HERE / "serving_peers" / "litserve_server.py"), str(file), str(port), str(_BATCH), str(_BATCH_WAIT)]
    with _peer(command, {}, port, "/health", options) as server:
        yield server


@contextlib.contextmanager
def bentoml(file: Path, options: argparse.Namespace, **more: str) -> Iterator[Server]:
    """BentoML: one worker, adaptive batching; it keeps its own files in a folder that goes away."""
    port = _free_port()
    folder = str(HERE / "serving_peers")
    command = ["-m", "bentoml", "serve", "bento_service:Classifier", "--working-dir", folder]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    with tempfile.TemporaryDirectory() as home:
        environment = {"PEER_FILE": str(file), "PEER_BATCH": str(_BATCH), "BENTOML_HOME": home, **more}
        with _peer(command, environment, port, "/readyz", options) as server:
            yield server


def bentoml_bounded(file: Path, options: argparse.Namespace) -> Any:
    """BentoML with the limit that it offers: so many requests at a time, and 503 beyond."""
    return bentoml(file, options, PEER_CONCURRENCY=str(_CONCURRENCY))


CONTENDERS: dict[str, Callable[..., Any]] = {
    "vitrail": vitrail,
    "LitServe": litserve,
    "BentoML": bentoml,
    f"BentoML, max_concurrency {_CONCURRENCY}": bentoml_bounded,
}


@contextlib.contextmanager
def _peer(
    command: list[str], environment: dict[str, str], port: int, ready: str, options: argparse.Namespace
) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.txt"
        everything = {**os.environ, "BENTOML_DO_NOT_TRACK": "True", "NO_COLOR": "1", **environment}
        with log.open("w") as said:
            process = subprocess.Popen(
                [str(options.peers_python), *command], stdout=said, stderr=said, env=everything, cwd=folder, text=True
            )
        server = Server(process, port, log, "", "/predict", "image")
        try:
            _wait_ready(server, ready)
            yield server
        finally:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """A server and what it started; some leave their workers behind."""
    everyone = family(process.pid)
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(15)
    for one in everyone:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    process.wait(5)


def _wait_ready(server: Server, path: str) -> None:
    end = time.monotonic() + _LONGEST_START
    while time.monotonic() < end and server.process.poll() is None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return
        time.sleep(0.1)
    raise SystemExit(f"the server did not start:\n{server.log.read_text()[-3000:]}")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def ask_all(server: Server, options: argparse.Namespace) -> list[list[tuple[int, float]]]:
    """The five likeliest classes of every image, with their probabilities."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    found = []
    for path in sorted(options.images):
        image = path.read_bytes()
        body = form(server.field, image) if server.field else image
        connection.request("POST", server.path, body, {"Content-Type": FORM if server.field else "image/jpeg"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{path.name}: {answer.status} {text[:300]!r}\n{server.log.read_text()[-2000:]}")
        said = json.loads(text)
        # A batch of one is a list of one.
        top = (said[0] if isinstance(said, list) else said)["top"]
        found.append([(entry["index"], entry["probability"]) for entry in top])
    return found


def largest_difference(ours: list[list[tuple[int, float]]], theirs: list[list[tuple[int, float]]], name: str) -> float:
    """Between probabilities of the same classes; servers that answer differently are not compared."""
    largest = 0.0
    for one, other in zip(ours, theirs, strict=True):
        if one[0][0] != other[0][0]:
            raise SystemExit(f"{name} says class {other[0][0]} where vitrail says {one[0][0]}")
        shares = dict(other)
        largest = max(largest, *(abs(share - shares[index]) for index, share in one if index in shares))
    if largest > _CLOSE:
        raise SystemExit(f"{name}: a probability differs by {largest:.1e}; wanted: at most {_CLOSE:g}")
    return largest


def measure(server: Server, found: Measured, shared: float | None, options: argparse.Namespace) -> None:
    """Capacity, then open loops at shares of it and at the rate that all get; the flood comes last."""
    found.capacity = measure_capacity(server, options)
    tell(f"{found.name}: capacity {found.capacity:.1f}/s")
    slow = 1.0
    for load in _LOADS:
        rate = load * found.capacity
        if load == _LOADS[-1] and shared is not None:
            # Before the flood, so that nothing of it is left.
            found.levels.append(_level("same rate", shared, server, found, options)[0])
        level, seen = _level(f"{load:g}x", rate, server, found, options, is_flood=load == _LOADS[-1])
        found.levels.append(level)
        if load == _LOADS[0]:
            slow = 2 * percentile(level.times, 0.95)
    after = [one for one in seen["answers"] if one[0] >= options.seconds]
    found.recovered = recovery(after, options.seconds, slow)
    found.memory = _resident_now(server)


def _level(
    name: str, rate: float, server: Server, found: Measured, options: argparse.Namespace, *, is_flood: bool = False
) -> tuple[Level, dict[str, Any]]:
    rates = [[rate, options.seconds]]
    if is_flood:
        rates.append([_LOADS[0] * found.capacity, _AFTER_FLOOD])
    with Memory(server.process.pid) as memory, clients(server, options, mode="open", rates=rates) as seen:
        pass
    found.peak = max(found.peak, memory.peak)
    during = [one for one in seen["answers"] if one[0] < options.seconds]
    times, refused = times_of(during, 200), times_of(during, 429) + times_of(during, 503)
    level = Level(
        name,
        (len(during) + len(seen["lost"]) + seen["skipped"]) / options.seconds,
        len(times) / options.seconds,
        {deadline: sum(one <= deadline for one in times) / options.seconds for deadline in _DEADLINES},
        times,
        refused,
        len(during) - len(times) - len(refused) + len(seen["lost"]) + seen["skipped"],
    )
    tell(f"{found.name}: {_row(found.name, level)}")
    return level, seen


def _resident_now(server: Server) -> float:
    with Memory(server.process.pid) as memory:
        time.sleep(1.2)
    return memory.samples[-1][1]


def _row(name: str, level: Level) -> str:
    good = " | ".join(f"{level.good[deadline]:.1f}" for deadline in _DEADLINES)
    return (
        f"| {level.name} | {name} | {level.asked:.1f} | {level.answered:.1f} | {good} | "
        f"{milliseconds(level.times, 0.5)} | {milliseconds(level.times, 0.99)} | {len(level.refused):,} | "
        f"{milliseconds(level.refused, 0.99)} | {level.failed:,} |"
    )


def written(head: list[str], all_found: list[Measured], shared: float, options: argparse.Namespace) -> str:
    """Everything that was measured, as Markdown."""
    lines = [
        *head,
        "## Load",
        "",
        f"Requests at random times for {options.seconds:g} s, whatever the answers do: at shares of each server's own "
        f"capacity, and at {shared:.1f} requests/s for all (the capacity of the first). The flood is followed by "
        f"{_AFTER_FLOOD:g} s at {_LOADS[0]:g}x. Within 5 s and within 1 s: answers per second that took no longer. "
        "Refused: 503 or 429. Failed: other answers, none within 30 s, and requests that were not sent because 512 "
        "were open.",
        "",
        "| load | server | asked/s | answered/s | within 5 s | within 1 s | p50 | p99 | refused | p99 of refusals "
        "| failed |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    names = [f"{load:g}x" for load in _LOADS[:-1]] + ["same rate", f"{_LOADS[-1]:g}x"]
    for name in names:
        lines += [_row(one.name, level) for one in all_found for level in one.levels if level.name == name]
    lines += [
        "",
        "| server | capacity/s | memory, most | memory, at the end | after the flood |",
        "|---|---:|---:|---:|---|",
        *(
            f"| {one.name} | {one.capacity:.1f} | {one.peak:,.0f} MB | {one.memory:,.0f} MB | {one.recovered} |"
            for one in all_found
        ),
        "",
        *_ratios(all_found, names),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _ratios(all_found: list[Measured], names: list[str]) -> list[str]:
    """Ours over theirs, of what both were measured with."""
    ours, *others = all_found
    if not others:
        return []

    def row(words: str, value: Callable[[Measured], float]) -> str:
        cells = [f"{value(ours) / value(one):.2f}" if value(one) else "-" for one in others]
        return f"| {words} | {' | '.join(cells)} |"

    lines = [
        f"## {ours.name} / the others",
        "",
        "Above 1 more, below 1 less: of answers more is better, of time and memory less is.",
        "",
        f"| | {' | '.join(one.name for one in others)} |",
        f"|---|{'---:|' * len(others)}",
        row("capacity", lambda one: one.capacity),
        row("memory at the end", lambda one: one.memory),
    ]
    for name in names:
        for deadline in _DEADLINES:
            lines.append(row(f"{name}: answers within {deadline:g} s", partial(_goodput, name=name, deadline=deadline)))
        lines.append(row(f"{name}: p99", partial(_slowest, name=name)))
    return lines


def _goodput(one: Measured, name: str, deadline: float) -> float:
    return _of(one, name).good[deadline]


def _slowest(one: Measured, name: str) -> float:
    return percentile(_of(one, name).times, 0.99)


def _of(one: Measured, name: str) -> Level:
    """A level; the rate that all get is the 1x of the first."""
    return next((level for level in one.levels if level.name == name), one.levels[1])


def exported(options: argparse.Namespace, folder: Path) -> Path:
    """The file that all serve: written once, for batches of any size."""
    if options.model.endswith(".onnx"):
        return Path(options.model).resolve()
    target = folder / "model.onnx"
    command = [sys.executable, "-m", "vitrail", "export", options.model, "--to", "onnx", "--out", str(target)]
    subprocess.run([*command, *options.export], check=True, stdout=subprocess.DEVNULL, timeout=180)
    return target


def peer_versions(options: argparse.Namespace) -> str:
    """Of what the peers' environment has."""
    code = (
        "from importlib.metadata import version; import sys; print('Python', sys.version.split()[0] + ',', "
        "', '.join(f'{n} {version(n)}' for n in ('litserve', 'bentoml', 'onnxruntime', 'pillow', 'numpy', 'uvicorn')))"
    )
    return subprocess.run(
        [str(options.peers_python), "-c", code], check=True, capture_output=True, text=True, timeout=60
    ).stdout.strip()


def main() -> None:
    """Measure, and write Markdown; what was measured is written after every server."""
    options = _options()
    # Told to end, it ends the servers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    size = sum(path.stat().st_size for path in options.images)
    head = [
        "# `vitrail serve` beside LitServe and BentoML",
        "",
        f"- machine: {describe_machine(torch.device('cpu'))}{'; ' + options.note if options.note else ''}",
        f"- versions: {describe_versions([])}",
        f"- of the peers: {peer_versions(options)}",
        f"- {len(options.images)} JPEG files in turn, {size:,} bytes in all; the clients run on the same machine",
        f"- all serve the same ONNX file with onnxruntime's own number of threads, in batches of up to {_BATCH}; "
        f"vitrail and LitServe wait {1000 * _BATCH_WAIT:g} ms for one to fill, BentoML as long as it finds good",
    ]
    all_found: list[Measured] = []
    ours: list[list[tuple[int, float]]] = []
    with tempfile.TemporaryDirectory() as folder:
        file = exported(options, Path(folder))
        for name in options.contenders:
            with CONTENDERS[name](file, options) as server:
                found = Measured(name, server.greeting)
                answers = ask_all(server, options)
                if ours:
                    difference = largest_difference(ours, answers, name)
                    head.append(
                        f"- {name}: the same first class for all {len(answers)} photos, probabilities within "
                        f"{difference:.1e} of {options.contenders[0]}'s"
                    )
                else:
                    ours = answers
                    head.append(f"- {name}: {server.greeting or 'measured first'}")
                shared = all_found[0].capacity if all_found else None
                measure(server, found, shared, options)
            all_found.append(found)
            text = written([*head, ""], all_found, all_found[0].capacity, options)
            if options.output:
                options.output.write_text(text, encoding="utf-8")
    print(text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="What stands behind -- goes to `vitrail export`: -- --classes imagenet"
    )
    parser.add_argument("model", help="what `vitrail export` takes, or an ONNX file that it wrote")
    parser.add_argument("--images", type=Path, required=True, help="a folder of JPEG files")
    parser.add_argument("--peers-python", type=Path, required=True, help="where litserve and bentoml are installed")
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS)[:3])
    parser.add_argument("--seconds", type=float, default=12.0, help="of each load")
    parser.add_argument("--note", default="")
    parser.add_argument("--output", type=Path)
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:cut])
    options.export = words[cut + 1 :]
    options.images = [path for path in options.images.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg")]
    if not options.images:
        parser.error("there is no JPEG file in the folder of --images")
    return options


if __name__ == "__main__":
    main()
