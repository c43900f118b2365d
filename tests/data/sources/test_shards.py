"""Tar shards: found by pattern, indexed once, read by position, and refused when they are not what they should be."""

import gc
import gzip
import io
import json
import multiprocessing
import os
import pickle
import tarfile
import threading
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from vitrail.data.sources import shard_index
from vitrail.data.sources.classes import with_classes
from vitrail.data.sources.shards import Shards, open_shards
from vitrail.errors import DataError, Notice, UsageError

Members = dict[str, bytes]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "shards"


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def shard(path: Path, members: Members | list[tuple[str, bytes]], kind: int = tarfile.USTAR_FORMAT) -> Path:
    with tarfile.open(path, "w", format=kind) as archive:
        for name, content in members.items() if isinstance(members, dict) else members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def sample(key: str, number: int) -> Members:
    return {f"{key}.jpg": f"image {key}".encode(), f"{key}.cls": f"{number}\n".encode()}


def record(key: str, **values: object) -> Members:
    return {f"{key}.png": f"image {key}".encode(), f"{key}.json": json.dumps(values).encode()}


def labels_of(source: Shards) -> list[tuple[str, ...]]:
    return [tuple(source.classes[number] for number in source.labels.classes_of(index)) for index in range(len(source))]


def refusal(pattern: object, split: str = "train") -> str:
    with pytest.raises(DataError) as caught:
        open_shards(str(pattern), split)
    assert len(str(caught.value)) < 500
    return str(caught.value)


def test_images_come_in_the_order_of_the_shards(folder):
    shard(folder / "1.tar", sample("b", 2) | sample("a", 0))
    shard(folder / "0.tar", sample("x/c", 1))
    source = open_shards(f"{folder}/*.tar")
    assert [source.read(index) for index in (2, 0, 1)] == [b"image a", b"image x/c", b"image b"]
    assert source.labels.values.tolist() == [1, 2, 0]
    assert source.classes == ("0", "1", "2")
    assert source.where(0) == f"{folder}/0.tar: x/c.jpg"
    assert (source.name, source.split, source.notes) == (f"{folder}/*.tar", "train", ())


def test_patterns(folder):
    for number in (8, 9, 10, 11):
        shard(folder / f"a-{number}.tar", sample(f"{number}", number))
        shard(folder / f"b-{number:03}.tar", sample(f"{number}", number))
    (folder / "._a-8.tar").write_bytes(b"left by a Mac")

    def found(pattern: str) -> list[int]:
        return open_shards(f"{folder}/{pattern}").labels.values.tolist()

    assert found("a-{8..11}.tar") == [8, 9, 10, 11]
    assert found("b-{008..010}.tar") == [8, 9, 10]
    assert found("{a,b}-*[89].tar") == [8, 9, 8, 9]
    assert found("a-9.tar") == [9]
    assert found("?-*0.tar") == [10, 10]
    assert "the shard b-012.tar and 1 more is missing" in refusal(f"{folder}/b-{{008..013}}.tar")
    assert "there are no such shards; wanted tar files" in refusal(f"{folder}/c-{{0..3}}.tar")
    assert f"Write wds:{folder}/*.tar for a folder of shards" in refusal(folder)
    with pytest.raises(UsageError, match="more than 1,000,000 shards"):
        open_shards(f"{folder}/{{0..99999999999}}.tar")


def test_a_path_with_signs_of_a_pattern_in_it(tmp_path):
    folder = tmp_path / "a[1] {x}"
    folder.mkdir()
    shard(folder / "0.tar", sample("a", 0))
    assert len(open_shards(f"{folder}/0.tar")) == 1


def test_numbers_leave_room_for_classes_without_images(folder):
    source = open_shards(str(shard(folder / "0.tar", sample("a", 12))))
    assert len(source.classes) == 13
    assert source.labels.counts()[12] == 1


def test_names_from_json_are_sorted_and_nfc(folder):
    spelled = unicodedata.normalize("NFD", "고양이")
    shard(folder / "0.tar", record("a", label=spelled, size=3) | record("b", label="dog") | record("c", label="고양이"))
    source = open_shards(f"{folder}/0.tar")
    assert source.classes == ("dog", "고양이")
    assert source.labels.values.tolist() == [1, 0, 1]


