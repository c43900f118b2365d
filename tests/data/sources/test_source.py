"""What every source offers: a fixed order, ids that stay, a digest, and a copy for each worker."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitrail.data import Arrays, Labels, Part, Source, open_data
from vitrail.data.sources.files import Files
from vitrail.data.sources.folder import open_folder
from vitrail.data.sources.strings import Strings
from vitrail.errors import DataError

# What os.fsdecode may return: any text, and bytes that are no UTF-8 as lone surrogates.
NAMES = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(["\udc80", "\udcff"]))


def in_memory(count: int = 6) -> Arrays:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 3, 3), dtype=np.uint8)
    return Arrays("toy", "train", ("a", "b"), Labels.of([number % 2 for number in range(count)], 2), pixels)


def on_disk(root: Path) -> Files:
    for name in ("a/1.jpg", "a/2.jpg", "b/1.jpg"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    return open_folder(root)


def parts_of(source: Source) -> Part:
    return Part(source, np.array([2, 0]), "some")


def test_arrays() -> None:
    source = in_memory()
    assert len(source) == 6
    assert np.array_equal(source.read(4), source.pixels[4])
    assert source.where(4) == "toy, train image 4"
    assert source.ids(np.array([4, 1])).tolist() == [4, 1]


def test_a_part_has_the_images_asked_for_and_their_ids() -> None:
    source = in_memory()
    inner = Part(Part(source, np.array([5, 3, 1]), "odd"), np.array([2, 0]), "two")
    assert (len(inner), inner.split, inner.name, inner.classes) == (2, "two", "toy", ("a", "b"))
    assert inner.ids(np.arange(2)).tolist() == [1, 5]
    assert inner.ids(np.arange(2)).dtype == np.int64
    assert np.array_equal(inner.read(0), source.pixels[1])
    assert inner.where(1) == source.where(5)
    assert inner.labels.values.tolist() == [1, 1]


def test_a_part_keeps_the_notes_and_adds_its_own() -> None:
    source = in_memory()
    source.notes = ("one",)
    assert Part(source, np.array([0]), "first", notes=("two",)).notes == ("one", "two")


def test_every_worker_gets_a_copy_that_reads_the_same(tmp_path) -> None:
    for source in (in_memory(), on_disk(tmp_path), parts_of(on_disk(tmp_path)), open_data("digits")):
        again = pickle.loads(pickle.dumps(source))  # noqa: S301
        assert len(again) == len(source)
        assert again.digest() == source.digest()
        for index in (0, len(source) - 1):
            assert np.array_equal(np.asarray(again.read(index)), np.asarray(source.read(index)))
            assert again.where(index) == source.where(index)


def test_a_digest_changes_with_the_data_and_not_without(tmp_path) -> None:
    first = on_disk(tmp_path / "one").digest()
    assert on_disk(tmp_path / "two").digest() == first
    changes = {
        "more bytes": lambda root: (root / "a/1.jpg").write_bytes(b"longer than before"),
        "another name": lambda root: (root / "a/1.jpg").rename(root / "a/3.jpg"),
        "another class": lambda root: (root / "a/2.jpg").rename(root / "b/2.jpg"),
        "a class renamed": lambda root: (root / "a").rename(root / "aa"),
        "one less": lambda root: (root / "a/1.jpg").unlink(),
    }
    seen = {first}
    for name, change in changes.items():
        on_disk(tmp_path / name)
        change(tmp_path / name)
        seen.add(open_folder(tmp_path / name).digest())
    assert len(seen) == len(changes) + 1


def test_a_digest_of_arrays_and_parts_depends_on_pixels_labels_names_and_choice() -> None:
    base = in_memory()
    pixels = base.pixels.copy()
    pixels[0, 0, 0] ^= 1
    swapped = Labels.of(base.labels.values[::-1].copy(), 2)
    many = Labels.of_many([[int(value)] for value in base.labels.values], 2)
    sources = [
        base,
        Arrays("toy", "train", ("a", "b"), base.labels, pixels),
        Arrays("toy", "train", ("a", "b"), base.labels, base.pixels.reshape(6, 9, 1)),
        Arrays("toy", "train", ("a", "c"), base.labels, base.pixels),
        Arrays("toy", "train", ("a", "b"), swapped, base.pixels),
        Arrays("toy", "train", ("a", "b"), many, base.pixels),
        Part(base, np.array([0, 2]), "some"),
        Part(base, np.array([2, 0]), "some"),
        Part(base, np.array([0, 4]), "some"),
    ]
    assert len({source.digest() for source in sources}) == len(sources)
    assert Arrays("other name", "val", ("a", "b"), base.labels, base.pixels).digest() == base.digest()


def test_a_file_that_is_gone_changes_the_digest_and_names_itself(tmp_path) -> None:
    source = on_disk(tmp_path)
    before = source.digest()
    (tmp_path / "a/1.jpg").unlink()
    assert source.digest() != before
    with pytest.raises(DataError, match=r"a/1\.jpg: the file could not be read"):
        source.read(0)


def test_the_digits_are_split_once_and_for_all() -> None:
    train, test = open_data("digits"), open_data("digits", "test")
    assert (len(train), len(test)) == (1438, 359)
    assert train.classes == tuple("0123456789")
    assert np.abs(test.labels.counts() - 35.9).max() < 3
    image = train.read(0)
    assert isinstance(image, np.ndarray)
    assert (image.shape, image.dtype) == ((8, 8), np.uint8)
    both = np.concatenate([np.stack([np.asarray(part.read(i)) for i in range(len(part))]) for part in (train, test)])
    assert (both.min(), both.max()) == (0, 255)


@given(st.lists(NAMES))
def test_strings_are_kept_as_they_are(names) -> None:
    kept = Strings(names)
    assert len(kept) == len(names)
    assert list(kept) == names
    assert list(pickle.loads(pickle.dumps(kept))) == names  # noqa: S301
    for index in range(len(names)):
        assert kept[index] == names[index]
        assert kept[index - len(names)] == names[index]
        assert kept[np.int64(index)] == names[index]


@pytest.mark.parametrize("index", [3, -4])
def test_strings_end(index) -> None:
    with pytest.raises(IndexError):
        Strings(["a", "", "c"])[index]
