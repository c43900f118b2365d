import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vitrail
from vitrail.cli import main
from vitrail.config import preset, to_json
from vitrail.zoo import ZOO


@pytest.fixture(autouse=True)
def plain_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """No colours, even where a build server asks for them."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)


@pytest.fixture
def npz(fixtures: Path) -> str:
    return str(fixtures / "vit_token" / "params.npz")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder whose head is not zero, with labels and preprocessing."""
    model = vitrail.create_model("vit-test")
    torch.nn.init.ones_(model.head.weight)
    model.labels = tuple(f"digit {number}" for number in range(10))
    model.preprocessing = preset("augreg")
    vitrail.save_model(model, tmp_path / "model")
    return tmp_path / "model"


def printed_by(capsys, *words: str) -> str:
    assert main(["info", *words]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def facts_of(out: str) -> dict[str, str]:
    """The lines between the title and the table, by their names."""
    lines = (re.match(r"  (\S.*?)  +(\S.*)$", line) for line in out.splitlines()[1:])
    return {line[1]: line[2] for line in lines if line}


def described(capsys, *words: str) -> dict[str, Any]:
    return json.loads(printed_by(capsys, *words, "--json"))


def failure(capsys, code: int, *words: str) -> str:
    assert main(["info", *words]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert "Traceback" not in printed.err
    return printed.err


def test_brackets_in_a_path_are_text(capsys, tmp_path, npz):
    path = tmp_path / "a[red]" / "[" / "b].npz"
    path.parent.mkdir(parents=True)
    path.write_bytes(Path(npz).read_bytes())
    assert main(["info", str(path)]) == 0
    assert capsys.readouterr().out.startswith(f"{path}\n")


@pytest.mark.parametrize("option", [["--batch", "0"], ["--batch", "-1"], ["--num-classes", "-1"]])
def test_a_count_below_its_least_is_one_sentence(capsys, option):
    assert main(["info", "vit-test", *option]) == 2
    assert "wanted a whole number from" in capsys.readouterr().err


def test_a_network_by_its_name(capsys):
    out = printed_by(capsys, "vit-b16")
    facts = facts_of(out)
    assert out.startswith("ViT-B/16: base, Table 1\n")
    assert facts["input"] == "224x224 pixels, channels: 3"
    assert facts["tokens"] == "197: 14x14 grid of 16x16 patches and a class token, positions learned_1d (stem)"
    assert facts["encoder"] == "12 blocks, width 768, 12 heads, MLP 3072"
    assert facts["numerics"] == "GELU tanh, LayerNorm epsilon 1e-06"
    assert facts["head"] == "class token, linear, 1,000 classes"
    assert facts["parameters"] == "86,567,656 (346.3 MB in float32)"
    assert facts["compute"] == "17.56 GMACs = 35.13 GFLOPs forward"
    assert re.search(r"blocks\.0-11 +12 x Block +85,054,464 ", out)
    assert "file:" not in out
    assert "note" not in facts


def test_the_rows_of_the_table_add_up(capsys):
    out = printed_by(capsys, "vit-test")
    numbers = re.findall(r"^ (?:\S+) +(?:Parameter|\d+ x \w+|\w+) +([\d,]+) +[\d.,]+ M?MACs", out, re.MULTILINE)
    assert len(numbers) == 6
    assert sum(int(number.replace(",", "")) for number in numbers) == ZOO["vit-test"].parameters


def test_what_a_reader_may_stumble_over_is_noted(capsys):
    assert facts_of(printed_by(capsys, "vit-tiny-mnist"))["note"] == ZOO["vit-tiny-mnist"].note


def test_a_hybrid_by_its_name(capsys):
    facts = facts_of(printed_by(capsys, "r50-vit-b16", "--image-size", "64"))
    assert facts["backbone"] == "ResNet, 4x4 feature map, 16 pixels per cell"
    assert facts["tokens"].startswith("17: 4x4 grid of 1x1 patches and a class token")


def test_a_bit_by_its_name(capsys):
    facts = facts_of(printed_by(capsys, "bit-r50x1", "--image-size", "64", "--num-classes", "0"))
    assert facts["feature map"] == "2x2 cells of 2048 numbers"
    assert facts["stages"] == "3 + 4 + 6 + 3 units, root width 64"
    assert facts["head"] == "mean over the map, none: features come out"
    assert facts["parameters"].startswith(f"{ZOO['bit-r50x1'].parameters - 1000 * 2049:,} ")


@pytest.mark.parametrize("key", ["vit-tiny-mnist", "vit-test"])
def test_a_network_as_json(capsys, key: str):
    row = ZOO[key]
    found = described(capsys, key)
    assert found["model"] == f"{row.name}: {row.about}"
    assert found["note"] == row.note
    assert found["file"] == {}
    assert found["config"] == to_json(row.config)
    assert found["tokens"] == 17
    assert (found["cost"]["parameters"], found["cost"]["macs"]) == (row.parameters, row.macs)
    assert sum(layer["parameters"] for layer in found["cost"]["layers"]) == row.parameters


@pytest.mark.parametrize(("words", "size", "tokens"), [(["64"], [64, 64], 65), (["64", "32"], [64, 32], 33)])
def test_another_image_size(capsys, words: list[str], size: list[int], tokens: int):
    found = described(capsys, "vit-test", "--image-size", *words)
    assert found["config"]["image_size"] == size
    assert found["tokens"] == tokens
    assert found["cost"]["parameters"] == ZOO["vit-test"].parameters + (tokens - 17) * 32


def test_another_number_of_classes(capsys):
    found = described(capsys, "vit-test", "--num-classes", "3")
    assert found["config"]["num_classes"] == 3
    assert found["cost"]["parameters"] == ZOO["vit-test"].parameters - 7 * (32 + 1)
    assert facts_of(printed_by(capsys, "vit-test", "--num-classes", "0"))["head"] == (
        "class token, none: features come out"
    )


def test_a_batch_multiplies_the_compute(capsys):
    found = described(capsys, "vit-test", "--batch", "4")
    assert found["cost"]["batch"] == 4
    assert found["cost"]["macs"] == 4 * ZOO["vit-test"].macs
    facts = facts_of(printed_by(capsys, "vit-test", "--batch", "4"))
    assert facts["compute"].endswith("forward for a batch of 4")
    assert "batch 4, without weights" in facts["activation memory"]


def test_a_google_checkpoint(capsys, npz: str):
    out = printed_by(capsys, npz)
    facts = facts_of(out)
    assert out.startswith(f"{npz}\n")
    assert facts["tokens"].startswith("65: 8x8 grid of 4x4 patches and a class token, positions learned_1d")
    assert facts["encoder"] == "3 blocks, width 48, 4 heads, MLP 96"
    assert facts["parameters"].startswith("62,986 ")
    assert facts["file: layout"] == "google"
    assert facts["file: numbering"] == "pre_linen"
    assert facts["file: head"] == "trained"
    assert facts["file: labels"] == "none"
    assert "'bilinear'" in facts["file: preprocessing"]


def test_a_google_checkpoint_as_json(capsys, npz: str):
    found = described(capsys, npz)
    assert found["model"] == npz
    assert found["cost"]["parameters"] == 62_986
    assert found["config"]["image_size"] == [32, 32]
    assert found["file"]["layout"] == "google"
    assert found["file"]["position"] == "stem"


def test_a_checkpoint_at_another_size_and_with_other_classes(capsys, npz: str):
    found = described(capsys, npz, "--image-size", "64", "--num-classes", "3")
    assert found["tokens"] == 257
    assert found["cost"]["parameters"] == 62_986 + (256 - 64) * 48 - 7 * (48 + 1)
    assert found["file"]["head"] == "all zero"


def test_a_big_vision_checkpoint(capsys, fixtures: Path):
    found = described(capsys, str(fixtures / "bv_tok_learn" / "params.npz"))
    assert found["file"]["prefix"] == "params/"
    assert found["file"]["numbering"] == "linen"
    assert found["file"]["position"] == "top"
    assert found["config"]["position_class_row"] is False
    assert found["tokens"] == 65


def test_a_model_folder(capsys, folder: Path):
    facts = facts_of(printed_by(capsys, str(folder)))
    assert facts["encoder"] == "2 blocks, width 32, 2 heads, MLP 64"
    assert facts["parameters"].startswith("24,234 ")
    assert facts["file: layout"] == "vitrail"
    assert facts["file: head"] == "trained"
    assert facts["file: labels"] == "10 names"
    assert "'crop': 0.9" in facts["file: preprocessing"]


def test_a_model_folder_of_a_fresh_network(capsys, tmp_path: Path):
    vitrail.save_model(vitrail.create_model("vit-test"), tmp_path / "model")
    found = described(capsys, str(tmp_path / "model"))
    assert found["file"] == {
        "layout": "vitrail",
        "head": "all zero",
        "labels": "none",
        "preprocessing": "not recorded",
    }
    assert found["config"] == to_json(ZOO["vit-test"].config)


def test_a_model_without_a_head(capsys, tmp_path: Path):
    vitrail.save_model(vitrail.create_model("vit-test", num_classes=0), tmp_path / "model")
    assert described(capsys, str(tmp_path / "model"))["file"]["head"] == "none"


def test_the_weights_of_a_model_folder_alone(capsys, folder: Path, tmp_path: Path):
    alone = shutil.copy(folder / "model.safetensors", tmp_path / "alone.safetensors")
    whole = described(capsys, str(folder))
    assert described(capsys, str(alone)) == {**whole, "model": str(alone)}


def test_a_folder_in_the_working_directory_needs_no_slash(capsys, folder: Path, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert described(capsys, "model")["file"]["layout"] == "vitrail"


def test_an_image_size_that_is_not_recorded_is_noted(capsys, tmp_path: Path):
    """Fixed positions are not stored in a .npz, so nothing says how large its images were."""
    target = tmp_path / "fixed.npz"
    vitrail.save_model(vitrail.create_model("vit-test", position="sincos_2d"), target, layout="google")
    assert main(["info", str(target), "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith(f"note: {target}: without a position array the image size is not recorded")
    assert json.loads(printed.out)["config"]["image_size"] == [224, 224]


@pytest.mark.parametrize("name", ["missing.npz", "missing/model", "missing.safetensors"])
def test_a_missing_file(capsys, tmp_path: Path, monkeypatch, name: str):
    monkeypatch.chdir(tmp_path)
    hint = "Check the path; `vitrail list models` shows names with published weights."
    assert failure(capsys, 3, name) == f"error: {name}: there is no such file or folder. {hint}\n"


def test_an_unknown_name(capsys):
    assert failure(capsys, 2, "vit-b61").startswith("error: Unknown model 'vit-b61'. Did you mean 'vit-b16'")


def test_a_folder_without_a_model(capsys, tmp_path: Path):
    assert f"{tmp_path}: is a folder without a model; wanted" in failure(capsys, 3, str(tmp_path))


def test_a_file_of_another_kind(capsys, tmp_path: Path):
    (tmp_path / "picture.jpg").write_bytes(b"not a model")
    assert "the file ending '.jpg' is not one that is read" in failure(capsys, 3, str(tmp_path / "picture.jpg"))


def test_a_damaged_file(capsys, npz: str, tmp_path: Path):
    half = tmp_path / "half.npz"
    half.write_bytes(Path(npz).read_bytes()[:50_000])
    assert "Download or copy the file again." in failure(capsys, 3, str(half))


def test_an_archive_without_a_network(capsys, tmp_path: Path):
    np.savez(tmp_path / "other.npz", values=np.zeros(3))
    assert "there is no array 'embedding/kernel' (found values)" in failure(capsys, 3, str(tmp_path / "other.npz"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--image-size", "4"], "an image of 4x4 pixels is smaller than a 8x8 patch"),
        (["--image-size", "-1"], "image_size is -1"),
        (["--num-classes", "-1"], "num_classes is -1"),
    ],
)
def test_values_that_make_no_network(capsys, words: list[str], message: str):
    assert message in failure(capsys, 2, "vit-test", *words)