def test_several_labels(folder):
    shard(folder / "0.tar", record("a", labels=["dog", "cat"]) | record("b", labels=[]))
    shard(folder / "1.tar", record("c", labels=["cat", "cat"]))
    source = open_shards(f"{folder}/*.tar")
    assert source.labels.is_multi
    assert labels_of(source) == [("dog", "cat"), (), ("cat",)]
    shard(folder / "2.tar", sample("a", 0))
    assert "some shards have 'label' and some have 'labels'" in refusal(f"{folder}/*.tar")
    shard(folder / "2.tar", record("a", label="cat") | record("b", labels=["cat"]))
    assert "2.tar: some images have 'label' and some have 'labels'" in refusal(f"{folder}/*.tar")


def test_names_from_a_file_beside_the_shards(folder):
    shard(folder / "0.tar", sample("a", 1) | record("b", label="fish"))
    (folder / "classes.txt").write_bytes("\ufeff고양이\r\nfish\r\nbird\r\n\r\n".encode())
    source = open_shards(f"{folder}/0.tar")
    assert source.classes == ("고양이", "fish", "bird")
    assert source.labels.values.tolist() == [1, 1]
    (folder / "classes.txt").write_text("cat\n\nfish\n")
    assert "classes.txt, line 2: the line is empty" in refusal(f"{folder}/0.tar")
    (folder / "classes.txt").write_text("cat\nfish\ncat\n")
    assert "classes.txt, line 3: the name 'cat' stands in line 1 already" in refusal(f"{folder}/0.tar")
    (folder / "classes.txt").write_text("fish\n")
    assert "the class 1 is not one of the 1 known ones; wanted classes among 'fish'" in refusal(f"{folder}/0.tar")
    (folder / "classes.txt").write_bytes(b"\xff\xfe")
    assert "classes.txt: the class names could not be read" in refusal(f"{folder}/0.tar")


def test_splits_have_the_classes_of_training(folder):
    shard(folder / "train-0.tar", record("a", label="cat") | record("b", label="ant"))
    shard(folder / "validation-0.tar", record("a", label="cat"))
    pattern = f"{folder}/{{split}}-{{0..0}}.tar"
    source = open_shards(pattern, "val")
    assert source.classes == ("ant", "cat")
    assert source.labels.values.tolist() == [1]
    assert source.where(0) == f"{folder}/validation-0.tar: a.png"
    assert open_shards(pattern).split == "train"
    assert "there are no shards for 'test'" in refusal(pattern, "test")
    shard(folder / "test-0.tar", record("a", label="cow"))
    assert "the class 'cow' is not one of the 2 known ones" in refusal(pattern, "test")


def test_numbers_of_a_split_that_training_does_not_have(folder):
    shard(folder / "train.tar", sample("a", 2))
    shard(folder / "test.tar", sample("a", 1))
    assert len(open_shards(f"{folder}/{{split}}.tar", "test").classes) == 3
    shard(folder / "test.tar", sample("a", 3))
    assert "the class 3 is not one of the 3 known ones" in refusal(f"{folder}/{{split}}.tar", "test")
    (folder / "train.tar").unlink()
    assert len(open_shards(f"{folder}/{{split}}.tar", "test").classes) == 4


def test_a_folder_for_each_split_with_the_names_above(folder):
    for split in ("train", "val"):
        (folder / split).mkdir()
        shard(folder / split / "0.tar", sample("a", 1))
    (folder / "classes.txt").write_text("cat\ndog\n")
    assert open_shards(f"{folder}/{{split}}/*.tar", "val").classes == ("cat", "dog")


def test_a_split_without_a_place_for_it_in_the_pattern(folder):
    shard(folder / "0.tar", sample("a", 1))
    assert "without {split} in the pattern all shards are 'train'" in refusal(f"{folder}/0.tar", "val")


