"""Hugging Face data sets: saved folders, Parquet from anywhere, and the hub through an emulator on this machine."""

import hashlib
import io
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from vitrail.data.decoding.decode import decode, pixels
from vitrail.data.sources.classes import with_classes
from vitrail.data.sources.huggingface import is_saved, open_huggingface
from vitrail.data.sources.source import Source
from vitrail.errors import DataError, UsageError

datasets = pytest.importorskip("datasets")

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "their cache")


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def png(value: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (2, 2), value).save(buffer, "PNG")
    return buffer.getvalue()


def images(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"bytes": png(value), "path": f"{value}.png"} for value in range(start, start + count)]


def saved(path: Path, labels: list[Any], feature: Any, start: int = 0, **more: Any) -> Any:
    columns = {"image": images(len(labels), start), "label": labels, **more}
    features = datasets.Features(
        {"image": datasets.Image(), "label": feature, **{name: datasets.Value("string") for name in more}}
    )
    dataset = datasets.Dataset.from_dict(columns, features=features)
    dataset.save_to_disk(str(path))
    return dataset


def parquet(path: Path, labels: Any, start: int = 0, column: str = "label", **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"image": pa.array(images(len(labels), start), IMAGE), column: labels})
    pq.write_table(table, path, **options)
    return path


def shades(source: Source) -> list[int]:
    return [int(pixels(decode(source.read(index), "L"))[0, 0, 0]) for index in range(len(source))]


def labels_of(source: Source) -> list[tuple[str, ...]]:
    return [tuple(source.classes[number] for number in source.labels.classes_of(index)) for index in range(len(source))]


def refusal(name: object, split: str = "train") -> str:
    with pytest.raises(DataError) as caught:
        open_huggingface(str(name), split)
    message = str(caught.value)
    assert len(message) < 600
    assert "\n" not in message
    return message


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_saved_data_set(folder):
    name = unicodedata.normalize("NFD", "고양이")
    saved(folder, [1, 0, 1], datasets.ClassLabel(names=["dog", name]), start=7)
    before = contents(folder)
    source = open_huggingface(str(folder))
    assert source.classes == ("dog", "고양이")
    assert source.labels.values.tolist() == [1, 0, 1]
    assert shades(source) == [7, 8, 9]
    assert source.read(0) == png(7)
    assert source.where(2) == f"{folder}, train, row 2"
    assert (source.name, source.split) == (str(folder), "train")
    assert len(source.digest()) == 64
    assert contents(folder) == before


def test_saved_splits_by_their_usual_names(folder):
    feature = datasets.ClassLabel(names=["a", "b"])
    parts = {"train": [0, 1], "validation": [1], "test": [1, 1, 0], "unsupervised": [0]}
    whole = datasets.DatasetDict({name: saved(folder / "x" / name, labels, feature) for name, labels in parts.items()})
    whole.save_to_disk(str(folder / "all"))
    for split, count in {"train": 2, "val": 1, "validation": 1, "test": 3, "unsupervised": 1}.items():
        assert len(open_huggingface(str(folder / "all"), split)) == count
    assert open_huggingface(str(folder / "all"), "validation").split == "val"
    assert "there is no 'extra' part; it has train, val, test, unsupervised" in refusal(folder / "all", "extra")
    only = folder / "x" / "only"
    datasets.Dataset.from_dict({"image": images(1), "label": [0]}, split="test").save_to_disk(str(only))
    assert len(open_huggingface(str(only), "test")) == 1
    assert "there is no 'train' part; it has test. Ask for 'test'." in refusal(only)


