"""The images of a run: which are held out, which are never selected on, and what stops it before the first step."""

import warnings
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from tests.training.tiny_run import make_images, quietly, twice

from vitrail.config import DataConfig
from vitrail.data.sources.source import Part
from vitrail.errors import DataError, Notice
from vitrail.training.sources import RunData, open_run_data

CPU = torch.device("cpu")


def opened(data, **changes) -> RunData:
    return open_run_data(DataConfig(data=str(data), **changes), CPU, quietly)


def splits(folder, *names: str, per_class: int = 10):
    for name in names:
        make_images(folder / name, per_class)
    return folder


def places(source) -> set[str]:
    return {source.where(index) for index in range(len(source))}


def test_a_val_split_is_held_out_and_test_stays_apart(tmp_path) -> None:
    data = opened(splits(tmp_path / "d", "train", "val", "test"))
    assert {len(data.train), len(data.held_out), len(data.test)} == {40}
    for name, source in (("train", data.train), ("val", data.held_out), ("test", data.test)):
        assert all(f"/{name}/" in place for place in places(source))


def test_without_val_a_tenth_is_held_out_of_train_and_never_of_test(tmp_path) -> None:
    data = opened(splits(tmp_path / "d", "train", "test"))
    assert (len(data.train), len(data.held_out), len(data.test)) == (36, 4, 40)
    assert not places(data.train) & places(data.held_out)
    assert all("/train/" in place for place in places(data.train) | places(data.held_out))
    assert isinstance(data.held_out, Part)


def test_a_share_is_held_out_even_where_there_is_a_val_split(tmp_path) -> None:
    data = opened(splits(tmp_path / "d", "train", "val"), held_out=0.25)
    assert (len(data.train), len(data.held_out), data.test) == (30, 10, None)
    assert all("/train/" in place for place in places(data.held_out))
    # As many of each class as the share says, give or take one.
    assert sorted(np.bincount(data.held_out.labels.values, minlength=4)) == [2, 2, 3, 3]


@pytest.mark.parametrize("names", [("train", "val", "test"), ("train", "test"), ("train",)])
def test_nothing_is_held_out_where_none_is_asked_for(names, tmp_path) -> None:
    data = opened(splits(tmp_path / "d", *names), held_out=0.0)
    assert data.held_out is None
    assert len(data.train) == 40


def test_the_test_split_can_be_left_alone(tmp_path) -> None:
    assert opened(splits(tmp_path / "d", "train", "test"), test=False).test is None


def test_a_folder_of_classes_alone(tmp_path) -> None:
    data = opened(make_images(tmp_path / "d", 10))
    assert (len(data.train), len(data.held_out), data.test) == (36, 4, None)


def test_what_is_held_out_does_not_depend_on_when_it_is_asked(tmp_path) -> None:
    folder = make_images(tmp_path / "d", 10)
    torch.manual_seed(1)
    first = opened(folder)
    np.random.seed(7)
    second = opened(folder)
    assert places(first.held_out) == places(second.held_out)
    assert first.train.digest() == second.train.digest()


@pytest.mark.parametrize("name", ["val", "test"])
def test_a_split_with_fewer_classes_is_numbered_as_train_is(name, tmp_path) -> None:
    folder = splits(tmp_path / "d", "train")
    make_images(folder / name, 5, ("bee", "dog"))
    source = getattr(opened(folder), {"val": "held_out", "test": "test"}[name])
    assert source.classes == ("ant", "bee", "cow", "dog")
    assert sorted(set(source.labels.values.tolist())) == [1, 3]


@pytest.mark.parametrize("name", ["val", "test"])
def test_a_class_that_train_does_not_have_is_named(name, tmp_path) -> None:
    folder = splits(tmp_path / "d", "train")
    make_images(folder / name, 5, ("bee", "elk"))
    with pytest.raises(DataError, match="elk"):
        opened(folder)


def test_one_class_is_refused(tmp_path) -> None:
    with pytest.raises(DataError, match="there is one class, 'ant'; wanted two or more"):
        opened(make_images(tmp_path / "d", 4, ("ant",)))


