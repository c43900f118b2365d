"""Load on `vitrail serve`: goodput and latency below and above its capacity, restarts and swaps under load, memory.

The server runs as people start it; the clients (`serving_client.py`) are a process of their own on the same machine.
"""

import argparse
import contextlib
import json
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from machine import describe_machine, describe_versions

HERE = Path(__file__).parent
PARTS = ("agreement", "load", "restarts", "soak")
_CLIENTS = 16
_LOADS = (0.5, 1.0, 4.0)
_AFTER_FLOOD = 10.0
_SOAK_LOAD = 0.7
_IN_A_ROW = 5
_LONGEST_PAUSE = 2.0


@dataclass
class Server:
    """A running `vitrail serve`, or another server that answers on this path."""

    process: subprocess.Popen[str]
    port: int
    log: Path
    greeting: str
    path: str = "/v1/predictions"
    field: str | None = None
    """Of the form that images come in; none where a request is the image itself."""

    def wait_logged(self, text: str, times: int) -> None:
        """Wait until the server says that it has done what it was told."""
        end = time.monotonic() + 120
        while self.log.read_text().count(text) < times:
            if time.monotonic() > end or self.process.poll() is not None:
                raise SystemExit(f"{text!r} was not logged:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.05)


@contextlib.contextmanager
def serving(options: argparse.Namespace) -> Iterator[Server]:
    """Start the server, and end it whatever happens."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.txt"
        command = [sys.executable, "-m", "vitrail", "serve", options.model, "--port", "0", *options.serve]
        with log.open("w") as stderr:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        try:
            yield _greeted(process, log)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()


def _greeted(process: subprocess.Popen[str], log: Path) -> Server:
    port, greeting = 0, ""
    assert process.stdout
    for line in process.stdout:
        if line.startswith("serving "):
            greeting = line.strip().removeprefix("serving ")
        if "  page" in line:
            port = int(line.rsplit(":", 1)[1].strip("/\n"))
        if line.startswith("kill -HUP"):
            return Server(process, port, log, greeting)
    raise SystemExit(f"the server did not start:\n{log.read_text()[-2000:]}")


@contextlib.contextmanager
def clients(server: Server, options: argparse.Namespace, **task: Any) -> Iterator[dict[str, Any]]:
    """Let the client process do a task; what it saw is in the dictionary at the end of the block."""
    images = sorted(map(str, options.images))
    task = {"port": server.port, "path": server.path, "field": server.field, "images": images, **task}
    command = [sys.executable, str(HERE / "serving_client.py")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin and process.stdout
    process.stdin.write(json.dumps(task) + "\n")
    process.stdin.flush()
    seen: dict[str, Any] = {}
    try:
        yield seen
        if "seconds" not in task and task["mode"] == "closed":
            process.stdin.write("stop\n")
            process.stdin.flush()
        seen |= json.loads(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(120)


class Memory:
    """The resident memory of the server and all its children, looked at again and again."""

    def __init__(self, pid: int) -> None:
        self._pid, self._is_over = pid, threading.Event()
        self.samples: list[tuple[float, float]] = []
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    @property
    def peak(self) -> float:
        return max(megabytes for _, megabytes in self.samples)

    def slope(self) -> float:
        """Megabytes per second, by least squares over the second half."""
        half = self.samples[len(self.samples) // 2 :]
        slope, _ = statistics.linear_regression([at for at, _ in half], [size for _, size in half])
        return slope

    def _look(self) -> None:
        while not self._is_over.wait(0.5):
            self.samples.append((time.monotonic(), sum(map(_resident, family(self._pid)))))


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            parents.setdefault(parent, []).append(int(folder.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def _resident(pid: int) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1000
    return 0.0


def measure_agreement(server: Server, options: argparse.Namespace) -> list[str]:
    """Whether images that are computed together are answered as alone; how many were together is what is compared."""
    before = _batches(server)
    path = "/v1/predictions?logits=1"
    with clients(server, options, mode="agreement", rounds=5, path=path) as seen:
        pass
    found, after = seen["found"], _batches(server)
    batches = {size: after[size] - before[size] for size in after if after[size] > before[size]}
    sizes = ", ".join(f"{count:,} of {size}" for size, count in batches.items())
    return [
        "## Batched and alone",
        "",
        f"{found['compared']:,} answers to images that were sent together, compared with those to the same images "
        f"alone: the largest difference of a logit is {found['largest']:.1e}. Batches by size, those of "
        f"single images included: {sizes}.",
        "",
    ]


def _batches(server: Server) -> dict[str, int]:
    """How many batches of each range of sizes the server has computed."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    up_to = [
        (float(size), int(float(count))) for size, count in re.findall(r'batch_size_bucket{le="(.*?)"} (.*)', text)
    ]
    found, below, counted = {}, 0, 0
    for size, count in up_to:
        name = (
            f"more than {below}"
            if size == float("inf")
            else f"{below + 1} to {size:.0f}"
            if size > below + 1
            else f"{size:.0f}"
        )
        found[name] = count - counted
        below, counted = (below if size == float("inf") else int(size)), count
    return found