def test_parquet_as_the_hub_writes_it(folder):
    for split, labels, start in (("train", [2, 0], 0), ("train", [1], 2), ("validation", [0], 9)):
        path = folder / "data" / f"{split}-{start:05}-of-00009.parquet"
        saved(folder.parent / f"saved {start}", labels, datasets.ClassLabel(names=["a", "b", "c"]), start).to_parquet(
            path
        )
    (folder / "README.md").write_text("# card")
    (folder / ".gitattributes").write_text("*")
    before = contents(folder)
    source = open_huggingface(str(folder))
    assert (source.classes, source.labels.values.tolist(), shades(source)) == (("a", "b", "c"), [2, 0, 1], [0, 1, 2])
    assert shades(open_huggingface(str(folder), "val")) == [9]
    assert contents(folder) == before
    assert (folder.parent / "cache" / "huggingface").is_dir()
    assert not (folder.parent / "their cache").exists()


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["train.parquet", "test.parquet"], {"train": [0], "test": [1]}),
        (["train/0.parquet", "dev/0.parquet"], {"train": [0], "val": [1]}),
        (["part1.parquet", "part2.parquet"], {"train": [0, 1]}),
        (["train_a-00000-of-00002.parquet", "train_b-00000-of-00002.parquet"], {"train_a": [0], "train_b": [1]}),
    ],
)
def test_which_split_a_file_is(folder, names, splits):
    for number, name in enumerate(names):
        parquet(folder / name, ["x"], start=number)
    for split, expected in splits.items():
        assert shades(open_huggingface(str(folder), split)) == expected


def test_one_file(folder):
    plain = parquet(folder / "images [1]*.parquet", ["b", "a"])
    assert open_huggingface(str(plain)).classes == ("a", "b")
    assert "there is no 'val' part" in refusal(plain, "val")
    assert len(open_huggingface(str(parquet(folder / "test.parquet", ["a"])), "test")) == 1


@pytest.mark.parametrize(
    ("labels", "classes", "expected"),
    [
        (["dog", "cat", "dog"], ("cat", "dog"), [1, 0, 1]),
        (["10", "9", "9"], ("9", "10"), [1, 0, 0]),
        ([3, 0, 3], ("0", "1", "2", "3"), [3, 0, 3]),
        (pa.array([1, 0, 1], pa.uint8()), ("0", "1"), [1, 0, 1]),
        (pa.array(["b", "a", "b"], pa.large_string()), ("a", "b"), [1, 0, 1]),
        (pa.array(["b", "a", "b"]).dictionary_encode(), ("a", "b"), [1, 0, 1]),
        ([unicodedata.normalize("NFD", "é"), "é", "f"], ("f", "é"), [1, 1, 0]),
    ],
)
def test_labels_without_a_list_of_names(folder, labels, classes, expected):
    source = open_huggingface(str(parquet(folder / "x.parquet", labels)))
    assert (source.classes, source.labels.values.tolist()) == (classes, expected)


@pytest.mark.parametrize(
    "labels",
    [
        pa.array([["b", "a"], [], ["b"]]),
        pa.array([["b", "a"], [], ["b"]], pa.large_list(pa.string())),
    ],
)
def test_several_labels(folder, labels):
    source = open_huggingface(str(parquet(folder / "x.parquet", labels, column="labels", row_group_size=2)))
    assert source.labels.is_multi
    assert labels_of(source) == [("b", "a"), (), ("b",)]


def test_several_labels_with_names_or_of_one_length(folder):
    saved(folder / "many", [[1, 0], [], [1]], datasets.List(datasets.ClassLabel(names=["a", "b"])))
    assert labels_of(open_huggingface(str(folder / "many"))) == [("b", "a"), (), ("b",)]
    fixed = pa.array([[1, 0], [0, 2]], pa.list_(pa.int64(), 2))
    assert labels_of(open_huggingface(str(parquet(folder / "x.parquet", fixed)))) == [("1", "0"), ("0", "2")]


def test_other_splits_have_the_classes_of_training(folder):
    parquet(folder / "train.parquet", ["cat", "ant"])
    parquet(folder / "val.parquet", ["cat"])
    parquet(folder / "test.parquet", ["cow"])
    source = open_huggingface(str(folder), "val")
    assert (source.classes, source.labels.values.tolist()) == (("ant", "cat"), [1])
    assert "the class 'cow' is not one of the 2 known ones" in refusal(folder, "test")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([png(5), png(6)]),
        pa.array([png(5), png(6)], pa.large_binary()),
        pa.array([{"bytes": png(value)} for value in (5, 6)], pa.struct([("bytes", pa.binary())])),
        pa.array([{"path": None, "bytes": png(value)} for value in (5, 6)]),
    ],
)
def test_images_without_the_metadata_of_hugging_face(folder, column):
    pq.write_table(pa.table({"id": ["x", "y"], "picture": column, "label": [0, 1]}), folder / "x.parquet")
    source = open_huggingface(str(folder / "x.parquet"))
    assert shades(source) == [5, 6]
    assert len(source.digest()) == 64


