import numpy as np
import pytest

from vitrail.data.check.origin import identities, is_in_memory, is_known_good
from vitrail.data.outside import ensure_outside
from vitrail.data.sources.folder import open_folder
from vitrail.data.sources.joined import Joined
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.source import Arrays, Part
from vitrail.errors import DataError, UsageError


def arrays(count: int, split: str, classes: tuple[str, ...] = ("a", "b")) -> Arrays:
    pixels = np.arange(count, dtype=np.uint8)[:, None, None]
    return Arrays("toy", split, classes, Labels.of([number % 2 for number in range(count)], 2), pixels)


def test_one_behind_the_other():
    both = Joined([arrays(3, "train"), arrays(2, "val")], "train+val")
    assert [int(np.asarray(both.read(index))[0, 0]) for index in range(5)] == [0, 1, 2, 0, 1]
    assert both.labels.values.tolist() == [0, 1, 0, 0, 1]
    assert [both.where(2), both.where(3)] == ["toy, train image 2", "toy, val image 0"]
    assert both.digest() != Joined([arrays(2, "val"), arrays(3, "train")], "train+val").digest()
    assert is_in_memory(both) and is_known_good(Part(both, np.array([4, 0]), "some"))


def test_other_classes_are_refused():
    with pytest.raises(DataError, match=r"^toy: the classes differ between train and val; wanted the same\.$"):
        Joined([arrays(3, "train"), arrays(2, "val", ("b", "a"))], "both")


def test_files_are_known_one_by_one_and_written_beside_not_into(tmp_path):
    for name in ("one/a/1.jpg", "one/b/1.jpg", "two/a/1.jpg", "two/b/1.jpg"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(name.encode())
    sources = [open_folder(tmp_path / name) for name in ("one", "two")]
    part = Part(Joined(sources, "both"), np.array([3, 0]), "some")
    before = identities(part)
    (tmp_path / "two" / "b" / "1.jpg").write_bytes(b"another")
    assert (identities(part) == before).tolist() == [False, True]
    assert not is_in_memory(part)
    ensure_outside([part], tmp_path / "runs")
    with pytest.raises(UsageError, match="it would lie inside the data"):
        ensure_outside([part], tmp_path / "two" / "runs")
