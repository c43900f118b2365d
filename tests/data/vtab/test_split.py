"""Which images are taken: by a rule that anyone can repeat, or by lists."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from tests.data.vtab.made import make_caltech, make_resisc

from vitrail.data import OpenOptions, open_data
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.source import Arrays
from vitrail.data.vtab.open import task_split
from vitrail.data.vtab.pools import Listed, held_back, shared_out
from vitrail.data.vtab.split import RULE, own_split
from vitrail.data.vtab.tasks import TASKS
from vitrail.errors import DataError, UsageError

pytestmark = pytest.mark.filterwarnings("ignore::vitrail.errors.Notice")


def listed(count: int) -> Listed:
    pixels = np.zeros((count, 1, 1), dtype=np.uint8)
    source = Arrays("made", "train", ("a", "b"), Labels.of([0] * count, 2), pixels)
    return Listed(source, [f"train_{index:05d}" for index in range(count)])


def test_the_rule_is_the_sha256_of_the_ids():
    pools = held_back("svhn", listed(2000), 90, listed(7))
    split = own_split(TASKS["svhn"], pools)
    assert (len(split.train), len(split.val), len(split.test)) == (800, 200, 7)
    names = [f"train_{index:05d}" for index in range(2000)]
    wanted = sorted(names, key=lambda name: hashlib.sha256(f"vitrail-vtab:svhn:{name}".encode()).digest())
    assert split.ids()["train800"] == wanted[:800]
    assert split.ids()["val200"] == wanted[1800:]
    assert "vitrail-vtab:NAME:ID" in RULE


@pytest.mark.parametrize(
    ("count", "train", "val", "sizes"),
    [
        (108_753, 70, 10, TASKS["sun397"].images),
        (27_000, 60, 20, TASKS["eurosat"].images),
        (31_500, 60, 20, TASKS["resisc45"].images),
    ],
)
def test_pools_have_the_sizes_of_vtab(count, train, val, sizes):
    pools = shared_out("made", listed(count), train, val)
    assert (len(pools.train), len(pools.val), len(pools.test)) == sizes


def test_the_order_of_the_files_changes_nothing():
    first = listed(100)
    second = Listed(first.source, list(reversed(first.ids)))
    pools = [held_back("made", one, 80, one) for one in (first, second)]
    taken = [[one.learn.ids[index] for index in one.train.tolist()] for one in pools]
    assert taken[0] == taken[1] != sorted(taken[0])


def opened_ids(name: str, root: Path) -> dict[str, list[str]]:
    return task_split(name, root=root)[0].ids()


@pytest.fixture
def root(tmp_path) -> Path:
    make_resisc(tmp_path, None)
    (tmp_path / "vtab").mkdir()
    return tmp_path


def test_what_is_stored_is_taken_as_a_list(root):
    split, _ = task_split("resisc45", root=root)
    kept = split.record()
    assert (kept["origin"], len(str(kept["sha256"]))) == ("own split", 64)
    path = root / "vtab" / "resisc45.json"
    path.write_text(json.dumps(kept))
    again, notes = task_split("resisc45", root=root)
    assert again.ids() == split.ids()
    assert again.record()["sha256"] == kept["sha256"]
    assert again.origin == str(path) and notes[0] == f"vtab:resisc45: the split is that of {path}."


def test_text_lists_say_what_to_learn_from_and_nothing_of_it_is_tested_on(root):
    before = opened_ids("resisc45", root)
    # Images that our own rule would test on.
    stolen = before["test"]
    (root / "vtab" / "resisc45.train800.txt").write_text("\n".join(f"/{name}" for name in stolen[:4]) + "\n\n")
    (root / "vtab" / "resisc45.val200.txt").write_text(f"{stolen[4]}\n")
    now = opened_ids("resisc45", root)
    assert (now["train800"], now["val200"]) == (stolen[:4], stolen[4:5])
    assert now["test"] == stolen[5:]
    test = open_data("vtab:resisc45", "test", options=OpenOptions(root=root))
    assert len(test) == len(stolen) - 5


@pytest.mark.parametrize(
    ("lists", "reason"),
    [
        ("{", "the lists cannot be read ("),
        ({"train800": ["scene00_000.jpg"]}, "the lists cannot be read ('val200')"),
        ({"train800": [3], "val200": []}, "a list holds something else than ids"),
        ({"train800": ["x.jpg"], "val200": ["x.jpg"]}, "there is no image 'x.jpg' (train800); wanted ids such as 'sc"),
        ({"train800": ["scene00_000.jpg"], "val200": []}, "val200 is empty or names an image twice"),
        (
            {"train800": ["scene00_000.jpg"], "val200": ["scene00_000.jpg"]},
            "an image is named twice in train800 and val200",
        ),
        (
            {"train800": ["scene00_000.jpg"], "val200": ["scene00_001.jpg"], "test": ["scene00_001.jpg"]},
            "'scene00_001.jpg' is learnt from and tested on",
        ),
    ],
)
def test_lists_that_are_none(lists, reason, root):
    path = root / "vtab" / "resisc45.json"
    path.write_text(lists if isinstance(lists, str) else json.dumps(lists))
    with pytest.raises(DataError) as caught:
        task_split("resisc45", root=root)
    assert str(caught.value).startswith(f"{path}: ") and reason in str(caught.value)


def test_names_of_splits_and_tasks(root):
    options = OpenOptions(root=root)
    with pytest.raises(DataError, match=r"there is no 'train1000' part; it has .* train\+val \(train1000\)"):
        open_data("vtab:resisc45", "train1000", options=options)
    with pytest.raises(UsageError, match=r"^Unknown VTAB task 'resisc54'\. Did you mean 'resisc45'\?$"):
        open_data("vtab:resisc54", "train", options=options)
    with pytest.raises(UsageError, match="the data is 'vtab:'"):
        open_data("vtab:", "train", options=options)
    part = open_data("vtab:resisc45", "train[:10]", options=options)
    assert len(part) == 10


def test_a_class_in_another_case_is_another_file(tmp_path):
    make_caltech(tmp_path, None)
    names = opened_ids("caltech101", tmp_path)["train800"]
    assert len(set(names)) == len(names) and all("/" in name for name in names)