@pytest.mark.parametrize("kind", ["record", "text"])
def test_paths_in_place_of_images(folder, kind):
    (folder / "pictures").mkdir()
    (folder / "pictures" / "1.png").write_bytes(png(1))
    paths = ["pictures/1.png", "pictures/2.png", "https://example.org/3.png"]
    records = [{"bytes": None, "path": path} for path in paths]
    column = pa.array(records, IMAGE) if kind == "record" else pa.array(paths)
    pq.write_table(pa.table({"image": column, "label": [0, 1, 1]}), folder / "x.parquet")
    source = open_huggingface(str(folder / "x.parquet"))
    assert source.read(0) == png(1)
    with pytest.raises(DataError, match=r"row 1 points to 'pictures/2\.png': the file could not be read \(No such"):
        source.read(1)
    with pytest.raises(DataError, match=r"row 2 points to 'https://example"):
        source.read(2)
    before = source.digest()
    (folder / "pictures" / "1.png").write_bytes(png(1) + b"more")
    assert source.digest() != before


def test_a_row_without_an_image(folder):
    column = pa.array([{"bytes": None, "path": None}, None], IMAGE)
    pq.write_table(pa.table({"image": column, "label": [0, 1]}), folder / "x.parquet")
    source = open_huggingface(str(folder / "x.parquet"))
    for index in (0, 1):
        with pytest.raises(DataError, match=f"row {index}: the row has no image"):
            source.read(index)


def write(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table({name: pa.array(values) for name, values in columns.items()}), path)
    return path


def test_columns_are_found_by_type_and_usual_name(folder):
    one = {"bytes": png(3), "path": "x"}
    path = write(
        folder / "x.parquet", mask=[one], img=[{"bytes": png(4), "path": "x"}], coarse_label=[7], fine_label=[1]
    )
    source = open_huggingface(str(path))
    assert (shades(source), source.labels.values.tolist()) == ([4], [1])
    features = datasets.Features({"photo": datasets.Image(), "kind": datasets.ClassLabel(names=["a"])})
    datasets.Dataset.from_dict({"photo": [one], "kind": [0]}, features=features).save_to_disk(str(folder / "typed"))
    assert labels_of(open_huggingface(str(folder / "typed"))) == [("a",)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"image": [b"x"], "score": [0.5]},
            "no column looks like the label; the columns are image (binary), score (float64)",
        ),
        ({"text": ["x"], "label": [1]}, "no column looks like the image; the columns are text (string), label (int64)"),
        ({"left": [b"x"], "right": [b"y"], "label": [1]}, "no column looks like the image"),
        ({"image": [b"x"], "img": [b"y"], "label": [1]}, "2 columns look like the image"),
        ({"image": [b"x"], "label": [1], "labels": [[1]]}, "2 columns look like the label"),
        ({"image": [b"x"], "label": [0.5]}, "no column looks like the label"),
        ({"image": [b"x", b"y"], "label": [1, None]}, "the label 1 is missing"),
        ({"image": [b"x", b"y"], "label": [["a"], None]}, "the label 1 is missing"),
        ({"image": [b"x"], "label": [["a", None]]}, "the label 1 is missing"),
        ({"image": [b"x"], "label": [-1]}, "a label is -1, which means none"),
        ({"image": [b"x"], "label": [""]}, "a label is empty"),
        ({"image": [b"x"], "label": [2_000_000]}, "a label is 2,000,000; wanted class numbers below"),
    ],
)
def test_what_is_unclear_or_wrong_is_named(folder, columns, message):
    path = write(folder / "x.parquet", **columns)
    assert message in refusal(path)
    assert str(path) in refusal(path)


def test_a_part_without_labels(folder):
    saved(folder / "x", [-1, -1], datasets.ClassLabel(names=["a"]))
    assert "a label is -1, which means none: this part was published without labels" in refusal(folder / "x")


@pytest.mark.parametrize("cut", [0, 3, 100, -20])
def test_a_parquet_file_cut_off(folder, cut):
    whole = parquet(folder / "train-0.parquet", ["a"] * 20).read_bytes()
    parquet(folder / "train-1.parquet", ["a"])
    (folder / "train-0.parquet").write_bytes(whole[:cut])
    message = refusal(folder)
    assert message.startswith(f"{folder}/train-0.parquet: the data set is damaged or cut off (")


