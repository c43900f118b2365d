"""Exported files answer as their network does, know what it is, and need neither torch nor a network connection."""

import json
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.sax.saxutils import quoteattr

import numpy as np
import pytest
import torch
from tests.exporting.conftest import FILES, LABELS

from vitrail.errors import DataError, UsageError
from vitrail.exporting import is_exported, open_exported
from vitrail.exporting.entries import ascii_json
from vitrail.exporting.exported import FORMATS
from vitrail.exporting.onnx_write import add_onnx_entry
from vitrail.exporting.write import write_unverified

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
    with pytest.raises(UsageError, match=r"32x48 pixels; wanted 32x32.*any_size"):
        run(np.zeros((1, 3, 32, 48), np.float32))
    with pytest.raises(UsageError, match="1 channels; wanted 3"):
        run(np.zeros((1, 1, 32, 32), np.float32))
    for wrong in (np.zeros((1, 3, 32, 32)), np.zeros((3, 32, 32), np.float32), np.zeros((0, 3, 32, 32), np.float32)):
        with pytest.raises(UsageError, match="at least one"):
            run(wrong)


def crafted(exports: Path, folder: Path, kind: str, **changes) -> Path:
    """A copy of a file that says another thing of its network."""
    for name in exports.glob("model.*"):
        shutil.copy(name, folder)
    path = folder / FILES[kind]
    entries = FORMATS[kind].read_entries(path)
    record = json.loads(entries["vitrail"])
    for field in ("labels", "preprocessing"):
        record[field] = changes.pop(field, record[field])
    record["model"].update(changes)
    content = path.read_bytes()
    if kind == "torch":
        with zipfile.ZipFile(exports / FILES[kind]) as good, zipfile.ZipFile(path, "w") as bad:
            for name in good.namelist():
                bad.writestr(name, ascii_json(record) if name.endswith("extra/vitrail") else good.read(name))
    elif kind == "onnx":
        add_onnx_entry(path, "vitrail", ascii_json(record))
    else:
        said = content.index(b"<vitrail value=") + len(b"<vitrail value=")
        end = content.index(b"/>", said)
        path.write_bytes(content[:said] + quoteattr(ascii_json(record)).encode() + content[end:])
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_file_says_of_itself_has_to_be_true(exports, tmp_path, kind) -> None:
    """Images are prepared by it: a hostile size would take all memory before a runtime could refuse it."""
    for changes, match in (
        ({"image_size": [40_000, 40_000], "patch_size": [20_000, 20_000]}, r"\(any, 3, 32, 32\); wanted .*40000"),
        ({"channels": 1}, r"wanted \(any, 1, 32, 32\)"),
    ):
        with pytest.raises(DataError, match=match):
            open_exported(crafted(exports, tmp_path, kind, **changes))
    for classes in (9, 11):
        path = crafted(exports, tmp_path, kind, num_classes=classes, labels=[str(one) for one in range(classes)])
        with pytest.raises(DataError, match=rf"its logits are \(2, 10\); wanted \(2, {classes}\)"):
            open_exported(path).run(np.zeros((2, 3, 32, 32), np.float32))


@pytest.mark.parametrize("kind", KINDS)
def test_several_threads_may_ask(exports, kind) -> None:
    run = open_exported(exports / FILES[kind], threads=1).run
    images = torch.randn(8, 3, 32, 32).numpy()
    expected = run(images)[0]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda place: run(images[place % 8][None])[0], range(200)))
    assert all(np.abs(one - expected[place % 8]).max() < 1e-5 for place, one in enumerate(found))


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
from vitrail.exporting import open_exported
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
from tests.exporting.conftest import lively, prepared_for
from vitrail.exporting.write import export_model
model = lively(vitrail.create_model("vit-test"))
export_model(model, Path({str(tmp_path / FILES[kind])!r}), {kind!r}, *prepared_for(model))
"""
    assert silently(work) == {"torch": True, "telemetry": [], "failures": []}
