"""Broken image bytes into the path of an upload: each must become pixels or one sentence, whatever they are.

Every batch is decoded in a process of its own, so that a crash of a decoder is seen and counted.
"""

import argparse
import collections
import io
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine import describe_versions
from PIL import Image

_BATCH = 400
_SIZE = (96, 64)
_SLOW = 2.0
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
_WORKER = """
import sys, time
from vitrail.config import DecodePolicy, preset
from vitrail.data.decoding.decode import decode
from vitrail.data.transforms.fit_image import fit_image, normalised
from vitrail.errors import DataError
policy, how = DecodePolicy(max_pixels=50_000_000), preset("augreg")
for name in sys.argv[1:]:
    begin = time.perf_counter()
    try:
        seen = fit_image(decode(open(name, "rb").read(), "RGB", where="the image", policy=policy).image, (32, 32), how)
        told = "pixels" if normalised(seen, how).shape == (3, 32, 32) else "wrong shape"
    except DataError as error:
        told = "refused" if str(error).isprintable() else "unprintable"
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
    print(name, round(time.perf_counter() - begin, 3), told, sep="\\t", flush=True)
"""


def seeds() -> list[bytes]:
    """One small picture in every format that is read, plain and with what formats can carry."""
    generator = random.Random(0)
    picture = Image.frombytes("RGB", _SIZE, generator.randbytes(3 * _SIZE[0] * _SIZE[1]))
    found = []
    for kind in _FORMATS:
        for mode in ("RGB", "L", "RGBA", "CMYK", "P", "1", "I;16"):
            options = (
                {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\1\x01\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0"} if kind == "JPEG" else {}
            )
            try:
                buffer = io.BytesIO()
                (picture.convert("L").convert("I;16") if mode == "I;16" else picture.convert(mode)).save(
                    buffer, kind, **options
                )
                found.append(buffer.getvalue())
            except (OSError, ValueError, KeyError):
                # A format that has no such pixels.
                continue
    return found


def broken(content: bytes, others: list[bytes], draw: random.Random) -> bytes:
    """One of the ways in which bytes go wrong, or several."""
    made = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 5, 20))):
        place = draw.randrange(len(made)) if made else 0
        match draw.randrange(6):
            case 0 if made:
                made[place] ^= 1 << draw.randrange(8)
            case 1 if made:
                made[place] = draw.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                del made[place:]
            case 3:
                del made[place : place + draw.randrange(1, 64)]
            case 4:
                made[place:place] = draw.randbytes(draw.randrange(1, 64))
            case _:
                other = draw.choice(others)
                made[place:] = other[draw.randrange(len(other)) :]
    return bytes(made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    draw, contents = random.Random(options.seed), seeds()
    counts: collections.Counter[str] = collections.Counter()
    odd: list[str] = []
    slowest, ends = 0.0, time.monotonic() + 60 * options.minutes
    while time.monotonic() < ends:
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for number in range(_BATCH):
                files.append(Path(folder) / str(number))
                files[-1].write_bytes(broken(draw.choice(contents), contents, draw))
            run = subprocess.run(
                [sys.executable, "-c", _WORKER, *map(str, files)], capture_output=True, text=True, timeout=600
            )
            lines = [line.split("\t") for line in run.stdout.splitlines()]
            for name, seconds, told in lines:
                slowest = max(slowest, float(seconds))
                is_known = told in ("pixels", "refused")
                counts[told if is_known else "anything else"] += 1
                if not is_known or float(seconds) > _SLOW:
                    odd.append(f"{told}, {seconds} s: {Path(name).read_bytes()[:24].hex()}...")
            if run.returncode:
                counts["crashed"] += 1
                odd.append(f"exit code {run.returncode} at file {len(lines)}: {run.stderr[-200:]}")
    text = "\n".join(
        [
            "# Broken image bytes",
            "",
            f"- versions: {describe_versions([])}",
            f"- {options.minutes:g} minutes, seed {options.seed}; {len(contents)} small pictures in "
            f"{len(_FORMATS)} formats, with bytes flipped, cut, inserted and spliced",
            "",
            f"{sum(counts.values()):,} files: {counts['pixels']:,} became pixels, {counts['refused']:,} were refused "
            f"in a sentence, {counts['anything else']:,} ended in anything else, {counts['crashed']:,} crashes. The "
            f"slowest took {slowest:.2f} s.",
            *(f"- {one}" for one in odd[:20]),
        ]
    )
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