def test_a_parquet_file_damaged_inside(folder):
    path = parquet(folder / "x.parquet", ["a"] * 50)
    content = bytearray(path.read_bytes())
    content[4:400] = b"\xff" * 396
    path.write_bytes(content)
    assert f"{path}: the data set is damaged or cut off (" in refusal(path)


def test_files_with_other_columns(folder):
    parquet(folder / "a.parquet", ["x"])
    parquet(folder / "b.parquet", ["x"], column="kind")
    assert "b.parquet: the columns are image, kind; wanted those of a.parquet" in refusal(folder)


def test_a_saved_folder_that_is_damaged(folder):
    saved(folder / "x", [0], datasets.ClassLabel(names=["a"]))
    (folder / "x" / "data-00000-of-00001.arrow").write_bytes(b"not arrow")
    assert f"{folder}/x: the data set is damaged or cut off (" in refusal(folder / "x")
    (folder / "x" / "state.json").write_text("{")
    assert f"{folder}/x: the data set is damaged or cut off (" in refusal(folder / "x")


def test_a_folder_of_something_else(folder):
    (folder / "x.txt").write_text("x")
    assert "there is no Hugging Face data set; wanted a folder written by save_to_disk" in refusal(folder)
    assert "there is no Hugging Face data set" in refusal(folder / "x.txt")


def test_what_counts_as_saved(folder):
    assert not is_saved(folder)
    saved(folder / "one", [0], datasets.ClassLabel(names=["a"]))
    (folder / "dict").mkdir()
    (folder / "dict" / "dataset_dict.json").write_text("{}")
    parquet(folder / "files" / "data" / "train-00000-of-00001.parquet", ["a"])
    (folder / "files" / "README.md").write_text("card")
    (folder / "files" / ".cache").mkdir()
    (folder / "files" / ".cache" / "lock").write_text("")
    assert is_saved(folder / "one") and is_saved(folder / "dict") and is_saved(folder / "files")
    (folder / "files" / "data" / "cat.jpg").write_bytes(png(0))
    assert not is_saved(folder / "files")


def test_a_changed_parquet_file_is_read_again(folder):
    path = parquet(folder / "x.parquet", ["a", "b"])
    before = open_huggingface(str(path))
    parquet(path, ["a", "b", "b"], start=4)
    os.utime(path, ns=(1, 1))
    after = open_huggingface(str(path))
    assert shades(after) == [4, 5, 6]
    assert after.digest() != before.digest()


def test_the_digest_is_of_the_content_wherever_it_is(folder):
    feature = datasets.ClassLabel(names=["a", "b"])
    saved(folder / "x", [0, 1], feature).to_parquet(folder / "x.parquet")
    digest = open_huggingface(str(folder / "x")).digest()
    assert open_huggingface(str(folder / "x.parquet")).digest() == digest
    saved(folder / "y", [1, 0], feature)
    saved(folder / "z", [0, 1], feature, start=200)
    assert len({digest, *(open_huggingface(str(folder / name)).digest() for name in "yz")}) == 3


def _read_all(source: Source) -> list[bytes]:
    return [bytes(source.read(index)) for index in range(len(source))]


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_other_processes_read_the_same(folder, method):
    source = open_huggingface(str(parquet(folder / "x.parquet", ["a"] * 200, row_group_size=70)))
    here = _read_all(source)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(_read_all, [source, source]) == [here, here]
    assert _read_all(source) == here


def test_a_pickle_holds_no_images(folder):
    source = open_huggingface(str(parquet(folder / "x.parquet", [number % 2 for number in range(200)])))
    size = len(pickle.dumps(source))
    assert size < 20_000
    again = pickle.loads(pickle.dumps(source))  # noqa: S301
    assert again.read(150) == png(150)
    assert again.digest() == source.digest()
    assert np.array_equal(again.labels.values, source.labels.values)


def test_a_copy_with_the_classes_of_a_model(folder):
    source = with_classes(open_huggingface(str(parquet(folder / "x.parquet", ["cat", "dog"]))), ("dog", "cat"))
    assert (source.labels.values.tolist(), shades(source)) == ([1, 0], [0, 1])


