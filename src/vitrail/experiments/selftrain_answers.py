"""What a teacher says about every image, kept as it comes: who is stopped goes on where that was."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from vitrail.data import Part, Source
from vitrail.data.loading.reading import reading_workers
from vitrail.errors import DataError
from vitrail.evaluation.outputs import all_outputs
from vitrail.experiments.selftrain_teacher import Teacher
from vitrail.runtime.archives import open_npz
from vitrail.runtime.atomic import atomic_file
from vitrail.runtime.threads import is_tiny, one_thread

PIECES = "answers-*.npz"

# What is lost when a process is killed: the work of so many seconds.
_SECONDS = 30.0
_FIRST, _MOST = 1024, 2**17
_BATCH = {"cuda": 256}
_SMALL_BATCH = 64


@dataclass(frozen=True)
class Answers:
    """The answers for the images of a source, in its order."""

    guesses: np.ndarray
    """Class numbers: int64 (images,)."""
    confidence: np.ndarray
    """Their probabilities: float32 (images,)."""
    shares: np.ndarray | None
    """Those of all classes where labels are soft: float16 (images, classes)."""

    def __len__(self) -> int:
        return len(self.guesses)


def ask(
    teacher: Teacher,
    source: Source,
    folder: Path,
    *,
    is_soft: bool,
    workers: int | None = None,
    advance: Callable[[int], None] = lambda _done: None,
) -> Answers:
    """Send every image once through the teacher, piece by piece; the pieces are files in `folder`."""
    key = _key(teacher, source, is_soft)
    pieces = _kept(folder, key, len(teacher.columns), is_soft)
    done = sum(map(len, pieces))
    advance(done)
    size = _FIRST
    while done < len(source):
        places = np.arange(done, min(done + size, len(source)))
        begun = time.monotonic()
        pieces.append(_piece(teacher, Part(source, places, source.split), is_soft, workers, advance))
        _write(folder, done, key, pieces[-1])
        done += len(places)
        rate = len(places) / max(time.monotonic() - begun, 1e-3)
        size = int(min(max(rate * _SECONDS, _SMALL_BATCH), _MOST))
    return _joined(pieces)


def forget(folder: Path) -> None:
    """Remove the pieces, once what was chosen of them is written."""
    for file in folder.glob(PIECES):
        file.unlink(missing_ok=True)


def _piece(
    teacher: Teacher, source: Source, is_soft: bool, workers: int | None, advance: Callable[[int], None]
) -> Answers:
    subject = teacher.subject
    with one_thread(is_tiny(subject.model, subject.device)):
        logits = all_outputs(
            subject.model,
            subject,
            source,
            batch_size=_BATCH.get(subject.device.type, _SMALL_BATCH),
            workers=reading_workers(workers, source, on_gpu=subject.device.type == "cuda"),
            advance=advance,
        )
    lost = np.flatnonzero(~np.isfinite(logits).all(axis=1))
    if len(lost):
        raise DataError(
            f"the teacher gives no number for {source.where(int(lost[0]))}",
            where=subject.name,
            fix="Its weights may be damaged: `vitrail evaluate` measures it.",
        )
    said = teacher.probabilities(torch.from_numpy(logits)).numpy()
    guesses = said.argmax(axis=1)
    confidence = said[np.arange(len(said)), guesses]
    return Answers(guesses, confidence, said.astype(np.float16) if is_soft else None)


def _key(teacher: Teacher, source: Source, is_soft: bool) -> str:
    """Answers belong to a network, its preparation of images, the order of the classes, and these images."""
    subject = teacher.subject
    parts = (subject.fingerprint, subject.preparation, teacher.columns.tolist(), source.digest(), is_soft)
    return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()


def _write(folder: Path, start: int, key: str, piece: Answers) -> None:
    arrays = {name: value for name, value in vars(piece).items() if value is not None}
    with atomic_file(folder / f"answers-{start:012}.npz") as temporary, temporary.open("wb") as file:
        np.savez(file, key=np.array(key), start=np.array(start), **arrays)


def _kept(folder: Path, key: str, classes: int, is_soft: bool) -> list[Answers]:
    """The pieces of an earlier process, up to the first that is missing, damaged or about something else."""
    pieces: list[Answers] = []
    for file in sorted(folder.glob(PIECES)):
        try:
            with open_npz(file) as stored:
                if str(stored["key"]) != key or int(stored["start"]) != sum(map(len, pieces)):
                    break
                shares = stored["shares"] if is_soft else None
                piece = Answers(stored["guesses"], stored["confidence"], shares)
        except Exception:
            # Whatever is wrong with it, asking again mends it.
            break
        if shares is not None and shares.shape != (len(piece), classes):
            break
        pieces.append(piece)
    return pieces


def _joined(pieces: list[Answers]) -> Answers:
    shares = [piece.shares for piece in pieces if piece.shares is not None]
    return Answers(
        np.concatenate([piece.guesses for piece in pieces]),
        np.concatenate([piece.confidence for piece in pieces]),
        np.concatenate(shares) if shares else None,
    )