@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_foreign_names(folder, kind):
    keys = ["x" * 300, f"{'folder/' * 30}é 사진 😀", "deep/" + "y" * 150]
    members: Members = {}
    for number, key in enumerate(keys):
        members |= sample(key, number)
    source = open_shards(str(shard(folder / "0.tar", members, kind)))
    assert [source.read(index) for index in range(3)] == [f"image {key}".encode() for key in keys]
    assert source.labels.values.tolist() == [0, 1, 2]
    assert source.where(1).endswith(": " + keys[1] + ".jpg")


def test_names_that_are_no_utf8_survive_the_cache(folder):
    name = os.fsdecode(b"caf\xe9")
    shard(folder / "0.tar", {f"{name}.jpg": b"image", f"{name}.cls": b"0"}, tarfile.GNU_FORMAT)
    for _ in range(2):
        source = open_shards(f"{folder}/0.tar")
        assert source.where(0) == f"{folder}/0.tar: caf\\xe9.jpg"
        assert source.read(0) == b"image"
        assert len(source.digest()) == 64


def test_nothing_is_unpacked_so_a_name_may_climb(folder, tmp_path):
    source = open_shards(str(shard(folder / "0.tar", sample("../../outside", 0) | sample("/abs/olute", 1))))
    assert [source.read(0), source.read(1)] == [b"image ../../outside", b"image /abs/olute"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "data"]
    assert [path.name for path in folder.iterdir()] == ["0.tar"]


def test_endings_in_capitals_folders_and_what_a_mac_leaves(folder):
    with tarfile.open(folder / "0.tar", "w") as archive:
        inside = tarfile.TarInfo("photos.v1")
        inside.type = tarfile.DIRTYPE
        archive.addfile(inside)
        for name, content in {
            "photos.v1/a.JPEG": b"image",
            "photos.v1/a.CLS": b" 1 ",
            "photos.v1/._a.JPEG": b"?",
        }.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    assert labels_of(open_shards(f"{folder}/0.tar")) == [("1",)]


def test_other_members_are_told(folder):
    members = sample("a", 0) | {"a.txt": b"words", "a.seg.png": b"mask", "LICENSE": b"free"}
    shard(folder / "0.tar", members)
    shard(folder / "1.tar", sample("b", 0) | {"b.txt": b"words"})
    with pytest.warns(Notice, match=r"ignored: 1 with \.seg\.png, 2 with \.txt, 1 with no ending"):
        source = open_shards(f"{folder}/*.tar")
    assert len(source.notes) == 1
    assert len(source) == 2


def test_a_record_of_other_things_does_not_stand_in_the_way_of_a_number(folder):
    members = record("a", caption="words", label="ignored") | {"a.cls": b"3"}
    assert labels_of(open_shards(str(shard(folder / "0.tar", members)))) == [("3",)]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({}, "the shards hold no images"),
        ({"a.jpg": b"x"}, "0.tar: a.jpg: the image has no label; wanted a .cls"),
        ({"a.jpg": b"x", "a.json": b'{"caption": "?"}'}, "0.tar: a.jpg: the image has no label"),
        ({"a.jpg": b"x", "a.json": b"[1]"}, "0.tar: a.jpg: the image has no label"),
        (sample("a", 0) | {"b/a.cls": b"0"}, "0.tar: the key 'b/a' has a label and no image"),
        (sample("a", 0) | {"c.json": b"{}"}, "0.tar: the key 'c' has a label and no image"),
        (sample("a", 0) | {"a.png": b"y"}, "0.tar: a.png: the key is used twice, the first time by a.jpg"),
        ([("a.jpg", b"1"), ("a.cls", b"1"), ("a.cls", b"2")], "0.tar: a.cls: the key has two labels of this kind"),
        ({"a.jpg": b"x", "a.cls": b"cat"}, "0.tar: a.cls: the label is 'cat'; wanted a class number from 0 up"),
        ({"a.jpg": b"x", "a.cls": b"-1"}, "a.cls: the label is '-1'"),
        ({"a.jpg": b"x", "a.cls": b""}, "a.cls: the label is ''"),
        ({"a.jpg": b"x", "a.cls": b"\xff\0" * 99}, "a.cls: the label is "),
        ({"a.jpg": b"x", "a.cls": b"99999999"}, "a label is 99,999,999; wanted class numbers below 1,048,576"),
        ({"a.jpg": b"x", "a.json": b"{"}, "a.json: the label is no JSON"),
        ({"a.jpg": b"x", "a.json": b"[" * 100_000}, "a.json: the label is no JSON"),
        ({"a.jpg": b"x", "a.json": b'{"label": true}'}, "a.json: the record has 'label': True; wanted"),
        ({"a.jpg": b"x", "a.json": b'{"label": 1.0}'}, "a.json: the record has 'label': 1.0; wanted"),
        ({"a.jpg": b"x", "a.json": b'{"label": ""}'}, "a.json: the record has 'label': ''; wanted"),
        ({"a.jpg": b"x", "a.json": b'{"labels": "cat"}'}, "a.json: the record has 'labels': 'cat'; wanted"),
        ({"a.jpg": b"x", "a.json": b'{"label": 1, "labels": [1]}'}, "'label': 1, 'labels': [1]; wanted"),
        ({"a.jpg": b"x", "a.json": b" " * 2_000_000}, "a.json: the label is 2,000,000 bytes long"),
        (record("a", label="x") | record("b", label=1), "some labels are numbers (1) and some are names ('x')"),
    ],
)
def test_labels_that_are_missing_or_wrong(folder, members, message):
    assert message in refusal(shard(folder / "0.tar", members))