def test_the_package_is_missing(folder, monkeypatch):
    path = parquet(folder / "x.parquet", ["a"])
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert is_saved(folder)
    with pytest.raises(UsageError, match=r"need the package 'datasets'\. Run `pip install 'vitrail\[data\]'`\."):
        open_huggingface(str(path))


@pytest.mark.parametrize(
    "name", ["nothing", "./a/b", "/a/b", "a/b/c", "../x", "a/..", "owner/na me", "https://x.org/y"]
)
def test_what_can_be_neither_a_path_nor_a_name(name):
    assert refusal(name).startswith(f"{name}: there is no such folder or file; wanted owner/name of the hub")


def test_a_name_of_the_hub_offline(monkeypatch):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    message = refusal("someone/nothing:small")
    assert message == (
        "hf:someone/nothing:small: the hub cannot be reached, and this data set is not in its cache. "
        "Download its .parquet files elsewhere and give their folder."
    )
    assert huggingface_hub.constants.HF_HUB_OFFLINE is True


COMMIT = "a" * 40


class Emulator(BaseHTTPRequestHandler):
    """As much of the hub as a data set needs."""

    protocol_version = "HTTP/1.1"
    repositories: dict[str, dict[str, bytes]]

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        repo = next((repo for repo in self.repositories if f"{repo}/" in f"{path}/"), "")
        files, inside = self.repositories.get(repo, {}), path.partition(repo)[2] if repo else ""
        name = inside.removeprefix("/resolve/").partition("/")[2]
        if not repo:
            self.answer(b"{}", 404, {"X-Error-Code": "RepoNotFound"})
        elif "/tree/" in inside:
            self.answer(json.dumps(tree(files, inside.split("/tree/")[1].partition("/")[2])).encode())
        elif path.startswith("/api/"):
            siblings = [{"rfilename": name} for name in files]
            self.answer(json.dumps({"id": repo, "sha": COMMIT, "siblings": siblings}).encode())
        elif name in files:
            etag = f'"{hashlib.sha1(files[name]).hexdigest()}"'
            self.answer(files[name], 200, {"ETag": etag, "X-Repo-Commit": COMMIT})
        else:
            self.answer(b"{}", 404, {"X-Error-Code": "EntryNotFound"})

    def answer(self, content: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


def tree(files: dict[str, bytes], folder: str) -> list[dict[str, Any]]:
    found = {}
    head = f"{folder}/" if folder else ""
    for name, content in files.items():
        if name.startswith(head):
            first, slash, _ = name.removeprefix(head).partition("/")
            kind = {"type": "directory"} if slash else {"type": "file", "size": len(content)}
            found[first] = {"path": head + first, "oid": "0" * 40, **kind}
    return list(found.values())


@pytest.fixture
def endpoint(folder) -> Iterator[str]:
    feature = datasets.ClassLabel(names=["a", "b"])
    files = {"README.md": b"---\nlicense: mit\n---\n"}
    for split, labels in (("train", [0, 1, 1]), ("validation", [1])):
        saved(folder / split, labels, feature).to_parquet(folder / "x.parquet")
        files[f"data/{split}-00000-of-00001.parquet"] = (folder / "x.parquet").read_bytes()
    script = b"print('remote code was run')"
    Emulator.repositories = {"owner/name": files, "owner/script": {**files, "script.py": script}}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Emulator)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


PROGRAM = """
from vitrail.data.sources.huggingface import open_huggingface
from vitrail.errors import DataError
source = open_huggingface("owner/name", "val")
print(source.name, source.split, len(source), source.classes, source.labels.values, len(source.read(0)))
for name in ("owner/other", "owner/script"):
    try:
        open_huggingface(name)
    except DataError as error:
        print(error)
"""


def test_the_hub_and_its_cache(endpoint, tmp_path):
    """In processes of their own, since the address of the hub is read when its library is imported."""

    def printed(address: str) -> list[str]:
        settings = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "home"), "NO_PROXY": "127.0.0.1"}
        environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")} | settings
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    expected = f"hf:owner/name val 1 ('a', 'b') [1] {len(png(0))}"
    bring = "Download its .parquet files elsewhere and give their folder."
    first, unknown, script = printed(endpoint)
    assert first == expected
    assert unknown == (
        "hf:owner/other: the hub has no data set 'owner/other', or it is not public. "
        "Check the name; for a private one run `hf auth login`."
    )
    assert script.startswith("hf:owner/script: the data set cannot be had (Dataset scripts are no longer supported")
    assert script.endswith(bring)
    unreached = f"the hub cannot be reached, and this data set is not in its cache. {bring}"
    assert printed("http://127.0.0.1:9") == [expected, f"hf:owner/other: {unreached}", f"hf:owner/script: {unreached}"]


