"""A copy never answers for weights, names or a preparation that are no longer those of its model."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.evaluation.small import model_folder, network

import vitrail
from vitrail.errors import DataError, DiskError, Notice, UsageError
from vitrail.exporting import write
from vitrail.exporting.weights_hash import weights_hash
from vitrail.prediction import Predictor, fastest

PIXELS = np.random.default_rng(0).integers(0, 256, (9, 12, 3), dtype=np.uint8)


_WRITTEN: dict[str, bytes] = {}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch) -> None:
    """Each network is exported once for all tests here: that takes seconds."""
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    really = write._WRITE["onnx"]

    def once(network, path, entries, any_size) -> None:
        weights = weights_hash(network.model.state_dict())
        if weights not in _WRITTEN:
            really(network, path, entries, any_size)
            _WRITTEN[weights] = path.read_bytes()
        path.write_bytes(_WRITTEN[weights])

    monkeypatch.setitem(write._WRITE, "onnx", once)


@pytest.fixture
def model(tmp_path) -> Path:
    return model_folder(tmp_path / "model")


def copies(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache" / "copies").iterdir())


def assert_answers_as_torch(model: Path) -> None:
    assert np.abs(Predictor(model).logits(PIXELS) - Predictor(model, backend="torch").logits(PIXELS)).max() < 1e-5


def test_names_that_were_changed_beside_the_weights(model) -> None:
    Predictor(model, backend="onnx")
    record = json.loads((model / "config.json").read_text())
    record["labels"] = ["ant", "bee", "cow"]
    (model / "config.json").write_text(json.dumps(record))
    assert Predictor(model).labels == ("ant", "bee", "cow")


def test_other_weights_of_the_same_size_and_time(model, tmp_path) -> None:
    Predictor(model, backend="onnx")
    [first] = copies(tmp_path)
    before = (model / "model.safetensors").stat()
    vitrail.save_model(network(seed=1), model)
    os.utime(model / "model.safetensors", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert_answers_as_torch(model)
    Predictor(model, backend="onnx")
    assert_answers_as_torch(model)
    [second] = copies(tmp_path)
    assert second != first, "the copy of weights that are no more is gone"


def test_weights_that_are_saved_while_a_copy_is_made(model, monkeypatch) -> None:
    keep = fastest.keep_copy

    def slowly(*words) -> None:
        vitrail.save_model(network(seed=1), model)
        keep(*words)

    monkeypatch.setattr(fastest, "keep_copy", slowly)
    Predictor(model, backend="onnx")
    assert_answers_as_torch(model)


def test_a_copy_that_differs_is_not_kept(model, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("vitrail.exporting.agree.TOLERANCE", -1.0)
    with pytest.raises(DataError, match="differs from torch"):
        Predictor(model, backend="onnx")
    assert not (tmp_path / "cache" / "copies").exists()


def test_a_damaged_copy_is_not_the_end(model, tmp_path) -> None:
    Predictor(model, backend="onnx")
    [copy] = copies(tmp_path)
    copy.write_bytes(copy.read_bytes()[:1000])
    assert "torch" in Predictor(model).backend.name
    assert "onnxruntime" in Predictor(model, backend="onnx").backend.name
    assert_answers_as_torch(model)


def test_a_runtime_that_is_no_longer_installed(model, monkeypatch, tmp_path) -> None:
    Predictor(model, backend="onnx")

    def missing(_place: Path) -> None:
        raise UsageError("onnxruntime is needed for this and not installed")

    monkeypatch.setattr("vitrail.prediction.copies.open_exported", missing)
    assert "torch" in Predictor(model).backend.name
    assert copies(tmp_path), "it may be installed again"


def test_a_copy_appears_only_when_it_was_compared(model, monkeypatch, tmp_path) -> None:
    """Another process, or the next one after Ctrl-C, would take it."""

    def interrupted(*_words) -> None:
        assert all(path.is_dir() for path in copies(tmp_path))
        raise KeyboardInterrupt

    monkeypatch.setattr(fastest, "_ensure_same", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Predictor(model, backend="onnx")
    assert not (tmp_path / "cache" / "copies").exists()


@pytest.mark.filterwarnings("ignore::vitrail.errors.Notice")
def test_a_cache_that_cannot_be_written(model, monkeypatch, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(fastest, "_MANY_IMAGES", 3)
    assert "torch" in Predictor(model, images=5).backend.name
    with pytest.raises(DiskError, match="could not be written"):
        Predictor(model, backend="onnx")


def _with_gpu(name: str = "auto") -> torch.device:
    return torch.device("cuda" if name == "auto" else name)


def test_where_there_is_a_gpu_a_copy_answers_for_few_images(monkeypatch) -> None:
    monkeypatch.setattr("vitrail.runtime.device.find_device", _with_gpu)
    assert fastest._is_for_cpu("auto", 5)
    assert not fastest._is_for_cpu("auto", 5_000)
    assert not fastest._is_for_cpu("auto", None)
    assert fastest._is_for_cpu("cpu", 5_000)
    assert not fastest._is_for_cpu("cuda", 5)


def test_a_copy_that_is_asked_for_needs_no_device_where_there_is_a_gpu(model, monkeypatch) -> None:
    monkeypatch.setattr("vitrail.runtime.device.find_device", _with_gpu)
    assert "onnxruntime" in Predictor(model, backend="onnx").backend.name


def test_an_exported_file_is_computed_on_the_cpu(model, tmp_path) -> None:
    write.write_unverified(vitrail.load_model(model), tmp_path / "model.pt2", "torch")
    with pytest.raises(UsageError, match="the device is 'cuda'; wanted cpu"):
        Predictor(tmp_path / "model.pt2", device="cuda")
    image = Image.fromarray(PIXELS)
    assert np.abs(Predictor(tmp_path / "model.pt2").logits(image) - Predictor(model).logits(image)).max() < 1e-5


def test_without_the_export_extra_the_note_says_how_to_get_it(model, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.warns(Notice) as told:
        assert Predictor(model, device="cpu", images=1_000_000).backend.name.startswith("torch")
    assert [str(one.message) for one in told] == [
        "torch computes, because the export extra is not installed: "
        "pip install 'vitrail[export]' brings faster runtimes."
    ]