def test_a_link_in_the_tar_is_no_image(folder):
    with tarfile.open(folder / "0.tar", "w") as archive:
        for name, kind in (("a.jpg", tarfile.LNKTYPE), ("b.jpg", tarfile.SYMTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    assert "0.tar: a.jpg: the member is a link or sparse; wanted a plain file" in refusal(folder / "0.tar")


def test_a_compressed_shard_is_refused(folder):
    content = shard(folder / "0.tar", sample("a", 0)).read_bytes()
    (folder / "0.tar.gz").write_bytes(gzip.compress(content))
    assert "the shard is compressed (gzip), so its images cannot be reached one by one" in refusal(folder / "0.tar.gz")
    (folder / "1.tar").write_bytes(gzip.compress(content))
    assert "1.tar: the shard is compressed (gzip)" in refusal(folder / "1.tar")


def test_a_shard_cut_off_anywhere_is_refused(folder):
    members: Members = {}
    for number in range(4):
        members |= {f"{number}.jpg": bytes([number + 1]) * 700, f"{number}.cls": b"0"}
    content = shard(folder / "whole.tar", members).read_bytes()
    # Four images of 3 blocks and four labels of 2; every cut before the end mark, also between two members.
    for cut in [*range(0, 20 * 512, 256), 20 * 512, 20 * 512 + 511]:
        (folder / "cut.tar").write_bytes(content[:cut])
        assert "cut.tar: the tar " in refusal(folder / "cut.tar"), cut
    (folder / "cut.tar").write_bytes(content[: 21 * 512])
    assert len(open_shards(f"{folder}/cut.tar")) == 4


def test_a_damaged_header_is_not_taken_for_the_end(folder):
    content = bytearray(shard(folder / "0.tar", sample("a", 0) | sample("b", 1)).read_bytes())
    content[4 * 512 + 3] ^= 0xFF
    (folder / "0.tar").write_bytes(content)
    assert "0.tar: the tar cannot be read on from byte 2,048" in refusal(folder / "0.tar")


def test_shards_joined_into_one_are_not_read_in_part(folder):
    parts = [shard(folder / f"{number}.tar", sample(f"{number}", 0)).read_bytes() for number in range(2)]
    (folder / "joined.tar").write_bytes(b"".join(parts))
    assert "joined.tar: the tar cannot be read on from byte" in refusal(folder / "joined.tar")


@pytest.mark.parametrize("content", [b"<html>404</html>", b"x" * 5000, os.urandom(3000)])
def test_something_else_called_tar(folder, content):
    (folder / "0.tar").write_bytes(content)
    assert "0.tar: the tar is damaged or cut off" in refusal(folder / "0.tar")


def test_a_shard_is_indexed_once(folder, cache, monkeypatch):
    shard(folder / "0.tar", sample("a", 2) | sample("b", 0))
    shard(folder / "1.tar", sample("c", 1))
    first = open_shards(f"{folder}/*.tar")
    assert len(list(cache.iterdir())) == 2
    monkeypatch.setattr(shard_index, "_scan", None)
    second = open_shards(f"{folder}/*.tar")
    assert second.digest() == first.digest()
    assert [second.read(index) for index in range(3)] == [b"image a", b"image b", b"image c"]
    assert sorted(path.name for path in folder.iterdir()) == ["0.tar", "1.tar"]


def test_a_long_wait_is_told_once(folder, monkeypatch):
    monkeypatch.setattr(shard_index, "_WORTH_TELLING", 10_000)
    path = str(shard(folder / "0.tar", sample("a", 0)))
    with pytest.warns(Notice, match="GB of shards are indexed now; the next time they open at once"):
        open_shards(path)
    assert len(open_shards(path)) == 1


def test_a_shard_that_has_changed_is_indexed_again(folder):
    path = shard(folder / "0.tar", sample("a", 0) | sample("b", 1))
    before = open_shards(str(path))
    shard(path, sample("b", 1) | sample("a", 0))
    os.utime(path, ns=(1, 1))
    after = open_shards(str(path))
    assert [after.read(0), after.labels.values.tolist()] == [b"image b", [1, 0]]
    assert before.digest() != after.digest()


def test_a_shard_that_changes_while_it_is_read(folder):
    path = shard(folder / "0.tar", sample("a", 0))
    unopened, opened = open_shards(str(path)), open_shards(str(path))
    assert opened.read(0) == b"image a"
    os.utime(path, ns=(1, 1))
    for source in (opened, unopened):
        with pytest.raises(DataError, match=r"0\.tar: a\.jpg: the shard has changed since it was opened"):
            source.read(0)
    path.unlink()
    with pytest.raises(DataError, match=r"0\.tar: the shard could not be read \(No such file"):
        pickle.loads(pickle.dumps(opened)).read(0)  # noqa: S301


@pytest.mark.parametrize("damage", [b"", b"PK not a zip", None])
def test_a_damaged_cache_is_made_anew(folder, cache, damage):
    shard(folder / "0.tar", sample("a", 1))
    open_shards(f"{folder}/0.tar")
    (kept,) = cache.iterdir()
    if damage is None:
        np.savez(kept, text=np.array([{"pickled": 1}], dtype=object))
    else:
        kept.write_bytes(damage)
    assert open_shards(f"{folder}/0.tar").read(0) == b"image a"
    with np.load(kept, allow_pickle=False) as file:
        assert file["sizes"].tolist() == [7]


def test_a_cache_that_cannot_be_written_is_told_and_no_more(folder, tmp_path, monkeypatch):
    (tmp_path / "blocked").write_text("a file, not a folder")
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "blocked"))
    shard(folder / "0.tar", sample("a", 1))
    with pytest.warns(Notice, match="could not be written .* The shards are indexed again next time"):
        source = open_shards(f"{folder}/0.tar")
    assert source.read(0) == b"image a"