def test_splits_that_number_the_same_names_differently_are_mapped_by_name(folder):
    for split, names, numbers in (("train", ["cat", "dog"], [0, 1]), ("val", ["dog", "unused", "cat"], [0, 2, 2])):
        features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=names)})
        data = datasets.Dataset.from_dict({"image": images(len(numbers)), "label": numbers}, features=features)
        data.to_parquet(str(folder / f"{split}.parquet"))
    source = open_huggingface(str(folder), "val")
    assert source.classes == ("cat", "dog")
    assert labels_of(source) == [("dog",), ("cat",), ("cat",)]
    assert labels_of(open_huggingface(str(folder))) == [("cat",), ("dog",)]


def test_a_split_with_class_names_that_training_writes_out(folder):
    parquet(folder / "train.parquet", ["zebra", "ant"])
    saved(folder.parent / "other", [0, 1], datasets.ClassLabel(names=["zebra", "ant"])).to_parquet(
        str(folder / "val.parquet")
    )
    assert labels_of(open_huggingface(str(folder), "val")) == [("zebra",), ("ant",)]


def test_files_of_one_split_that_number_classes_differently_are_refused(folder):
    for part, names in enumerate((["cat", "dog"], ["dog", "cat"])):
        data = saved(folder.parent / f"part{part}", [0, 1], datasets.ClassLabel(names=names))
        data.to_parquet(str(folder / f"train-0000{part}-of-00002.parquet"))
    with pytest.raises(DataError, match=r"00001-of-00002.parquet: the class names are not the same.*00000-of"):
        open_huggingface(str(folder))


def test_numbers_where_training_has_names_are_refused(folder):
    parquet(folder / "train.parquet", ["zebra", "ant"])
    parquet(folder / "val.parquet", [0, 1])
    with pytest.raises(DataError, match="the label 0 is a number, and training has names such as 'ant'"):
        open_huggingface(str(folder), "val")


@pytest.mark.parametrize("kind", ["record", "text"])
def test_rows_cannot_point_out_of_the_folder(folder, kind):
    (folder.parent / "secret.png").write_bytes(png(1))
    (folder / "link.png").symlink_to(folder.parent / "secret.png")
    os.mkfifo(folder / "pipe")
    paths = ["../secret.png", str(folder.parent / "secret.png"), "/dev/zero", "link.png", "a\0b", "~/x"]
    paths += ["pipe", "n" * 5000]
    records = [{"bytes": None, "path": path} for path in paths]
    column = pa.array(records, IMAGE) if kind == "record" else pa.array(paths)
    pq.write_table(pa.table({"image": column, "label": [0] * len(paths)}), folder / "x.parquet")
    source = open_huggingface(str(folder / "x.parquet"))
    for index in range(len(paths)):
        with pytest.raises(DataError, match=f"row {index}"):
            source.read(index)
    assert source.digest()
    assert all(path.is_relative_to(folder) or "cache" in str(path) for path in source.holders())


def test_paths_that_are_no_text(folder):
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.int64())])
    rows = pa.array([{"bytes": None, "path": 3}, {"bytes": png(1), "path": 4}], kind)
    pq.write_table(pa.table({"image": rows, "label": [0, 1]}), folder / "x.parquet")
    source = open_huggingface(str(folder / "x.parquet"))
    with pytest.raises(DataError, match="row 0: the row has no image"):
        source.read(0)
    assert source.read(1) == png(1)
    assert source.digest()


def test_a_parquet_file_that_changes_and_keeps_its_time_is_read_again(folder):
    path = parquet(folder / "x.parquet", [0, 1])
    before = path.stat()
    assert shades(open_huggingface(str(path))) == [0, 1]
    other = parquet(folder.parent / "other.parquet", [0, 1], start=7)
    path.write_bytes(other.read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert shades(open_huggingface(str(path))) == [7, 8]
