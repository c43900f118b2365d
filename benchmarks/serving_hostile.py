"""Hostile clients of `vitrail serve`: how those who mean well fare beside them.

Crowds hold as many connections as the server has and do nothing with them, or next to nothing, and come back whenever
one is ended. Bombs are files of some hundred bytes that stand for 47.6 million pixels.
"""

import argparse
import asyncio
import collections
import contextlib
import io
import time
from pathlib import Path

from PIL import Image

from serving import Memory, Server, clients, milliseconds, percentile, serving, tell, times_of

CROWDS = ("idle", "silent", "heads", "bodies")
_CROWD = 1000
_BOMBERS = 40
_SIDE = 6900
_HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
_BEGUN = {
    "idle": _HEALTH,
    "silent": b"",
    "heads": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    "bodies": b"POST /v1/predictions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n",
}


def bombs() -> list[bytes]:
    """Files that are small and stand for many pixels, one with transparency."""
    made = []
    for mode, kind in (("RGB", "WEBP"), ("RGBA", "WEBP"), ("RGBA", "PNG")):
        file = io.BytesIO()
        Image.new(mode, (_SIDE, _SIDE)).save(file, kind, **({"lossless": True} if kind == "WEBP" else {}))
        made.append(file.getvalue())
    return made


async def hold(port: int, kind: str, is_over: asyncio.Event) -> None:
    """One of a crowd: does next to nothing until it is ended, and comes back."""
    while not is_over.is_set():
        with contextlib.suppress(OSError, EOFError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(_BEGUN[kind])
            while not is_over.is_set() and not reader.at_eof():
                if kind in ("heads", "bodies"):
                    writer.write(b"x")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        if not await reader.read(4096):
                            break
            writer.close()
        await asyncio.sleep(0.1)


async def until_answered(port: int, request: bytes, limit: float) -> float:
    """Seconds until a newcomer is answered, who asks again every 0.1 s on a new connection; `limit` where never."""
    begin = time.perf_counter()
    while (took := time.perf_counter() - begin) < limit:
        with contextlib.suppress(OSError, EOFError, TimeoutError):
            async with asyncio.timeout(limit - took):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request)
                status = (await reader.readuntil(b"\r\n")).split()[1]
                writer.close()
                if status == b"200":
                    return time.perf_counter() - begin
        await asyncio.sleep(0.1)
    return limit


async def beside_a_crowd(server: Server, kind: str, image: bytes, seconds: float) -> str:
    """A row of the table: how long newcomers wait while a crowd is there."""
    is_over = asyncio.Event()
    crowd = [asyncio.ensure_future(hold(server.port, kind, is_over)) for _ in range(_CROWD)]
    await asyncio.sleep(3)
    predict = (
        f"POST /v1/predictions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(image)}\r\n\r\n".encode() + image
    )
    waited: dict[str, list[float]] = {"health": [], "predictions": []}
    end = time.perf_counter() + seconds
    while (left := end - time.perf_counter()) > 0:
        for name, request in (("health", _HEALTH), ("predictions", predict)):
            waited[name].append(await until_answered(server.port, request, left))
        await asyncio.sleep(0.2)
    is_over.set()
    await asyncio.gather(*crowd)
    cells = [
        f"{len([one for one in times if one < seconds / 2])} | {milliseconds(times, 0.5)} | {max(times):.2f} s"
        for times in waited.values()
    ]
    return f"| {_CROWD:,} {kind} | {' | '.join(cells)} |"


async def bomb(port: int, body: bytes, pause: float, is_over: asyncio.Event, seen: collections.Counter[str]) -> None:
    """One caller who sends one bomb after the other."""
    head = f"POST /v1/predictions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    while not is_over.is_set():
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            while not is_over.is_set():
                writer.write(head + body)
                async with asyncio.timeout(30):
                    lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
                    headers = dict(line.split(": ", 1) for line in lines[1:] if line)
                    await reader.readexactly(int(headers["content-length"]))
                seen[lines[0].split()[1]] += 1
                await asyncio.sleep(pause)
            writer.close()
        except (OSError, EOFError, TimeoutError):
            seen["lost"] += 1
            await asyncio.sleep(0.1)


async def beside_bombs(server: Server, options: argparse.Namespace, callers: int) -> str:
    """A row of the table: small images at a steady rate beside callers who send bombs."""
    is_over, seen, made = asyncio.Event(), collections.Counter(), bombs()
    throwing = [
        asyncio.ensure_future(bomb(server.port, made[number % len(made)], options.pause, is_over, seen))
        for number in range(callers)
    ]

    def ask() -> dict:
        rates = [[options.rate, options.seconds]]
        with Memory(server.process.pid) as memory, clients(server, options, mode="open", rates=rates) as found:
            pass
        return {**found, "peak": memory.peak}

    found = await asyncio.to_thread(ask)
    is_over.set()
    await asyncio.gather(*throwing)
    good, refused = times_of(found["answers"], 200), times_of(found["answers"], 503)
    lost = len(found["answers"]) - len(good) - len(refused) + len(found["lost"])
    told = ", ".join(f"{count:,} of {status}" for status, count in sorted(seen.items())) or "-"
    return (
        f"| {callers} | {options.rate:g} | {len(good) / options.seconds:.1f} | {milliseconds(good, 0.5)} | "
        f"{milliseconds(good, 0.99)} | {percentile(good, 1.0):.2f} s | {len(refused)} | {lost} | "
        f"{found['peak']:,.0f} MB | {told} |"
    )


def main() -> None:
    """Measure, and write Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--images", type=Path, required=True, help="a folder of small JPEG files")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each row")
    parser.add_argument("--rate", type=float, default=5.0, help="of small images per second beside bombs")
    parser.add_argument("--pause", type=float, default=1.0, help="of a bomber after an answer; 1 heeds Retry-After")
    parser.add_argument("--parts", nargs="+", choices=("crowds", "bombs"), default=["crowds", "bombs"])
    parser.add_argument("--serve", nargs=argparse.REMAINDER, default=[], help="options of `vitrail serve`, at the end")
    options = parser.parse_args()
    options.images = sorted(path for path in options.images.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    lines = ["# `vitrail serve` beside hostile clients", ""]
    with serving(options) as server:
        if "crowds" in options.parts:
            lines += [
                "| crowd | health checks answered | p50 | longest | predictions answered | p50 | longest |",
                "|---|---:|---:|---:|---:|---:|---:|",
            ]
            image = options.images[0].read_bytes()
            for kind in CROWDS:
                lines.append(asyncio.run(beside_a_crowd(server, kind, image, options.seconds)))
                tell(lines[-1])
                time.sleep(2)
            lines.append("")
        if "bombs" in options.parts:
            lines += [
                "| bombers | asked/s | goodput/s | p50 | p99 | longest | refused | lost | memory | bombs answered |",
                "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|",
            ]
            for callers in (0, _BOMBERS, 0):
                lines.append(asyncio.run(beside_bombs(server, options, callers)))
                tell(lines[-1])
    print("\n".join(lines))


if __name__ == "__main__":
    main()
