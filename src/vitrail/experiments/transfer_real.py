"""ReaL accuracy of the final models of a fine-tuning, from what they said when they were measured."""

import json
import zipfile
import zlib
from dataclasses import dataclass

import numpy as np

from vitrail.config import from_json, to_json
from vitrail.data import Source
from vitrail.errors import DataError
from vitrail.evaluation.real import RealLabels, match_real, measure_real
from vitrail.experiments.finetune_folder import FinetuneFolder
from vitrail.experiments.finetune_result import Result, mean_and_std
from vitrail.runtime.archives import open_npz
from vitrail.runtime.atomic import atomic_file
from vitrail.runtime.json_text import json_text

FILE = "real-result.json"


@dataclass(frozen=True, kw_only=True)
class RealSeeds:
    """`real-result.json` of a fine-tuning."""

    labels: str
    """The file of ReaL labels."""
    digest: str
    """Of that file."""
    accuracies: tuple[float, ...]
    """One per seed."""
    mean: float
    std: float | None
    images: int
    """Those with a label, which were counted."""
    skipped: int
    """Those without."""


def measure_seeds(folder: FinetuneFolder, result: Result, source: Source, real: RealLabels) -> RealSeeds:
    """Count the answers of each final model on `source`, which it was measured on, and write the file."""
    sets = match_real(real, source)
    found = [
        measure_real(_first_guesses(folder, final.folder, len(source)), sets, source.labels.values, real)
        for final in result.seeds
    ]
    accuracies = tuple(one.top1.share for one in found)
    mean, std = mean_and_std(accuracies)
    seeds = RealSeeds(
        labels=real.path,
        digest=real.digest,
        accuracies=accuracies,
        mean=mean,
        std=std,
        images=found[0].labelled,
        skipped=found[0].skipped,
    )
    with atomic_file(folder.path / FILE) as temporary:
        temporary.write_text(json_text(to_json(seeds), indent=2) + "\n", encoding="utf-8")
    return seeds


def read_seeds(folder: FinetuneFolder) -> RealSeeds | None:
    """What was counted before; none where nothing was."""
    path = folder.path / FILE
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read ({error})", where=str(path), fix="Delete it; it will be made again.") from None
    return from_json(RealSeeds, values, where=str(path))


def _first_guesses(folder: FinetuneFolder, run: str, images: int) -> np.ndarray:
    path = folder.run(run).path / "predictions.npz"
    try:
        with open_npz(path) as arrays:
            guesses = arrays["guesses"][:, 0]
    except (OSError, ValueError, KeyError, EOFError, IndexError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"cannot be read ({error})", wanted="the answers of a final model", where=str(path)) from None
    if len(guesses) != images:
        raise DataError(f"there are answers for {len(guesses):,} images", wanted=f"{images:,}", where=str(path))
    return guesses
