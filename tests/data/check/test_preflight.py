"""What training asks before its first step: stop at bad files, or leave them out and say so."""

import io
import os
import random
import tarfile
from pathlib import Path

import numpy as np
import pytest
from tests.data.check.scenes import make_folder, scene
from tests.data.pictures import encoded

from vitrail.config.decoding import DecodePolicy
from vitrail.data.check import preflight
from vitrail.data.check.preflight import verify
from vitrail.data.decoding.decode import decode
from vitrail.data.sources.folder import open_folder
from vitrail.data.sources.huggingface import open_huggingface
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.parts import parse_part, take_part
from vitrail.data.sources.shards import open_shards
from vitrail.data.sources.source import Arrays, Source
from vitrail.errors import DataError, Notice
from vitrail.runtime.cache import cache_folder

POLICY = DecodePolicy()


def checked(source: Source, **options) -> Source:
    return preflight(source, **({"policy": POLICY, "workers": 0} | options))


@pytest.fixture
def folder(tmp_path: Path, watched) -> Path:
    return make_folder(tmp_path / "data", {"": 12})


@pytest.fixture
def damaged(folder: Path) -> Path:
    whole = (folder / "cat" / "0000.jpg").read_bytes()
    (folder / "cat" / "0000.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "dog" / "page.jpg").write_bytes(b"<html>")
    return folder


class Counting:
    """Which images of a source are read."""

    def __init__(self, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: list[int] = []
        read = source.read

        def counted(index: int):
            self.read.append(index)
            return read(index)

        monkeypatch.setattr(source, "read", counted)


def test_a_clean_source_is_handed_on(folder, watched):
    source = open_folder(watched(folder))
    assert checked(source) is source


def test_bad_files_stop_with_one_error_that_says_what_to_do(damaged, watched):
    with pytest.raises(DataError) as caught:
        checked(open_folder(watched(damaged)))
    message = str(caught.value)
    assert message.startswith(f"{damaged}, train: 2 of 13 images cannot be read: {damaged}/cat/0000.jpg: the JPEG data")
    assert f"{damaged}/dog/page.jpg: the content is an HTML page" in message
    assert f"`vitrail data check {damaged}`" in message
    assert "data.skip_bad=True" in message


def test_of_many_bad_files_the_first_are_named_and_all_counted(folder):
    for path in (folder / "dog").iterdir():
        path.write_bytes(b"")
    with pytest.raises(DataError, match=r"6 of 12 images .*0001.*0003.*0005.* \(and 3 more\)"):
        checked(open_folder(folder))


def test_skipping_drops_records_and_tells(damaged, watched):
    with pytest.warns(
        Notice, match=r"2 of 13 images are left out because they cannot be read: .*0000\.jpg .* and 1 more"
    ):
        kept = checked(open_folder(watched(damaged)), skip_bad=True)
    assert len(kept) == 11
    assert kept.notes == ("2 of 13 images left out: they cannot be read (--skip-bad).",)
    names = {Path(kept.where(index)).name for index in range(len(kept))}
    assert not names & {"0000.jpg", "page.jpg"}
    assert kept.labels.counts().tolist() == [5, 6]
    for index in range(len(kept)):
        decode(kept.read(index))


def test_a_second_time_nothing_is_read(folder, monkeypatch):
    source = open_folder(folder)
    counting = Counting(source, monkeypatch)
    checked(source)
    assert sorted(counting.read) == list(range(12))
    counting.read.clear()
    done: list[int] = []
    checked(source, progress=done.append)
    assert counting.read == []
    assert sum(done) == 12


def test_bad_files_are_read_again_and_good_ones_are_not(damaged, monkeypatch):
    source = open_folder(damaged)
    counting = Counting(source, monkeypatch)
    for _ in range(2):
        counting.read.clear()
        with pytest.raises(DataError, match="2 of 13"):
            checked(source)
    assert len(counting.read) == 2


def test_a_file_that_changes_is_read_again(folder, monkeypatch):
    checked(open_folder(folder))
    path = folder / "cat" / "0002.jpg"
    whole = path.read_bytes()
    path.write_bytes(whole[:500] + bytes(len(whole) - 500))
    with pytest.raises(DataError, match=r"1 of 12 .*0002\.jpg"):
        checked(open_folder(folder))


def rewrite(path: Path, content: bytes) -> None:
    """Change a file behind the back of everyone who looks at its size and time."""
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_a_file_that_changes_and_keeps_size_and_time_is_read_again(folder):
    checked(open_folder(folder))
    path = folder / "cat" / "0002.jpg"
    rewrite(path, path.read_bytes()[:500].ljust(path.stat().st_size, b"\0"))
    with pytest.raises(DataError, match=r"1 of 12 .*0002\.jpg"):
        checked(open_folder(folder))


def test_a_shard_that_changes_and_keeps_size_and_time_is_read_again(tmp_path, monkeypatch):
    image = encoded(scene(1), "JPEG")
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for name, content in (("x.jpg", image), ("x.cls", b"0"), ("y.jpg", image), ("y.cls", b"1")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    checked(take_part(open_shards(str(path)), parse_part("train[:2]")))
    counting = Counting(source := open_shards(str(path)), monkeypatch)
    checked(take_part(source, parse_part("train[:2]")))
    assert counting.read == []
    rewrite(path, path.read_bytes().replace(image, image[:500].ljust(len(image), b"\0"), 1))
    with pytest.raises(DataError, match=r"1 of 2 .*x\.jpg"):
        checked(take_part(open_shards(str(path)), parse_part("train[:2]")))


def test_rows_whose_files_change_are_read_again(tmp_path):
    pytest.importorskip("datasets")
    import pyarrow as pa
    import pyarrow.parquet as pq

    image = encoded(scene(1), "JPEG")
    for name in ("1.jpg", "2.jpg"):
        (tmp_path / name).write_bytes(image)
    pq.write_table(pa.table({"image": ["1.jpg", "2.jpg"], "label": [0, 1]}), tmp_path / "x.parquet")
    checked(open_huggingface(str(tmp_path / "x.parquet")))
    rewrite(tmp_path / "2.jpg", image[:500].ljust(len(image), b"\0"))
    with pytest.raises(DataError, match=r"1 of 2 .*row 1"):
        checked(open_huggingface(str(tmp_path / "x.parquet")))


def test_a_file_that_comes_is_the_only_one_read(folder, monkeypatch):
    checked(open_folder(folder))
    (folder / "cat" / "new.jpg").write_bytes(encoded(scene(77), "JPEG"))
    source = open_folder(folder)
    counting = Counting(source, monkeypatch)
    checked(source)
    assert [Path(source.where(index)).name for index in counting.read] == ["new.jpg"]


def test_another_policy_is_another_verdict(folder):
    checked(open_folder(folder))
    with pytest.raises(DataError, match="12 of 12"):
        checked(open_folder(folder), policy=DecodePolicy(max_pixels=1000))


def test_a_part_shares_the_verdicts_of_the_whole(folder, monkeypatch):
    checked(open_folder(folder))
    part = take_part(open_folder(folder), parse_part("train[:50%]"))
    counting = Counting(part, monkeypatch)
    assert checked(part) is part
    assert counting.read == []


def test_a_damaged_cache_only_costs_time(folder, monkeypatch):
    checked(open_folder(folder))
    (cache,) = cache_folder("checked").iterdir()
    for content in (b"", b"rubbish", cache.read_bytes()[:-3]):
        cache.write_bytes(content)
        source = open_folder(folder)
        counting = Counting(source, monkeypatch)
        assert checked(source) is source
        assert len(counting.read) == 12


def test_a_cache_that_cannot_be_written_is_a_notice(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "file"))
    with pytest.warns(Notice, match="checked again next time"):
        checked(open_folder(folder))


def test_what_was_read_before_an_interruption_is_kept(tmp_path, monkeypatch):
    source = open_folder(make_folder(tmp_path / "data", {"": 40}))

    def stop(_done: int) -> None:
        if len(counting.read) >= 32:
            raise KeyboardInterrupt

    counting = Counting(source, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        checked(source, progress=stop)
    counting.read.clear()
    checked(source)
    assert len(counting.read) < 40


def test_workers_give_the_same_verdict(damaged):
    with pytest.raises(DataError) as alone:
        checked(open_folder(damaged))
    with pytest.raises(DataError) as together:
        checked(open_folder(damaged), workers=2)
    assert str(alone.value) == str(together.value)


def test_pixels_in_memory_need_no_check(monkeypatch):
    source = Arrays("x", "train", ("a",), Labels.of([0], 1), np.zeros((1, 4, 4), np.uint8))
    counting = Counting(source, monkeypatch)
    assert checked(source) is source
    assert counting.read == []


class Stored(Source):
    """Images that are no files of their own."""

    def __init__(self, items: list[bytes]) -> None:
        self.name, self.split, self.classes = "stored", "train", ("a",)
        self.labels = Labels.of([0] * len(items), 1)
        self.items, self.reads = items, 0

    def read(self, index: int) -> bytes:
        self.reads += 1
        return self.items[index]

    def where(self, index: int) -> str:
        return f"stored, image {index}"

    def manifest(self):
        yield from self.items


def test_images_of_which_nothing_is_known_are_read_every_time():
    """A kind of source that nobody has heard of may read from anywhere: equal names and sizes say nothing."""
    items = [encoded(scene(number), "PNG") for number in range(3)]
    assert checked(Stored(items)) is not None
    again = Stored(items)
    checked(again)
    assert again.reads == 3
    changed = Stored([*items[:2], b""])
    with pytest.raises(DataError, match="1 of 3 images cannot be read: stored, image 2: the file is empty"):
        checked(changed)
    assert changed.reads == 3


def samples() -> dict[str, bytes]:
    image, frames = scene(0), [scene(1), scene(2)]
    return {
        "baseline": encoded(image, "JPEG"),
        "progressive": encoded(image, "JPEG", progressive=True),
        "grey": encoded(image.convert("L"), "JPEG"),
        "cmyk": encoded(image.convert("CMYK"), "JPEG"),
        "several": encoded(image, "MPO", save_all=True, append_images=frames),
        "png": encoded(image, "PNG"),
        "webp": encoded(image, "WEBP"),
    }


@pytest.mark.parametrize("kind", samples())
def test_the_cheap_verdict_is_the_verdict_of_decoding(kind: str):
    """Whole, cut anywhere, and with bytes flipped."""
    whole = samples()[kind]
    chance = random.Random(0)
    blobs = [whole, *(whole[: chance.randrange(len(whole))] for _ in range(30))]
    for _ in range(30):
        flipped = bytearray(whole)
        flipped[chance.randrange(len(whole))] ^= chance.randrange(1, 256)
        blobs.append(bytes(flipped))
    verdicts = [(_refused(verify, blob), _refused(decode, blob)) for blob in blobs]
    assert [cheap for cheap, _ in verdicts] == [full for _, full in verdicts]
    assert verdicts[0][0] is None
    assert sum(cheap is not None for cheap, _ in verdicts) >= 5


def _refused(judge, blob: bytes) -> str | None:
    try:
        judge(blob, where="x", policy=DecodePolicy(max_pixels=100_000))
    except DataError as error:
        return str(error)
    return None


def test_verdicts_for_large_photos_are_cheaper(tmp_path):
    import time

    blob = encoded(scene(0, (3000, 2000)), "JPEG", quality=92)

    def seconds(judge) -> float:
        begin = time.thread_time()
        judge(blob, where="x", policy=POLICY)
        return time.thread_time() - begin

    assert min(seconds(verify) for _ in range(3)) < 0.8 * min(seconds(decode) for _ in range(3))
