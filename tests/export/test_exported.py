"""Exported files answer as their network does, know what it is, and need neither torch nor a network connection."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.export.conftest import FILES, LABELS

from vitrail.errors import DataError, UsageError
from vitrail.export import is_exported, open_exported
from vitrail.export.write import write_unverified

KINDS = list(FILES)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_answers_in_every_batch_size(exports, toy, kind) -> None:
    exported = open_exported(exports / FILES[kind], threads=1)
    images = torch.randn(7, 3, 32, 32)
    with torch.inference_mode():
        features = toy.features(images)
        logits = toy.head(features)
    for size in (1, 2, 7):
        found = exported.run(images[:size].numpy())
        assert [one.dtype for one in found] == [np.float32, np.float32]
        np.testing.assert_allclose(found[0], logits[:size].numpy(), atol=1e-5)
        np.testing.assert_allclose(found[1], features[:size].numpy(), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_what_travels_inside(exports, toy, kind) -> None:
    exported = open_exported(exports / FILES[kind])
    assert (exported.kind, exported.path.name, exported.any_size) == (kind, FILES[kind], False)
    assert exported.described.labels == LABELS
    assert exported.described.config == toy.config
    assert exported.described.preprocessing == toy.preprocessing
    assert exported.described.provenance == toy.provenance
    compared = exported.export["compared"]
    assert (compared["count"], compared["batch_sizes"], compared["same_top1"]) == (64, [1, 2, 7], 64)
    assert 0 < compared["difference"] < 1e-4
    assert exported.export["versions"]["torch"] == torch.__version__
    assert exported.runtime == compared["runtime"]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_this_machine_is_in_a_file(exports, kind) -> None:
    for file in exports.glob(f"{Path(FILES[kind]).stem}*"):
        content = file.read_bytes()
        for secret in (str(Path(__file__).parent.parent), str(exports), "site-packages", "network.py"):
            assert secret.encode() not in content, file


@pytest.mark.parametrize("kind", KINDS)
def test_images_it_was_not_made_for(exports, kind) -> None:
    run = open_exported(exports / FILES[kind]).run
    with pytest.raises(UsageError, match=r"32x48 pixels; wanted 32x32.*--any-size"):
        run(np.zeros((1, 3, 32, 48), np.float32))
    with pytest.raises(UsageError, match="1 channels; wanted 3"):
        run(np.zeros((1, 1, 32, 32), np.float32))
    for wrong in (np.zeros((1, 3, 32, 32)), np.zeros((3, 32, 32), np.float32), np.zeros((0, 3, 32, 32), np.float32)):
        with pytest.raises(UsageError, match="at least one"):
            run(wrong)


def test_which_files_are_exported(exports, tmp_path) -> None:
    assert all(is_exported(exports / name) for name in FILES.values())
    assert is_exported(exports)
    assert is_exported(str(exports))
    (tmp_path / "page.xml").write_text("<html></html>")
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert not any(map(is_exported, (tmp_path, tmp_path / "page.xml", tmp_path / "none.onnx", "x" * 5000, "vit-b16")))
    shutil.copy(exports / "model.onnx", tmp_path / "model.ONNX")
    assert is_exported(tmp_path / "model.ONNX")
    shutil.copy(exports / "model.onnx", tmp_path / "model.onnx")
    (tmp_path / "config.json").write_text("{}")
    assert not is_exported(tmp_path), "a model folder is a model, whatever lies in it"
    with pytest.raises(DataError, match="is not an exported model"):
        open_exported(tmp_path)


def test_of_a_folder_the_fastest_is_taken(exports) -> None:
    assert open_exported(exports).kind == "openvino"


@pytest.mark.parametrize("kind", [pytest.param("onnx", marks=pytest.mark.slow), "openvino", "torch"])
def test_an_unverified_copy(toy, tmp_path, kind) -> None:
    target = tmp_path / "new" / FILES[kind]
    write_unverified(toy, target, kind)
    exported = open_exported(target)
    assert "compared" not in exported.export
    assert exported.described.labels == LABELS
    assert sorted(path.name for path in target.parent.iterdir()) == sorted(
        {"onnx": ["model.onnx"], "openvino": ["model.xml", "model.bin"], "torch": ["model.pt2"]}[kind]
    )


_SILENT = """
import json, socket, sys
def refuse(*_): raise AssertionError("a connection was tried")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = refuse
import threading
failures = []
threading.excepthook = lambda failure: failures.append(str(failure.exc_value))
{work}
told = [name for name in sys.modules if name.split(".")[0] == "openvino_telemetry"]
print(json.dumps({{"torch": "torch" in sys.modules, "telemetry": told, "failures": failures}}))
"""


def silently(work: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", _SILENT.format(work=work)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_answers_without_torch_and_without_a_connection(exports) -> None:
    work = f"""
import numpy as np
from vitrail.export import open_exported
for name in ("model.onnx", "model.xml"):
    exported = open_exported({str(exports)!r} + "/" + name)
    assert exported.run(np.zeros((1, 3, 32, 32), np.float32))[0].shape == (1, 10)
"""
    assert silently(work) == {"torch": False, "telemetry": [], "failures": []}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_exports_without_a_connection(tmp_path, kind) -> None:
    work = f"""
import vitrail
from pathlib import Path
from tests.export.conftest import lively, prepared_for
from vitrail.export.write import export_model
model = lively(vitrail.create_model("vit-test"))
export_model(model, Path({str(tmp_path / FILES[kind])!r}), {kind!r}, *prepared_for(model))
"""
    assert silently(work) == {"torch": True, "telemetry": [], "failures": []}