def test_a_class_of_one_image_cannot_be_both_learnt_and_measured(tmp_path) -> None:
    folder = make_images(tmp_path / "d", 4)
    make_images(folder / "..", 1, ("d/elk",))
    with pytest.raises(DataError, match="the class 'elk' has one image"):
        opened(folder)
    assert len(opened(folder, held_out=0.0).train) == 17


@pytest.mark.parametrize("name", ["train", "val", "test"])
def test_a_bad_file_in_any_split_stops_the_run_here(name, tmp_path) -> None:
    folder = splits(tmp_path / "d", "train", "val", "test", per_class=4)
    bad = folder / name / "bee" / "002.png"
    bad.write_bytes(bad.read_bytes()[:40])
    with pytest.raises(DataError, match="1 of 16 images cannot be read") as caught:
        opened(folder)
    assert str(bad) in str(caught.value)
    assert "data.skip_bad=True" in str(caught.value)
    with pytest.warns(Notice, match="1 of 16 images are left out"):
        data = opened(folder, skip_bad=True)
    counts = {"train": len(data.train), "val": len(data.held_out), "test": len(data.test)}
    assert counts == {other: 15 if other == name else 16 for other in counts}


@pytest.mark.parametrize("name", ["val", "test"])
def test_a_split_with_no_image_that_can_be_read(name, tmp_path) -> None:
    folder = splits(tmp_path / "d", "train", name, per_class=2)
    for path in (folder / name).rglob("*.png"):
        path.write_bytes(b"no image")
    with pytest.warns(Notice, match="8 of 8"), pytest.raises(DataError):
        opened(folder, skip_bad=True)


def test_a_share_that_leaves_nothing_to_learn_from(tmp_path) -> None:
    with pytest.raises(DataError, match="leaves no image of the class"):
        opened(make_images(tmp_path / "d", 2), held_out=0.9)


def test_progress_is_told_for_every_split(tmp_path) -> None:
    from contextlib import contextmanager

    seen: dict[str, int] = {}

    @contextmanager
    def checking(source):
        seen[source.split] = 0

        def advance(images: int) -> None:
            seen[source.split] += images

        yield advance

    open_run_data(DataConfig(data=str(splits(tmp_path / "d", "train", "test", per_class=4))), CPU, checking)
    assert seen == {"train": 16, "test": 16}


def test_workers(tmp_path) -> None:
    assert opened("digits").workers == 0
    assert opened("digits", workers=3).workers == 3
    folder = make_images(tmp_path / "d", 3)
    assert opened(folder).workers >= 1
    assert opened(folder, workers=0).workers == 0


def test_parts_of_a_split_can_be_learnt_from() -> None:
    data = opened("digits", split="train[:100]")
    assert (len(data.train), len(data.held_out), len(data.test)) == (90, 10, 359)


def contents(source) -> set[bytes]:
    return {bytes(source.read(index)) for index in range(len(source))}


@pytest.mark.parametrize("split", ["train", "train[:80%]"])
def test_no_copy_of_a_held_out_image_is_learnt_from(split, tmp_path) -> None:
    photos = twice(tmp_path / "d")
    with warnings.catch_warnings():
        # A part says so itself.
        warnings.simplefilter("ignore", Notice)
        data = opened(photos, split=split, held_out=0.25)
    assert not contents(data.train) & contents(data.held_out)
    assert abs(len(data.held_out) - 0.25 * (len(data.train) + len(data.held_out))) <= 1
    assert set(data.held_out.labels.counts()) <= {4, 6}
    assert "48 groups of copies (96 images)" in data.copies[0] or split != "train"
    assert data.copies[0] in data.train.notes and data.copies[0] in data.held_out.notes
    before = opened(photos, split=split, held_out=0.25, copies="apart")
    assert contents(before.train) & contents(before.held_out) and not before.copies


def test_every_image_is_decoded_once(tmp_path) -> None:
    """To find copies and to see whether it can be read: one bar that fills once."""
    shown: list[tuple[int, int]] = []

    @contextmanager
    def checking(source):
        done: list[int] = []
        yield done.append
        shown.append((sum(done), len(source)))

    open_run_data(DataConfig(data=str(twice(tmp_path / "d"))), CPU, checking)
    assert shown == [(96, 96)]
