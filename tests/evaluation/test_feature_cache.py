"""The cache of features: when it serves, when it does not, and what is said about files that do not fit."""

import json
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.evaluation.small import HALF, levels, network, subject

from vitrail.data import open_data
from vitrail.errors import DataError, Notice
from vitrail.evaluation import feature_cache
from vitrail.evaluation.feature_cache import Features, cached_features
from vitrail.evaluation.subject import Subject
from vitrail.weights.safetensors_file import read_safetensors, write_safetensors


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "features"


watched: list[tuple[str, int]] = []


@contextmanager
def watch(what: str, total: int):
    watched.append((what, total))
    yield lambda _done: None


def features(measured: Subject | None = None, source=None, **more) -> Features:
    return cached_features(measured or subject(), source or levels(), batch_size=8, watch=watch, **more)


def test_the_second_time_nothing_is_computed(cache) -> None:
    watched.clear()
    first, second = features(), features()
    assert watched == [("features of levels, train", 23)]
    assert (first.is_cached, second.is_cached) == (False, True)
    assert first.path == second.path == next(cache.iterdir())
    np.testing.assert_array_equal(first.values, second.values)
    assert second.values.dtype == np.float32


def test_the_same_network_from_another_place_is_the_same(cache) -> None:
    features()
    other = replace(subject(network()), name="elsewhere")
    assert features(other).is_cached


def test_whatever_decides_the_features_decides_the_file(cache) -> None:
    features()
    size = replace(subject().preparation, size=(9, 9))
    colours = replace(subject().preparation, preprocessing=replace(HALF, std=(0.25, 0.5, 0.5)))
    relabelled = levels()
    relabelled.classes = ("a", "b", "c")
    repainted = levels()
    repainted.pixels[3] = 200
    for others in (
        {"measured": subject(network(seed=1))},
        {"measured": replace(subject(), preparation=size)},
        {"measured": replace(subject(), preparation=colours)},
        {"measured": subject(bfloat16=True)},
        {"source": levels(22)},
        {"source": relabelled},
        {"source": repainted},
    ):
        assert not features(**others).is_cached
        assert features(**others).is_cached
    assert len(list(cache.iterdir())) == 8
    assert features().is_cached


def test_fresh_features_take_the_place_of_the_old(cache) -> None:
    old = features()
    fresh = features(is_fresh=True)
    assert not fresh.is_cached
    assert fresh.path == old.path
    assert len(list(cache.iterdir())) == 1


def test_the_file_says_what_it_holds(cache) -> None:
    features()
    tensors, metadata = read_safetensors(next(cache.iterdir()))
    record = json.loads(metadata["record"])
    assert tensors["features"].shape == (23, 16)
    assert (record["format"], record["source"], record["split"]) == ("vitrail-features/1", "levels", "train")
    assert (record["images"], record["dim"]) == (23, 16)
    assert record["of"]["model"] == subject().fingerprint
    assert record["of"]["data"] == levels().digest()
    assert record["of"]["image_size"] == [8, 8]
    assert record["of"]["precision"] == "float32"
    assert record["of"]["preprocessing"]["mean"] == [0.5, 0.5, 0.5]


def _rewritten(path: Path, **changes: object) -> None:
    tensors, metadata = read_safetensors(path)
    write_safetensors(path, tensors, {"record": json.dumps({**json.loads(metadata["record"]), **changes})})


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


def _without_rows(path: Path) -> None:
    tensors, metadata = read_safetensors(path)
    values = tensors["features"][:5].numpy()
    record = json.loads(metadata["record"]) | {"checksum": feature_cache._checksum(values)}
    write_safetensors(path, {"features": torch.from_numpy(values)}, {"record": json.dumps(record)})


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "is damaged"),
        (lambda path: path.write_bytes(b""), "is damaged"),
        (_flipped, "is damaged"),
        (_without_rows, "is damaged"),
        (lambda path: write_safetensors(path, {"features": torch.zeros(23, 16)}, {}), "is damaged"),
        (lambda path: write_safetensors(path, {}, {"record": "[1]"}), "is damaged"),
        (lambda path: _rewritten(path, of={"model": "another"}), "is damaged"),
        (
            lambda path: _rewritten(path, format="vitrail-features/2"),
            r"was made by another version \(vitrail-features/2 of vitrail \d",
        ),
        (
            lambda path: _rewritten(path, vitrail="0.0.1"),
            r"was made by another version \(vitrail-features/1 of vitrail 0\.0\.1\)",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_told_and_made_again(cache, spoil, told) -> None:
    good = features()
    assert good.path is not None
    spoil(good.path)
    with pytest.warns(Notice, match=rf"{good.path.name} {told}.*, so the features are computed again\."):
        again = features()
    assert not again.is_cached
    np.testing.assert_array_equal(again.values, good.values)
    assert features().is_cached


def test_a_cache_that_cannot_be_written_costs_nothing_now(cache) -> None:
    cache.parent.mkdir()
    cache.write_text("a file where the folder should be")
    with pytest.warns(Notice, match=r"The features are not kept for the next time\. .* could not be written"):
        found = features()
    assert (len(found.values), found.path) == (23, None)


def test_features_that_are_no_numbers_are_not_kept(cache) -> None:
    model = network()
    with torch.no_grad():
        next(model.parameters())[0] = torch.nan
    with pytest.raises(DataError, match="levels, train image 0: the features of this image by small are not finite"):
        features(subject(model))
    assert not cache.exists()


def test_a_folder_of_images_stays_as_it_is_and_a_change_in_it_is_noticed(tmp_path) -> None:
    data = tmp_path / "photos"
    for name in ("ant", "bee"):
        (data / name).mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (9, 9), (number, 9, 9)).save(data / name / f"{number}.bmp")
    before = sorted((path, path.stat().st_mtime_ns) for path in data.rglob("*"))
    assert not features(source=open_data(data)).is_cached
    assert features(source=open_data(data)).is_cached
    assert sorted((path, path.stat().st_mtime_ns) for path in data.rglob("*")) == before
    Image.new("RGB", (10, 9)).save(data / "ant" / "1.bmp")
    assert not features(source=open_data(data)).is_cached


def test_other_images_of_the_same_names_and_sizes_are_other_images(tmp_path, cache) -> None:
    """Uncompressed files are all equally large."""
    found = {}
    for name, level in (("dark", 20), ("light", 200)):
        for label in ("ant", "bee"):
            (tmp_path / name / label).mkdir(parents=True)
            Image.new("L", (8, 8), level).save(tmp_path / name / label / "0.bmp")
        found[name] = features(source=open_data(str(tmp_path / name), "train"))
    assert not found["light"].is_cached
    assert not np.array_equal(found["dark"].values, found["light"].values)
    assert features(source=open_data(str(tmp_path / "dark"), "train")).is_cached


def test_images_of_which_nothing_is_known_are_never_served_from_the_cache(cache, monkeypatch) -> None:
    monkeypatch.setattr(feature_cache, "identities", lambda source: np.zeros(len(source), np.uint64))
    for _ in range(2):
        with pytest.warns(Notice, match="nothing tells whether these images have changed"):
            found = features()
        assert not found.is_cached and found.path is None
    assert not cache.exists()
