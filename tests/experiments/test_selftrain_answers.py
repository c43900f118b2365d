"""What a teacher says is kept piece by piece."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.experiments.selftrain_small import said_by, teacher_folder
from tests.training.tiny_run import CLASSES, CPU

from vitrail.data import Arrays, Labels, Source, evaluation_batches
from vitrail.errors import DataError, DiskError
from vitrail.experiments import selftrain_teacher as answering
from vitrail.experiments.selftrain_teacher import Answers, Teacher, ask, open_teacher


def images(count: int = 50, seed: int = 0) -> Arrays:
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    return Arrays("noise", "train", ("image",), Labels.of(np.zeros(count, np.int64), 1), pixels)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> Teacher:
    return open_teacher(str(teacher_folder(tmp_path_factory.mktemp("t") / "t")), CLASSES, "d", CPU)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch) -> None:
    monkeypatch.setattr(answering, "_FIRST", 16)
    monkeypatch.setattr(answering, "_MOST", 16)
    monkeypatch.setattr(answering, "_SMALL_BATCH", 8)


def asked(teacher: Teacher, source: Source, folder: Path, is_soft: bool = True) -> tuple[Answers, list[int]]:
    done: list[int] = []
    return ask(teacher, source, folder, is_soft=is_soft, advance=done.append), done


def test_soft_labels_are_the_probabilities_of_the_teacher(teacher, tmp_path) -> None:
    source = images()
    found, done = asked(teacher, source, tmp_path)
    [batch] = evaluation_batches(source, teacher.subject.preparation, batch_size=50)
    wanted = said_by(Path(teacher.subject.name), batch.images).numpy()
    assert found.shares is not None and found.shares.dtype == np.float16
    assert np.allclose(found.shares, wanted, atol=1e-3)
    assert found.guesses.tolist() == wanted.argmax(axis=1).tolist()
    assert np.allclose(found.confidence, wanted.max(axis=1), atol=1e-6)
    assert sum(done) == 50 and len(set(found.guesses)) > 1
    assert asked(teacher, source, tmp_path / "hard", is_soft=False)[0].shares is None


def test_who_is_killed_goes_on_after_the_last_piece(teacher, tmp_path, monkeypatch) -> None:
    whole, _ = asked(teacher, images(), tmp_path / "whole")
    seen = 0

    def killed(_done: int) -> None:
        nonlocal seen
        seen += 1
        if seen == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(teacher, images(), tmp_path / "t", is_soft=True, advance=killed)
    assert len(list((tmp_path / "t").glob("answers-*.npz"))) == 2
    read: list[int] = []
    monkeypatch.setattr(Arrays, "read", lambda self, index: read.append(index) or self.pixels[index])
    found, done = asked(teacher, images(), tmp_path / "t")
    assert done[0] == 32 and sorted(set(read)) == list(range(32, 50))
    assert np.array_equal(found.shares, whole.shares) and np.array_equal(found.confidence, whole.confidence)


@pytest.mark.parametrize("how", ["other images", "damaged", "cut off", "missing"])
def test_pieces_of_something_else_or_damaged_ones_are_asked_again(how, teacher, tmp_path) -> None:
    asked(teacher, images(seed=1 if how == "other images" else 0), tmp_path)
    first = min(tmp_path.glob("answers-*.npz"))
    if how == "damaged":
        first.write_bytes(b"PK nonsense")
    elif how == "cut off":
        first.write_bytes(first.read_bytes()[:-40])
    elif how == "missing":
        first.unlink()
    found, done = asked(teacher, images(), tmp_path)
    assert done[0] == 0
    assert np.array_equal(found.shares, asked(teacher, images(), tmp_path / "again")[0].shares)


def test_pieces_for_classes_in_another_order_are_asked_again(teacher, tmp_path) -> None:
    first, _ = asked(teacher, images(), tmp_path)
    turned = Teacher(teacher.subject, teacher.columns[::-1].copy())
    found, done = asked(turned, images(), tmp_path)
    assert done[0] == 0 and found.guesses.tolist() == (len(CLASSES) - 1 - first.guesses).tolist()


def test_a_full_disk_keeps_what_is_done(teacher, tmp_path, monkeypatch) -> None:
    save, pieces = np.savez, 0

    def full(file, **arrays) -> None:
        nonlocal pieces
        pieces += 1
        if pieces == 3:
            raise OSError(28, "No space left on device")
        save(file, **arrays)

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(DiskError, match="No space left"):
        asked(teacher, images(), tmp_path)
    _, done = asked(teacher, images(), tmp_path)
    assert done[0] == 32


def test_answers_that_are_no_numbers_are_refused(tmp_path) -> None:
    broken = open_teacher(str(teacher_folder(tmp_path / "t")), CLASSES, "d", CPU)
    with torch.no_grad():
        next(broken.subject.model.parameters()).fill_(float("nan"))
    with pytest.raises(DataError, match="no number for noise, train image 0"):
        asked(broken, images(), tmp_path)
