"""Copies: which are found, what is remembered of them, and that every split has all or none of them."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.data.check.scenes import make_folder, scene
from tests.data.check.test_preflight import Counting, Stored
from tests.data.pictures import encoded
from tests.training.tiny_run import quietly

from vitrail.config import DataConfig
from vitrail.config.decoding import DecodePolicy
from vitrail.data import copies, open_data
from vitrail.data.check import preflight
from vitrail.data.check.origin import identities
from vitrail.data.copies import copies_of, hold_out_of
from vitrail.data.open import OpenOptions
from vitrail.data.pack import PackOptions, pack
from vitrail.data.sources.folder import open_folder
from vitrail.data.sources.joined import Joined
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.parts import parse_part, take_part
from vitrail.data.sources.source import Arrays, Source
from vitrail.errors import Notice
from vitrail.runtime.cache import cache_folder
from vitrail.training.sources import open_run_data


def names(source: Source, groups: np.ndarray) -> list[set[str]]:
    """The names in each group of two or more."""
    found = [{Path(source.where(index)).name for index in np.flatnonzero(groups == one)} for one in np.unique(groups)]
    return sorted((group for group in found if len(group) > 1), key=sorted)


@pytest.fixture
def folder(tmp_path) -> Path:
    """Twelve pictures, of which three are there again: as they are, as another JPEG, and smaller, in another class."""
    root = make_folder(tmp_path / "data", {"": 12})
    (root / "cat" / "same.jpg").write_bytes((root / "cat" / "0000.jpg").read_bytes())
    (root / "dog" / "worse.jpg").write_bytes(encoded(scene(1), "JPEG", quality=40))
    (root / "cat" / "small.png").write_bytes(encoded(scene(3).resize((54, 48)), "PNG"))
    return root


FOUND = [{"0000.jpg", "same.jpg"}, {"0001.jpg", "worse.jpg"}, {"0003.jpg", "small.png"}]


def test_exact_and_near_copies_are_found_also_across_classes(folder) -> None:
    source = open_folder(folder)
    found = copies_of(source)
    assert names(source, found.groups) == FOUND
    assert (found.groups <= np.arange(len(source))).all()
    assert found.notes == ("3 groups of copies (6 images) are kept on one side of every split.",)
    assert copies_of(open_folder(make_folder(folder.parent / "none", {"": 4}))).notes == ()


def test_a_large_jpeg_is_reduced_on_the_way_and_its_copies_are_found(folder) -> None:
    large = scene(50, (1440, 1280))
    (folder / "cat" / "large.jpg").write_bytes(encoded(large, "JPEG", quality=95))
    (folder / "cat" / "less.jpg").write_bytes(encoded(large.resize((360, 320)), "JPEG", quality=60))
    source = open_folder(folder)
    assert {"large.jpg", "less.jpg"} in names(source, copies_of(source).groups)


def test_what_was_found_is_remembered_until_a_file_changes(folder, monkeypatch) -> None:
    first = copies_of(open_folder(folder)).groups
    again = open_folder(folder)
    read = Counting(again, monkeypatch)
    assert copies_of(again).groups.tolist() == first.tolist() and not read.read
    other = encoded(scene(70), "JPEG", quality=90)
    (folder / "cat" / "same.jpg").write_bytes(other)
    assert names(again, copies_of(open_folder(folder)).groups) == FOUND[1:]


@pytest.mark.parametrize("most", [100, 4])
def test_only_what_is_new_is_read_and_all_are_counted(folder, monkeypatch, most) -> None:
    monkeypatch.setattr(copies, "NEAR_UP_TO", most)
    content, read = Path.open, []

    def opened(path: Path, *words: object, **options: object):
        if path.suffix in (".jpg", ".png"):
            read.append(path.name)
        return content(path, *words, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "open", opened)
    monkeypatch.setattr(Path, "read_bytes", lambda path: opened(path, "rb").read())
    first, done = open_folder(folder), []
    copies_of(first, done.append)
    assert sum(done) == len(first) and read
    content_of_new = (folder / "cat" / "0004.jpg").read_bytes()
    (folder / "dog" / "new.jpg").write_bytes(content_of_new)
    read.clear()
    source, done = open_folder(folder), []
    found = copies_of(source, done.append).groups
    assert set(read) <= ({"new.jpg"} if most == 100 else {"new.jpg", "0004.jpg"}) and "new.jpg" in read
    assert sum(done) == len(source)
    assert {"0004.jpg", "new.jpg"} in names(source, found)


def test_a_part_that_is_all_asks_for_no_copies(folder, monkeypatch) -> None:
    monkeypatch.setattr(copies, "copies_of", None)
    assert len(open_data(folder, "train[0%:100%]")) == len(open_data(folder))


def test_a_script_without_a_main_guard_takes_a_part(folder, tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, warnings\n"
        "from vitrail.data import open_data\n"
        "from vitrail.data.check import pool\n"
        "warnings.simplefilter('ignore')\n"
        "pool._WORTH_A_POOL = 1\n"
        "print(len(open_data(sys.argv[1], 'train[:50%]')))\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, str(script), str(folder)], capture_output=True, text=True, timeout=300)
    assert done.stderr == "" and 6 <= int(done.stdout) <= 9


def test_a_run_looks_for_copies_once(folder, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(copies, "identities", lambda source: asked.append(source) or identities(source))
    with pytest.warns(Notice, match="groups of copies"):
        open_run_data(DataConfig(data=str(folder), split="train[:90%]", held_out=0.3), torch.device("cpu"), quietly)
    assert len(asked) == 1


def test_a_record_that_is_damaged_is_made_again(folder) -> None:
    copies_of(open_folder(folder))
    (kept,) = cache_folder("copies").iterdir()
    for content in (b"", b"nonsense"):
        kept.write_bytes(content)
        source = open_folder(folder)
        assert names(source, copies_of(source).groups) == FOUND
    np.save(kept.open("wb"), np.full((2, len(source)), 10**6))
    source = open_folder(folder)
    assert names(source, copies_of(source).groups) == FOUND


def test_what_is_decoded_to_find_copies_is_not_read_again_to_see_whether_it_can_be(folder, monkeypatch) -> None:
    (folder / "dog" / "cut.jpg").write_bytes((folder / "dog" / "0001.jpg").read_bytes()[:-400])
    copies_of(open_folder(folder))
    source = open_folder(folder)
    read = Counting(source, monkeypatch)
    with pytest.warns(Notice, match="cut.jpg"):
        assert len(preflight(source, policy=DecodePolicy(), workers=0, skip_bad=True)) == 15
    assert [Path(source.where(index)).name for index in read.read] == ["cut.jpg"]


def test_a_source_that_nobody_knows_is_never_remembered() -> None:
    items = [encoded(scene(number), "PNG") for number in (0, 1, 0)]
    for _ in range(2):
        source = Stored(items)
        for _ in range(2):
            assert copies_of(source).groups.tolist() == [0, 1, 0]
        # An open source is what it was, also when it is asked again.
        assert source.reads == 3
    assert not cache_folder("copies").exists()


def test_in_many_images_only_equal_files_are_found_and_that_is_said(folder, monkeypatch) -> None:
    monkeypatch.setattr(copies, "NEAR_UP_TO", 4)
    # As long as another, equal at first, and yet no copy.
    content = (folder / "cat" / "0000.jpg").read_bytes()
    (folder / "cat" / "changed.jpg").write_bytes(content[:-9] + b"\0" + content[-8:])
    (folder / "cat" / "gone.jpg").symlink_to("nowhere")
    os.mkfifo(folder / "cat" / "pipe.jpg")
    with pytest.warns(Notice, match="a pipe"):
        source = open_folder(folder)
    found = copies_of(source)
    assert names(source, found.groups) == FOUND[:1]
    assert "Among more than 4 images near copies are not looked for" in found.notes[1]


@pytest.mark.filterwarnings("ignore::vitrail.errors.Notice")
def test_in_many_images_of_other_kinds(folder, monkeypatch) -> None:
    pack({"train": open_folder(folder)}, folder.parent / "pack", PackOptions())
    packed = open_data(folder.parent / "pack")
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 8), np.uint8)
    pixels[4] = pixels[1]
    arrays = Arrays("toy", "train", ("a", "b"), Labels.of([0, 0, 0, 1, 1, 1], 2), pixels)
    stored = Stored([encoded(scene(0), "PNG")] * 6)
    monkeypatch.setattr(copies, "NEAR_UP_TO", 4)
    assert len(np.unique(copies_of(packed).groups)) == len(packed) - 1
    assert copies_of(arrays).groups.tolist() == [0, 1, 2, 3, 1, 5]
    assert copies_of(Joined([arrays, arrays], "train")).groups.tolist() == [0, 1, 2, 3, 1, 5] * 2
    told = copies_of(stored)
    assert told.groups.tolist() == list(range(6)) and "Copies are not looked for in stored" in told.notes[0]


def test_pictures_of_one_kind_are_not_taken_for_copies() -> None:
    """A chain of near copies that is all of a class could never be both learnt and measured."""
    labels = Labels.of([0] * 12 + [1] * 12, 2)
    exact = np.arange(24)
    exact[1] = 0
    near = exact.copy()
    near[:12] = 0
    near[13] = 12
    groups, doubtful = copies._believed(labels, exact, near)
    assert groups.tolist() == [0, 0, *range(2, 13), 12, *range(14, 24)] and doubtful == 10
    # The same of a few, or of equal pixels, is what it seems.
    assert copies._believed(Labels.of([0] * 4 + [1] * 4, 2), np.arange(8), np.array([0] * 4 + [4, 5, 6, 7]))[1] == 0
    assert copies._believed(labels, near, near)[0].tolist() == near.tolist()


def test_parts_and_what_is_held_out_share_no_copy(folder) -> None:
    with pytest.warns(Notice, match="3 groups of copies"):
        first, second = (open_data(folder, part) for part in ("train[:50%]", "train[50%:]"))
    kept = [hold_out_of(open_folder(folder), 0.4, "together")[:2], (first, second)]
    for rest, held in kept:
        places = [{Path(source.where(index)).name for index in range(len(source))} for source in (rest, held)]
        assert sum(map(len, places)) == 15
        assert all(sum(bool(group & side) for side in places) == 1 for group in FOUND)
        assert "3 groups of copies" in held.notes[-1]


def test_parts_are_those_of_before_where_that_is_asked_for(folder) -> None:
    source = open_folder(folder)
    apart = open_data(folder, "train[:50%]", options=OpenOptions(copies="apart"))
    assert apart.digest() == take_part(source, parse_part("train[:50%]")).digest()
    assert not cache_folder("copies").exists()


def test_those_of_a_part_are_those_of_the_whole(folder) -> None:
    source = open_folder(folder)
    part = take_part(source, parse_part("train[:60%]"))
    found = copies_of(part).groups
    whole = copies_of(source).groups[part.ids(np.arange(len(part)))]
    assert [(whole == one).tolist() for one in whole] == [(found == one).tolist() for one in found]
