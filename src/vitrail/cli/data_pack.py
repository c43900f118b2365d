"""`vitrail data pack`: a copy of a data set that loads faster."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import tyro

from vitrail.cli.terminal import console, megabytes, printable
from vitrail.config.decoding import DecodePolicy
from vitrail.data.check.opening import open_splits_strictly
from vitrail.data.check.pool import worker_count
from vitrail.data.open import OpenOptions
from vitrail.runtime.progress import progress


def run(
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    target: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TARGET")],
    /,
    short_side: int = 256,
    quality: int | None = None,
    split: str = "all",
    workers: int | None = None,
    skip_bad: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    root: Path | None = None,
    download: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    max_pixels: int = DecodePolicy.max_pixels,
    allow_empty: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Decode every image once and store it smaller, so that training reads pixels instead of decoding files.

    The copy is a folder that stands for the data wherever data is named. Stopped at any time, the same command goes on
    where it was, or at the first file that has changed since; every image is read back before the copy counts as done.

    Args:
        data: A folder, a .csv, a known name, hf:NAME or wds:SHARDS.
        target: The folder to make; it must not exist, nor lie inside the data.
        short_side: Larger images are reduced to this many pixels on their short side.
        quality: Store JPEGs of this quality (1 to 100) instead of plain pixels: a tenth of the space, slower to read.
        split: train, val, test, or all that are there.
        workers: Processes that decode; as many as there are cores if not said, 0 for none.
        skip_bad: Leave files out that cannot be decoded, and record how many.
        root: Where the files of a known data set are.
        download: Fetch a known data set that is not there.
        max_pixels: Images with more pixels are refused.
        allow_empty: A class without images is no problem.
    """
    # Packing uses torch's workers; the help and the errors above need no torch.
    from vitrail.data.pack import PackOptions, pack

    splits = open_splits_strictly(
        data, split, options=OpenOptions(root=root, download=download, allow_empty=allow_empty)
    )
    total = sum(map(len, splits.values()))
    options = PackOptions(
        short_side=short_side,
        quality=quality,
        workers=worker_count(workers, total),
        skip_bad=skip_bad,
        policy=DecodePolicy(max_pixels=max_pixels),
    )
    try:
        with progress("packing", total) as advance:
            packed = pack(splits, target, options, advance)
    except KeyboardInterrupt:
        print("What is packed so far is kept: the same command goes on from there.", file=sys.stderr)
        raise
    size = sum(file.stat().st_size for file in target.iterdir())
    counts = ", ".join(f"{name} {len(part):,}" for name, part in packed.items())
    out = console()
    out.print(printable(f"{target}: {counts} images, {megabytes(size)}, read back and compared."), markup=False)
    for note in dict.fromkeys(note for part in packed.values() for note in part.notes):
        out.print(printable(f"note: {note}"), markup=False)
    out.print(printable(f"Use it in place of {shlex.quote(data)}."), markup=False)