def measure_load(server: Server, options: argparse.Namespace) -> list[str]:
    """Open loops at shares of the capacity, and what comes after the worst of them."""
    capacity = measure_capacity(server, options)
    lines = [
        "## Load",
        "",
        f"Capacity, clients that ask one thing after the other: {capacity:.1f} answers/s. Then arrivals at "
        f"random times, for {options.seconds:g} s each, whatever the answers do:",
        "",
        "| load | asked/s | goodput/s | p50 | p95 | p99 | refused | p99 of refusals | lost | memory |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    goodputs, slow = {}, 1.0
    for load in _LOADS:
        rates = [[load * capacity, options.seconds]]
        is_flood = load == _LOADS[-1]
        if is_flood:
            rates.append([_LOADS[0] * capacity, _AFTER_FLOOD])
        with Memory(server.process.pid) as memory, clients(server, options, mode="open", rates=rates) as seen:
            pass
        during = [one for one in seen["answers"] if one[0] < options.seconds]
        good, refused = times_of(during, 200), times_of(during, 503)
        others = len(during) - len(good) - len(refused)
        goodputs[load] = len(good) / options.seconds
        if load == _LOADS[0]:
            slow = 2 * percentile(good, 0.95)
        asked = len(during) + len(seen["lost"]) + seen["skipped"]
        lines.append(
            f"| {load:g}x | {asked / options.seconds:.1f} | {goodputs[load]:.1f} | {milliseconds(good, 0.5)} | "
            f"{milliseconds(good, 0.95)} | {milliseconds(good, 0.99)} | {len(refused):,} | "
            f"{milliseconds(refused, 0.99)} | {len(seen['lost']) + others} | {memory.peak:,.0f} MB |"
        )
        tell(lines[-1])
        if is_flood:
            after = [one for one in seen["answers"] if one[0] >= options.seconds]
            lines += [
                "",
                f"Goodput at {load:g}x is {goodputs[load] / goodputs[1.0]:.0%} of that at 1x. After the flood, at "
                f"{_LOADS[0]:g}x, {recovery(after, options.seconds, slow)}.",
                "",
            ]
    return lines


def recovery(after: list[list[Any]], end: float, slow: float) -> str:
    """When the server was as it had been: the first of some answers in a row that are there and not slow."""
    in_order = sorted(after)
    for first in range(len(in_order) - _IN_A_ROW + 1):
        row = in_order[first : first + _IN_A_ROW]
        if all(status == 200 and took <= slow for _, took, status in row):
            when = in_order[first][0] - end
            return f"requests were answered within {slow * 1000:.0f} ms again from {when:.2f} s after its end on"
    return f"no {_IN_A_ROW} answers in a row came within {slow * 1000:.0f} ms"


def measure_capacity(server: Server, options: argparse.Namespace) -> float:
    """Answers per second to clients that are never idle: so many of them as get the most."""
    found = []
    for count in (_CLIENTS // 2, _CLIENTS, 2 * _CLIENTS):
        seconds = min(10.0, options.seconds)
        with clients(server, options, mode="closed", clients=count, keeping=count, seconds=seconds) as seen:
            pass
        found.append(len(times_of(seen["answers"], 200)) / seen["seconds"])
    return max(found)


def measure_restarts(server: Server, options: argparse.Namespace) -> list[str]:
    """Restarts and swaps of the model under clients that keep their connections and clients that do not."""
    # Together they ask half of what can be answered; while a second model is read, that is much.
    pause = min(_LONGEST_PAUSE, 2 * _CLIENTS / (0.5 * measure_capacity(server, options)))
    with clients(server, options, mode="closed", clients=2 * _CLIENTS, keeping=_CLIENTS, pause=pause) as seen:
        time.sleep(2)
        for number in range(options.restarts):
            server.process.send_signal(signal.SIGHUP)
            server.wait_logged("has taken over", number + 1)
            tell(f"restart {number + 1} of {options.restarts}")
        for number in range(options.swaps):
            server.process.send_signal(signal.SIGUSR1)
            server.wait_logged("the model was read again", number + 1)
            tell(f"swap {number + 1} of {options.swaps}")
        time.sleep(5)
    good, refused = times_of(seen["answers"], 200), times_of(seen["answers"], 503)
    lost = len(seen["answers"]) - len(good) - len(refused) + len(seen["lost"])
    lines = [
        "## Restarts and swaps under load",
        "",
        f"{options.restarts} restarts and {options.swaps} model swaps, one after the other, in "
        f"{seen['seconds']:.0f} s, under {_CLIENTS} clients that keep their connection and {_CLIENTS} that close it: "
        f"{len(good):,} answered, {len(refused):,} told to come again, **{lost} lost**. The slowest answer took "
        f"{max(good, default=0.0):.2f} s.",
        "",
    ]
    return lines + [f"- {one}" for one in seen["lost"][:10]]


def measure_soak(server: Server, options: argparse.Namespace) -> list[str]:
    """Memory over a long time of ordinary load."""
    rate = _SOAK_LOAD * measure_capacity(server, options)
    rates = [[rate, options.soak_seconds]]
    with Memory(server.process.pid) as memory, clients(server, options, mode="open", rates=rates) as seen:
        pass
    per_second = len(seen["answers"]) / seen["seconds"]
    slope = memory.slope() / per_second * 10_000
    return [
        "## Memory over time",
        "",
        f"{len(seen['answers']):,} requests in {seen['seconds'] / 60:.1f} minutes at {_SOAK_LOAD:g}x, "
        f"{len(seen['lost'])} lost. All processes together: {memory.samples[0][1]:,.0f} MB at the start, "
        f"{memory.peak:,.0f} MB at most, {memory.samples[-1][1]:,.0f} MB at the end; "
        f"over the second half they grew by {slope:+.2f} MB per 10,000 requests.",
        "",
    ]


MEASURES = {
    "agreement": measure_agreement,
    "load": measure_load,
    "restarts": measure_restarts,
    "soak": measure_soak,
}


def times_of(answers: list[list[Any]], status: int) -> list[float]:
    """How long the answers of this status took."""
    return [took for _, took, found in answers if found == status]


def percentile(values: list[float], share: float) -> float:
    """The value that so large a share is below; 0 of none."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def milliseconds(values: list[float], share: float) -> str:
    """A percentile of seconds as people read it."""
    return f"{percentile(values, share) * 1000:,.0f} ms" if values else "-"


def tell(line: str) -> None:
    """Say how far it is."""
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Measure, and write Markdown; what was measured is written after every part."""
    options = _options()
    with serving(options) as server:
        size = sum(path.stat().st_size for path in options.images)
        lines = [
            "# `vitrail serve` under load",
            "",
            f"- machine: {describe_machine(torch.device('cpu'))}{'; ' + options.note if options.note else ''}",
            f"- versions: {describe_versions([])}",
            f"- {server.greeting}",
            f"- {len(options.images)} JPEG files in turn, {size:,} bytes in all; the clients run on the same machine",
            *([f"- options of the server: {' '.join(options.serve)}"] if options.serve else []),
            "",
        ]
        for part in options.parts:
            lines += MEASURES[part](server, options)
            if options.output:
                options.output.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    print("\n".join(lines).rstrip())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="What stands behind -- goes to `vitrail serve`: -- --classes imagenet"
    )
    parser.add_argument("model")
    parser.add_argument("--images", type=Path, required=True, help="a folder of JPEG files")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seconds", type=float, default=60.0, help="of each load")
    parser.add_argument("--soak-seconds", type=float, default=1200.0)
    parser.add_argument("--restarts", type=int, default=20)
    parser.add_argument("--swaps", type=int, default=5)
    parser.add_argument("--note", default="")
    parser.add_argument("--output", type=Path)
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:cut])
    options.serve = words[cut + 1 :]
    options.images = [path for path in options.images.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg")]
    if not options.images:
        parser.error("there is no JPEG file in the folder of --images")
    return options


if __name__ == "__main__":
    main()
