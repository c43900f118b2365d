"""A model that labels: its outputs in the order of the students' classes, and what it says, kept as it comes."""

import hashlib
import time
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vitrail.data import Part, Source
from vitrail.data.loading.reading import reading_workers
from vitrail.errors import DataError, command, notice
from vitrail.evaluation.outputs import all_outputs
from vitrail.evaluation.subject import Subject, open_subject
from vitrail.experiments.selftrain import PIECES
from vitrail.runtime.archives import open_npz
from vitrail.runtime.atomic import atomic_file
from vitrail.runtime.threads import is_tiny, one_thread

_FEW = 5


@dataclass(frozen=True)
class Teacher:
    """A model in evaluation mode, without any noise."""

    subject: Subject
    columns: np.ndarray
    """The output of each class."""

    @property
    def is_sigmoid(self) -> bool:
        """Whether it learnt each class by itself."""
        return self.subject.model.provenance.get("loss") == "sigmoid"

    def probabilities(self, logits: Tensor) -> Tensor:
        """What it says of each class, (images, classes).

        Outputs that were learnt one by one are read one by one, and then shared out: every image has one class here.
        """
        if not self.is_sigmoid:
            return logits[:, self.columns].softmax(dim=1)
        each = logits[:, self.columns].sigmoid()
        return each / each.sum(dim=1, keepdim=True).clamp_min(torch.finfo(each.dtype).tiny)


def open_teacher(
    source: str, classes: tuple[str, ...], data: str, device: torch.device, preprocessing: str | None = None
) -> Teacher:
    """Load whatever `load_model` takes; its classes have to be those of the data."""
    return as_teacher(open_subject(source, device=device, preprocessing=preprocessing), classes, data)


def as_teacher(subject: Subject, classes: tuple[str, ...], data: str) -> Teacher:
    """A model that is loaded already; its classes have to be those of the data."""
    model = subject.model
    return Teacher(subject, match_outputs(model.labels, model.config.num_classes, classes, subject.name, data))


def match_outputs(
    labels: tuple[str, ...] | None, outputs: int, classes: tuple[str, ...], model: str, data: str
) -> np.ndarray:
    """The output for each class: by name, or by number where names are not known."""
    fix = f"`{command('finetune', model, data=data)}` teaches it these classes, and the result can be the teacher."
    if labels is None:
        if outputs != len(classes):
            came = f"the teacher has {outputs:,} classes without names" if outputs else "the teacher has no head"
            raise DataError(came, wanted=f"the {len(classes):,} classes of {data}", where=model, fix=fix)
        notice(f"{model}: the names of its classes are not known, so they are taken to be those of the data.")
        return np.arange(outputs)
    names = [unicodedata.normalize("NFC", name) for name in labels]
    places, wanted = ({name: place for place, name in enumerate(those)} for those in (names, classes))
    if len(places) < len(names):
        twice = next(name for place, name in enumerate(names) if places[name] != place)
        raise DataError(f"two classes of the teacher are called {twice!r}", where=model, fix=fix)
    if sorted(names) != sorted(classes):
        unknown = [name for name in classes if name not in places] or [name for name in names if name not in wanted]
        more = ", ..." if len(unknown) > _FEW else ""
        who = "the teacher does not know" if unknown[0] in classes else "only the teacher knows"
        raise DataError(
            f"{who} the class{'es' if len(unknown) > 1 else ''} {', '.join(map(repr, unknown[:_FEW]))}{more}",
            wanted=f"the {len(classes):,} classes of {data}",
            where=model,
            fix=fix,
        )
    return np.array([places[name] for name in classes])


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