def test_digest_says_what_differs(folder):
    path = str(shard(folder / "0.tar", sample("a", 0) | sample("b", 1)))
    first = open_shards(path).digest()
    os.utime(path, ns=(5, 5))
    assert open_shards(path).digest() == first
    for members in (sample("a", 1) | sample("b", 0), sample("a", 0) | sample("c", 1)):
        shard(folder / "0.tar", members)
        assert open_shards(path).digest() != first


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts open files as Linux lists them")
def test_open_files_are_few_and_closed_with_the_source(folder):
    for number in range(100):
        shard(folder / f"{number:03}.tar", sample(f"{number}", 0))
    # What others left open and forgot is not closed in between.
    gc.collect()
    before = open_files()
    source = open_shards(f"{folder}/{{000..099}}.tar")
    assert [source.read(index) for index in range(100)] == [f"image {index}".encode() for index in range(100)]
    assert before + 60 <= open_files() <= before + 64
    del source
    assert open_files() == before


def test_threads_share_a_source(folder):
    for number in range(80):
        shard(folder / f"{number:02}.tar", sample(f"{number}", 0))
    source = open_shards(f"{folder}/*.tar")
    wrong: list[int] = []

    def read(step: int) -> None:
        for turn in range(400):
            index = turn * step % 80
            if source.read(index) != f"image {index}".encode():
                wrong.append(index)

    threads = [threading.Thread(target=read, args=(step,)) for step in (1, 3, 7, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def _read_all(source: Shards) -> list[bytes]:
    return [bytes(source.read(index)) for index in range(len(source))]


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_other_processes_read_the_same(folder, method):
    shard(folder / "0.tar", sample("a", 2) | sample("b", 0))
    shard(folder / "1.tar", sample("c", 1))
    source = open_shards(f"{folder}/*.tar")
    here = _read_all(source)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(_read_all, [source, source]) == [here, here]
    assert _read_all(source) == here


def test_a_copy_with_the_classes_of_a_model(folder):
    shard(folder / "0.tar", record("a", label="cat") | record("b", label="dog"))
    source = with_classes(open_shards(f"{folder}/0.tar"), ("dog", "ant", "cat"))
    assert source.labels.values.tolist() == [2, 0]
    assert source.read(1) == b"image b"


def test_each_split_may_have_class_names_in_another_order(folder):
    for split, names in (("train", "cat\ndog\n"), ("val", "dog\ncat\n")):
        (folder / split).mkdir()
        (folder / split / "classes.txt").write_text(names)
        shard(folder / split / "0.tar", sample("x", 0) | record("y", label="cat"))
    source = open_shards(f"{folder}/{{split}}/*.tar", "val")
    assert source.classes == ("cat", "dog")
    assert labels_of(source) == [("dog",), ("cat",)]
    (folder / "val" / "classes.txt").write_text("dog\n")
    shard(folder / "val" / "0.tar", sample("x", 1))
    assert "a label is 1; wanted 0 to 0" in refusal(f"{folder}/{{split}}/*.tar", "val")


def test_numbers_where_training_has_names_are_refused(folder):
    shard(folder / "train.tar", record("a", label="zebra") | record("b", label="ant"))
    shard(folder / "val.tar", sample("a", 0))
    assert "the label 0 is a number, and training has names such as 'ant'" in refusal(f"{folder}/{{split}}.tar", "val")


def test_a_shard_that_changes_and_keeps_size_and_time_is_indexed_again(folder):
    path = shard(folder / "a.tar", sample("x", 0))
    before = path.stat()
    open_shards(str(path))
    shard(path, sample("x", 1))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert open_shards(str(path)).labels.values.tolist() == [1]


def test_new_rights_do_not_stop_reading(folder):
    path = shard(folder / "a.tar", sample("x", 0))
    source = open_shards(str(path))
    path.chmod(0o600)
    assert source.read(0) == b"image x"


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_thousands_of_headers_on_top_of_each_other(folder, kind):
    header = tarfile.TarInfo("x")
    header.type = kind
    header.size = 0 if kind == tarfile.XHDTYPE else 2
    block = header.tobuf(tarfile.USTAR_FORMAT) + (b"" if kind == tarfile.XHDTYPE else b"x\0".ljust(512, b"\0"))
    (folder / "a.tar").write_bytes(block * 2000 + bytes(1024))
    assert "damaged" in refusal(folder / "a.tar")


@pytest.mark.parametrize("label", ['"\\ud800"', '"a\\udc80"'])
def test_half_a_character_is_no_label(folder, label):
    shard(folder / "a.tar", {"x.png": b"image", "x.json": b'{"label": %s}' % label.encode()})
    assert "the record has 'label'" in refusal(folder / "a.tar")


@pytest.mark.parametrize("pattern", ["~nobody-of-this-name/x.tar", "n" * 5000, "n" * 5000 + "/*.tar", "a\0b"])
def test_patterns_that_can_be_no_path(pattern):
    assert refusal(pattern)


def test_a_pattern_longer_than_a_file_name_may_be(folder):
    for number in range(60):
        shard(folder / f"shard-{number:05}.tar", sample("x", 0))
    pattern = ",".join(f"shard-{number:05}" for number in range(60))
    assert len(open_shards(f"{folder}/{{{pattern}}}.tar")) == 60
