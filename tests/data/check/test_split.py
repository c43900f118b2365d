"""A suggested split keeps copies together, classes in proportion, and is a table that can be opened."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.check.scenes import make_folder, scene
from tests.data.pictures import encoded

from vitrail.data.check import check, open_splits
from vitrail.data.check.findings import Duplicates, Findings, Place
from vitrail.data.check.split import Suggestion, ensure_files, nameless, suggest_split, write_split
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.source import Arrays, Source
from vitrail.data.sources.table import open_table
from vitrail.errors import DataError, UsageError


def arrays(labels: list[int], split: str = "train") -> Arrays:
    count = max(labels, default=0) + 1
    names = tuple(f"class {number}" for number in range(count))
    return Arrays("x", split, names, Labels.of(labels, count), np.zeros((len(labels), 2, 2), np.uint8))


def findings_of(splits: dict[str, Source], groups: list[list[tuple[str, int]]]) -> Findings:
    """Findings with these copies and nothing else."""
    near = tuple(
        Duplicates(
            kind="near",
            across_splits=len({split for split, _ in group}) > 1,
            labels_differ=False,
            images=tuple(Place(split=split, index=index, path="", labels=()) for split, index in group),
        )
        for group in groups
    )
    counts = {name: len(source) for name, source in splits.items()}
    return Findings(
        data="x",
        splits=counts,
        bad=(),
        exact=(),
        near=near,
        classes=(),
        class_faults=(),
        sizes=None,
        formats={},
        several_frames=(),
        strange_names=(),
        notes=(),
    )


def per_class(suggestion: Suggestion, source: Source) -> dict[str, Counter[int]]:
    found: dict[str, Counter[int]] = {split: Counter() for split in ("train", "val", "test")}
    for (_, index), split in suggestion.splits.items():
        found[split].update(source.labels.classes_of(index))
    return found


def test_classes_stay_in_proportion():
    source = arrays([0] * 100 + [1] * 50 + [2] * 10)
    suggestion = suggest_split({"train": source}, findings_of({"train": source}, []))
    assert per_class(suggestion, source) == {
        "train": {0: 80, 1: 40, 2: 8},
        "val": {0: 10, 1: 5, 2: 1},
        "test": {0: 10, 1: 5, 2: 1},
    }
    assert suggestion.counts() == {"train": 128, "val": 16, "test": 16}
    assert suggestion.moved == 32


def test_the_suggestion_is_the_same_every_time_and_not_the_first_images():
    source = arrays([0] * 40)
    splits: dict[str, Source] = {"train": source}
    first, second = (suggest_split(splits, findings_of(splits, [])) for _ in range(2))
    assert first == second
    val = sorted(index for (_, index), split in first.splits.items() if split == "val")
    assert val not in ([0, 1, 2, 3], [36, 37, 38, 39])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), min_size=1, max_size=40))
def test_groups_stay_together_and_training_knows_every_class(groups: list[tuple[int, int]]):
    """Each group has a class and a number of copies."""
    labels: list[int] = []
    copies: list[list[tuple[str, int]]] = []
    for label, size in groups:
        copies.append([("train", len(labels) + number) for number in range(size)])
        labels += [label] * size
    source = arrays(labels)
    splits: dict[str, Source] = {"train": source}
    suggestion = suggest_split(splits, findings_of(splits, [group for group in copies if len(group) > 1]))
    assert len(suggestion.splits) == len(labels)
    for group in copies:
        assert len({suggestion.splits[image] for image in group}) == 1
    found = per_class(suggestion, source)
    apart = Counter(label for label, _ in groups)
    for label, count in apart.items():
        assert found["train"][label]
        assert bool(found["val"][label]) == (count >= 2)
        assert bool(found["test"][label]) == (count >= 3)


def test_other_shares():
    source = arrays([0] * 10 + [1] * 10)
    splits: dict[str, Source] = {"train": source}
    halves = suggest_split(splits, findings_of(splits, []), shares={"train": 0.5, "val": 0.5})
    assert halves.counts() == {"train": 10, "val": 10}


def test_several_labels_per_image():
    labels = Labels.of_many([[0, 1], [1], [0], [], [], [0, 1], [1, 0], [0]], 2)
    source = Arrays("x", "train", ("a", "b"), labels, np.zeros((8, 2, 2), np.uint8))
    splits: dict[str, Source] = {"train": source}
    found = per_class(suggest_split(splits, findings_of(splits, [])), source)
    assert found["train"].keys() == {0, 1}
    assert found["val"].keys() == {0, 1}


def test_splits_that_are_there_are_kept_and_only_leaks_move():
    splits: dict[str, Source] = {"train": arrays([0] * 6), "val": arrays([0] * 3), "test": arrays([0] * 3)}
    leaks = [
        [("train", 0), ("val", 0)],
        [("train", 1), ("val", 1), ("test", 0)],
        [("train", 2), ("train", 3)],
    ]
    suggestion = suggest_split(splits, findings_of(splits, leaks))
    moved = {image: split for image, split in suggestion.splits.items() if image[0] != split}
    assert moved == {("train", 0): "val", ("train", 1): "test", ("val", 1): "test"}
    assert suggestion.moved == 3


def test_training_never_loses_a_class():
    splits: dict[str, Source] = {"train": arrays([0, 0, 1]), "test": arrays([1, 0, 0])}
    suggestion = suggest_split(splits, findings_of(splits, [[("train", 2), ("test", 0)]]))
    assert suggestion.splits["train", 2] == suggestion.splits["test", 0] == "train"


def test_a_written_split_opens_without_bad_files_and_leaks(tmp_path, watched):
    data = make_folder(tmp_path / "data", {"train": 20, "val": 8}, ("a, b", 'quo"te', "고양이"))
    classes = sorted(path.name for path in (data / "train").iterdir())
    (data / "train" / classes[0] / "cut.jpg").write_bytes(b"\xff\xd8\xff")
    leak = encoded(scene(0), "JPEG", quality=50)
    (data / "val" / classes[0] / "line\nbreak.jpg").write_bytes(leak)
    (data / "val" / "zebra").mkdir()
    (data / "val" / "zebra" / "z.jpg").write_bytes(encoded(scene(99), "JPEG"))
    splits = open_splits(watched(data))
    findings = check(splits, workers=0)
    assert len(findings.across) == len(findings.bad) == len(findings.class_faults) == 1
    target = tmp_path / "elsewhere" / "split.csv"
    assert nameless(splits) == set()
    write_split(target, splits, suggest_split(splits, findings))
    again = open_splits(target)
    assert {name: len(source) for name, source in again.items()} == {"train": 19, "val": 10}
    after = check(again, workers=0)
    assert not after.has_problems
    assert after.images == findings.images - 2
    assert open_table(target, "train").classes == tuple(classes)


def test_names_that_are_no_text_are_left_out_and_counted(tmp_path):
    data = make_folder(tmp_path / "data", {"": 6})
    # With two left of its class, that class still has to be in train.
    (data / "cat" / "0000.jpg").rename(f"{data}/cat/caf\udce9.jpg")
    splits = open_splits(data)
    target = tmp_path / "split.csv"
    assert nameless(splits) == {("train", 2)}
    suggestion = suggest_split(splits, check(splits, workers=0), without=nameless(splits))
    assert ("train", 2) not in suggestion.splits
    write_split(target, splits, suggestion)
    assert sum(map(len, open_splits(target).values())) == 5


def test_several_labels_are_written_and_read_again(tmp_path):
    data = make_folder(tmp_path / "data", {"": 3}, ("x",))
    (data / "in.csv").write_text("path,labels\nx/0000.jpg,a|b\nx/0001.jpg,\nx/0002.jpg,b\n")
    splits = open_splits(data / "in.csv")
    suggestion = Suggestion({("train", index): "train" for index in range(3)}, 0)
    write_split(tmp_path / "out.csv", splits, suggestion)
    again = open_table(tmp_path / "out.csv")
    assert [again.labels.classes_of(index) for index in range(3)] == [(0, 1), (), (1,)]
    assert [Path(again.where(index)).name for index in range(3)] == ["0000.jpg", "0001.jpg", "0002.jpg"]


@pytest.mark.parametrize(("name", "several", "why"), [("a|b", True, r"holds '\|'"), ("cat ", False, "with a space")])
def test_a_class_that_a_table_would_not_give_back_is_refused(tmp_path, name, several, why):
    folder = make_folder(tmp_path / "data", {"": 2})
    source = open_splits(folder)["train"]
    source.classes = ("cat", name)
    if several:
        source.labels = Labels.of_many([[1]] * len(source), 2)
    suggestion = Suggestion({("train", index): "train" for index in range(len(source))}, 0)
    with pytest.raises(DataError, match=f"'{re.escape(name)}' .*{why}"):
        write_split(tmp_path / "out.csv", {"train": source}, suggestion)
    assert not (tmp_path / "out.csv").exists()


def test_only_files_can_be_named():
    with pytest.raises(UsageError, match="not made of image files"):
        ensure_files({"train": arrays([0, 1])})
