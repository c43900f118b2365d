"""Rows 3 to 6, 9 and 23 of the fault table, for prediction: strange images, strange names, hostile models."""

import io
import json
import pickle
import struct
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.data.pictures import TURNED
from tests.evaluation.small import model_folder, network

import vitrail
from vitrail.cli import main
from vitrail.data import Preparation
from vitrail.data.loading.loader import evaluation_batches
from vitrail.data.sources.loose import open_images
from vitrail.prediction import Predictor


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def model() -> Path:
    return model_folder(Path("model"))


def picture(height: int = 20, width: int = 30) -> Image.Image:
    return Image.fromarray(np.random.default_rng(1).integers(0, 256, (height, width, 3), dtype=np.uint8))


def by_evaluation(folder: Path) -> np.ndarray:
    living = network()
    preparation = Preparation(size=(8, 8), preprocessing=living.preprocessing)
    with torch.inference_mode():
        batches = evaluation_batches(open_images([folder]), preparation, batch_size=64)
        return np.concatenate([living(batch.images).numpy() for batch in batches])


def test_an_image_is_the_same_however_it_is_turned(model) -> None:
    """Row 3: orientations 1 to 8 in EXIF, and EXIF that cannot be read."""
    Path("photos").mkdir()
    for number, turn in TURNED.items():
        exif = Image.Exif()
        exif[0x0112] = number
        stored = picture() if turn is None else picture().transpose(turn)
        stored.save(f"photos/{number}.png", exif=exif)
    picture().save("photos/broken.png", exif=b"Exif\0\0II*\0garbage")
    logits = Predictor(model).logits([str(path) for path in sorted(Path("photos").iterdir())])
    assert len(logits) == 9
    assert np.abs(logits - logits[0]).max() < 1e-5
    assert np.abs(logits - by_evaluation(Path("photos"))).max() < 1e-5


def test_every_kind_of_pixels_is_read_as_evaluation_reads_it(model) -> None:
    """Row 4: CMYK, 16-bit grey, grey with alpha, palette with alpha, one bit."""
    Path("photos").mkdir()
    colour = picture()
    colour.convert("CMYK").save("photos/cmyk.jpg")
    ramp = np.linspace(0, 65_535, 600).reshape(20, 30).astype(np.uint16)
    Image.fromarray(ramp).save("photos/deep.png")
    colour.convert("LA").save("photos/la.png")
    colour.quantize(16).save("photos/palette.png", transparency=3)
    colour.convert("1").save("photos/bit.png")
    names = [str(path) for path in sorted(Path("photos").iterdir())]
    assert np.abs(Predictor(model).logits(names) - by_evaluation(Path("photos"))).max() < 1e-5
    grey = Image.fromarray((ramp // 257).astype(np.uint8))
    deep, plain = Predictor(model).logits(["photos/deep.png", grey])
    assert np.abs(deep - plain).max() < 0.05


def _header_of(width: int, height: int) -> bytes:
    """A PNG that says it is so large, and is not."""
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    begin = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return begin + struct.pack(">I", 8) + b"IDAT" + bytes(12)


@pytest.mark.parametrize(("width", "height", "reason"), [(30_000, 30_000, "max_pixels"), (5_000, 2, "max_aspect")])
def test_bombs_are_refused_from_their_header(model, capsys, width, height, reason) -> None:
    """Row 5."""
    Path("bomb.png").write_bytes(_header_of(width, height))
    picture().save("fine.png")
    assert main(["predict", str(model), "bomb.png", "fine.png", "--csv"]) == 3
    said = capsys.readouterr()
    assert reason in said.err
    assert said.out.splitlines()[2].startswith("fine.png,")


def test_of_several_frames_the_first_is_used_and_they_are_counted(model, capsys) -> None:
    """Row 6."""
    frames = [picture(), Image.new("RGB", (30, 20), "red")]
    frames[0].save("moving.png", save_all=True, append_images=frames[1:])
    frames[0].save("pages.tiff", save_all=True, append_images=frames[1:])
    frames[0].save("still.png")
    moving, pages, still = Predictor(model).logits(["moving.png", "pages.tiff", "still.png"])
    assert np.abs(moving - still).max() < 1e-5
    assert np.abs(pages - still).max() < 1e-5
    assert main(["predict", str(model), "moving.png", "pages.tiff", "still.png"]) == 0
    assert "2 with several frames" in capsys.readouterr().err


NAMES = ["a b.png", 'it\'s "it".png', "🦄.png", "고양이.png", "두\n줄.png", "x" * 250 + ".png", "a..png", "%s{}.png"]


@pytest.mark.parametrize("name", NAMES)
def test_names_come_back_as_they_are(model, capsys, name) -> None:
    """Row 9: in JSON exactly, for people without control characters."""
    Path("photos").mkdir()
    picture().save(f"photos/{name}", "PNG")
    assert main(["predict", str(model), f"photos/{name}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["images"][0]["image"] == f"photos/{name}"
    assert main(["predict", str(model), "photos"]) == 0
    assert capsys.readouterr().out.count("\n") == 4


def test_a_name_that_is_no_text(model, capsysbinary) -> None:
    Path("photos").mkdir()
    with open(b"photos/\xff\xfe.png", "wb") as file:  # noqa: PTH123
        picture().save(file, "PNG")
    assert main(["predict", str(model), "photos", "--json"]) == 0
    [record] = json.loads(capsysbinary.readouterr().out)["images"]
    assert record["image"] == "photos/\\xff\\xfe.png"


def test_class_names_come_back_as_they_are(capsys) -> None:
    names = ("<script>alert(1)</script>", "고양이, 검은", 'a "dog"\n')
    named = network()
    named.labels = names
    vitrail.save_model(named, "named")
    picture().save("one.png")
    assert main(["predict", "named", "one.png", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["images"][0]["predictions"]
    assert {one["label"] for one in found} == set(names)


class _Bomb:
    def __reduce__(self):
        return Path.touch, (Path("exploded"),)


@pytest.mark.parametrize("name", ["bomb.pth", "bomb.bin", "bomb.npz", "bomb.safetensors", "bomb.onnx", "bomb.pt2"])
def test_a_hostile_model_is_refused_and_never_executed(capsys, name) -> None:
    """Row 23."""
    if name.endswith(".npz"):
        file = io.BytesIO()
        np.savez(file, weight=np.array([_Bomb()], dtype=object))
        Path(name).write_bytes(file.getvalue())
    else:
        Path(name).write_bytes(pickle.dumps(_Bomb()))
    picture().save("one.png")
    assert main(["predict", name, "one.png", "--preprocessing", "google"]) == 3
    assert "error:" in capsys.readouterr().err
    assert not Path("exploded").exists()


def test_a_header_of_an_exabyte_is_refused_at_once(capsys) -> None:
    Path("huge.safetensors").write_bytes(struct.pack("<Q", 2**60) + b"{}")
    picture().save("one.png")
    begin = time.perf_counter()
    assert main(["predict", "huge.safetensors", "one.png", "--preprocessing", "google"]) == 3
    assert time.perf_counter() - begin < 30
    assert "error:" in capsys.readouterr().err
