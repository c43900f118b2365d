"""Images that a teacher labelled, as a source of data."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.training.tiny_run import make_images

from vitrail.data import OpenOptions, open_data
from vitrail.data.loading.resident import can_be_resident
from vitrail.data.sources.classes import with_classes
from vitrail.data.sources.source import whole_of
from vitrail.data.sources.splits import MissingSplit
from vitrail.data.sources.taught import Lesson, Origin, TaughtRecord, blind, lineage_of, write_taught
from vitrail.errors import DataError, UsageError

NAMES = tuple(map(str, range(10)))


def digits(folder: Path, *, held_out: int = 5, soft: bool = True, split: str = "train") -> Path:
    """The first 20 of train are labelled, five of them held out; three others are taught, one of them twice."""
    whole = open_data("digits", "train")
    shares = np.full((4, 10), 0.05, np.float16)
    shares[np.arange(4), [3, 3, 1, 9]] = 0.55
    write_taught(
        folder,
        TaughtRecord(
            classes=NAMES,
            labelled=Origin(data="digits", split=split, digest=whole.digest()),
            unlabelled=Origin(data="digits", split="train", digest=blind(whole).digest()),
            lineage={"teacher": "someone"},
        ),
        Lesson(
            learnt=np.arange(held_out, 20),
            held_out=np.arange(held_out),
            taught=np.array([100, 100, 101, 900]),
            classes=np.array([3, 3, 1, 9]),
            shares=shares if soft else None,
        ),
    )
    return folder


def test_train_is_what_people_labelled_and_then_what_the_teacher_did(tmp_path) -> None:
    whole = open_data("digits", "train")
    source = open_data(f"taught:{digits(tmp_path)}", "train")
    assert len(source) == 19 and source.classes == NAMES and lineage_of(source) == {"teacher": "someone"}
    assert np.array_equal(source.read(15), whole.read(100)) and np.array_equal(source.read(18), whole.read(900))
    assert source.labels.values.tolist() == [*whole.labels.values[5:20], 3, 3, 1, 9]
    targets = source.labels.targets(np.array([0, 15, 18]))
    assert targets.dtype == torch.float32
    assert targets[0].tolist() == [float(number == whole.labels.values[5]) for number in range(10)]
    assert targets[1, 3] == pytest.approx(0.55, abs=1e-3) and targets[2, 0] == pytest.approx(0.05, abs=1e-3)
    # Copies of an image are augmented each in its own way.
    assert len(set(source.ids(np.arange(19)))) == 19


def test_hard_labels_are_class_numbers(tmp_path) -> None:
    source = open_data(f"taught:{digits(tmp_path, soft=False)}", "train")
    assert source.labels.shares is None
    assert source.labels.targets(np.array([15, 18])).tolist() == [3, 9]


def test_val_is_what_was_held_out_and_test_is_the_labelled_test(tmp_path) -> None:
    name = f"taught:{digits(tmp_path)}"
    val = open_data(name, "val")
    assert val.ids(np.arange(5)).tolist() == [0, 1, 2, 3, 4]
    assert open_data(name, "test").digest() == open_data("digits", "test").digest()
    with pytest.raises(MissingSplit):
        open_data(f"taught:{digits(tmp_path / 'b', held_out=0)}", "val")
    with pytest.raises(MissingSplit):
        open_data(name, "extra")


@pytest.mark.filterwarnings("ignore:1 group of copies:vitrail.errors.Notice")
def test_what_lies_in_memory_can_live_on_the_device(tmp_path) -> None:
    assert can_be_resident(open_data(f"taught:{digits(tmp_path)}", "train"))
    assert can_be_resident(open_data(f"taught:{digits(tmp_path)}", "train[:50%]"))


@pytest.mark.filterwarnings("ignore:1 group of copies:vitrail.errors.Notice")
def test_parts_and_other_classes_keep_the_shares(tmp_path) -> None:
    source = open_data(f"taught:{digits(tmp_path)}", "train")
    part = open_data(f"taught:{tmp_path}", "train[:50%]")
    rows, places = part.labels.targets(np.arange(len(part))), part.ids(np.arange(len(part)))
    assert torch.equal(rows, source.labels.targets(places))
    other = with_classes(source, tuple(reversed(NAMES)))
    assert torch.equal(other.labels.targets(np.arange(19)), source.labels.targets(np.arange(19)).flip(1))
    assert other.labels.values.tolist() == [9 - number for number in source.labels.values]


def test_the_digest_knows_the_shares(tmp_path) -> None:
    one = open_data(f"taught:{digits(tmp_path / 'a')}", "train")
    assert one.digest() == open_data(f"taught:{digits(tmp_path / 'b')}", "train").digest()
    assert one.labels.shares is not None
    one.labels.shares[15, 3] = 0.5
    assert one.digest() != open_data(f"taught:{tmp_path / 'b'}", "train").digest()


def test_images_that_changed_since_are_refused(tmp_path) -> None:
    images = make_images(tmp_path / "images", per_class=3)
    whole = open_data(images, "train")
    loose = blind(open_data(images, "train", options=OpenOptions(labelled=False)))
    where = {"data": str(images), "split": "train"}
    record = TaughtRecord(
        classes=whole.classes,
        labelled=Origin(**where, digest=whole.digest()),
        unlabelled=Origin(**where, digest=whole_of(loose).digest()),
        lineage={},
    )
    lesson = Lesson(learnt=np.arange(6), held_out=np.arange(0), taught=np.array([8]), classes=np.array([0]))
    write_taught(tmp_path / "taught", record, lesson)
    assert len(open_data(f"taught:{tmp_path / 'taught'}", "train")) == 7
    (images / "ant" / "000.png").unlink()
    with pytest.raises(DataError, match="no longer those"):
        open_data(f"taught:{tmp_path / 'taught'}", "train")


@pytest.mark.parametrize("file", ["taught.json", "taught.npz"])
@pytest.mark.parametrize("content", [None, b"", b"{}", b"PK\x03\x04 nonsense"])
def test_damaged_folders_are_one_sentence(file, content, tmp_path) -> None:
    digits(tmp_path)
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError):
        open_data(f"taught:{tmp_path}", "train")


@pytest.mark.parametrize(
    "wrong",
    [
        {"taught": np.array([5000]), "classes": np.array([1])},
        {"taught": np.array([-1]), "classes": np.array([1])},
        {"taught": np.array([1, 2]), "classes": np.array([1])},
        {"taught": np.array([1]), "classes": np.array([10])},
        {"taught": np.array([1.0]), "classes": np.array([1])},
        {"taught": np.array([1]), "classes": np.array([1]), "shares": np.zeros((1, 3), np.float16)},
    ],
)
def test_arrays_that_do_not_fit_are_refused(wrong, tmp_path) -> None:
    digits(tmp_path)
    arrays = {"learnt": np.arange(5), "held_out": np.arange(0), **wrong}
    np.savez(tmp_path / "taught.npz", **arrays)
    with pytest.raises(DataError):
        open_data(f"taught:{tmp_path}", "train")


def test_no_folder_is_no_data() -> None:
    with pytest.raises(DataError, match=r"no taught\.json"):
        open_data("taught:/nowhere/at/all", "train")
    with pytest.raises(UsageError):
        open_data("taught:", "train")
