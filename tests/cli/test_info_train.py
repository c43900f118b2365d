"""`vitrail info --train`: the table adds up, the JSON says the same, and advice is a command that works."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import vitrail
from vitrail.cli import main
from vitrail.config import OptimConfig, TrainConfig
from vitrail.training.footprint import footprint
from vitrail.zoo import ZOO


@pytest.fixture(autouse=True)
def plain_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """No colours, and no GPU even where there is one."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def printed_by(capsys, *words: str) -> str:
    assert main(["info", *words]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def described(capsys, *words: str) -> dict[str, Any]:
    return json.loads(printed_by(capsys, "--train", *words, "--json"))


def failure(capsys, *words: str) -> str:
    assert main(["info", *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    return printed.err


def bytes_in(text: str) -> float:
    number, unit = re.fullmatch(r"([\d,.]+) (kB|MB|GB)", text).groups()  # type: ignore[union-attr]
    return float(number.replace(",", "")) * {"kB": 1e3, "MB": 1e6, "GB": 1e9}[unit]


def rows_of(out: str) -> dict[str, float]:
    rows = re.findall(r"^ (\w+) +([\d,.]+ (?:kB|MB|GB))  ", out, re.MULTILINE)
    return {name: bytes_in(size) for name, size in rows}


def test_the_rows_add_up(capsys):
    rows = rows_of(printed_by(capsys, "--train", "vit-test", "--batch", "256", "--average"))
    total = rows.pop("sum")
    assert set(rows) == {
        *("weights", "gradients", "optimiser", "average", "casts", "activations", "temporaries", "images", "libraries")
    }
    assert sum(rows.values()) == pytest.approx(total, rel=0.01)
    assert rows["weights"] == pytest.approx(4 * ZOO["vit-test"].parameters, rel=0.01)


def test_people_and_programs_are_told_the_same(capsys):
    words = ["vit-test", "--batch", "512", "--gpus", "4", "--parallel", "fsdp", "--optimizer", "sgd"]
    rows = rows_of(printed_by(capsys, "--train", *words))
    found = described(capsys, *words)
    assert rows["sum"] == pytest.approx(found["bytes"]["total"], rel=0.01)
    assert rows["gathered"] == pytest.approx(found["bytes"]["gathered"], abs=5e4)  # printed as 0.2 MB
    assert found["bytes"]["total"] == sum(size for name, size in found["bytes"].items() if name != "total")
    assert (found["gpus"], found["parallel"], found["micro_batch"], found["micro_batches"]) == (4, "fsdp", 128, 1)
    assert found["changes"] == []


def test_every_option_reaches_the_estimate(capsys):
    found = described(
        capsys,
        *("vit-test", "--batch", "64", "--micro-batch", "16", "--precision", "float32", "--optimizer", "sgd"),
        *("--average", "--checkpoint-activations", "--no-compile", "--image-size", "64", "--num-classes", "3"),
    )
    config = vitrail.create_model("vit-test", image_size=64, num_classes=3).config
    train = TrainConfig(
        batch_size=64, loss="softmax", steps=1, micro_batch=16, average=0.9, checkpoint_activations=True
    )
    wanted = footprint(config, train, OptimConfig(optimizer="sgd", lr=0.0))
    assert found["bytes"] == {**wanted.parts, "total": wanted.total}
    assert (found["precision"], found["compile"], found["average"]) == ("float32", False, True)
    assert found["checkpoint_activations"] is True


def test_dropout_is_counted(capsys):
    plain, dropped = (described(capsys, "vit-test", "--batch", "512", "--dropout", rate) for rate in ("0", "0.1"))
    assert dropped["bytes"]["activations"] > 1.1 * plain["bytes"]["activations"]


def test_it_fits_and_says_how_it_is_cut(capsys):
    out = printed_by(capsys, "--train", "vit-test", "--gpus", "8", "--batch", "4096", "--micro-batch", "128")
    assert "4,096 images = 8 GPUs x 4 x 128 images at a time" in out
    assert "8, a copy of the network on each (ddp)" in out
    assert "80.00 GB (assumed: there is no GPU here; --gpu-memory says another size)" in out
    assert re.search(
        r"^It fits: .* of 72.00 GB; 10% of 80.00 GB is left to the CUDA context, libraries and fragmentation\.$",
        out,
        re.MULTILINE,
    )
    assert "What to change" not in out


def test_the_memory_of_the_gpu_here_is_taken(capsys, monkeypatch):
    properties = type("Properties", (), {"name": "NVIDIA H200", "total_memory": 150_000_000_000})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    out = printed_by(capsys, "--train", "vit-test", "--batch", "8")
    assert "150.00 GB (NVIDIA H200 of this machine)" in out
    assert "135.00 GB" in out
    assert described(capsys, "vit-test", "--batch", "8", "--gpu-memory", "24")["gpu_memory"] == 24_000_000_000


def test_advice_can_be_typed_and_gives_what_it_promised(capsys):
    words = ["vit-test", "--batch", "4096", "--micro-batch", "4096", "--gpu-memory", "0.2"]
    out = printed_by(capsys, "--train", *words)
    assert "It does not fit: " in out
    advised = re.findall(r"^  with (--.*): ([\d.]+ [MG]B), (fits|still too much) \(", out, re.MULTILINE)
    assert [options.split()[0] for options, _, _ in advised] == ["--micro-batch", "--checkpoint-activations", "--gpus"]
    for options, size, verdict in advised:
        # What is typed again takes the place of what was typed before.
        kept = words if "--micro-batch" not in options else [words[0], *words[1:3], *words[5:]]
        found = described(capsys, *kept, *options.split())
        assert found["bytes"]["total"] == pytest.approx(bytes_in(size), rel=0.01)
        assert found["fits"] == (verdict == "fits")
    asked = described(capsys, *words)
    assert [change["options"] for change in asked["changes"]] == [options for options, _, _ in advised]
    assert asked["fits"] is False


def test_a_gpu_that_is_too_small_for_anything(capsys):
    out = printed_by(capsys, "--train", "vit-test", "--batch", "1", "--checkpoint-activations", "--gpu-memory", "0.05")
    assert "Nothing here makes it fit" in out


def test_the_network_of_a_folder(capsys, tmp_path: Path):
    vitrail.save_model(vitrail.create_model("vit-test"), tmp_path / "model")
    whole, named = (described(capsys, name, "--batch", "64") for name in (str(tmp_path / "model"), "vit-test"))
    assert whole["bytes"] == named["bytes"]


def test_a_bit_can_be_asked_about(capsys):
    found = described(capsys, "bit-r50x1", "--image-size", "64", "--batch", "32")
    assert found["bytes"]["weights"] == 4 * ZOO["bit-r50x1"].parameters


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--train"], "--train came without --batch; wanted the images of one update. Add --batch 4096, say."),
        (["--train", "--batch", "0"], "batch is 0; wanted a whole number from 1"),
        (["--train", "--batch", "64", "--gpus", "3"], "a batch of 64 does not divide over 3 GPUs; wanted a multiple"),
        (["--train", "--batch", "64", "--gpus", "0"], "gpus is 0; wanted a whole number from 1"),
        (["--train", "--batch", "64", "--micro-batch", "-2"], "micro-batch is -2; wanted a whole number from 1"),
        (["--train", "--batch", "64", "--parallel", "fsdp"], "--parallel fsdp came with one GPU; wanted --gpus 2"),
        (["--train", "--batch", "64", "--gpu-memory", "-3"], "--gpu-memory is -3.0; wanted GB of one GPU"),
        (["--train", "--batch", "64", "--gpu-memory", "nan"], "--gpu-memory is nan; wanted GB of one GPU"),
        (["--train", "--batch", "64", "--dropout", "1.5"], "dropout is 1.5; wanted a chance in [0, 1)"),
        (["--train", "--batch", "64", "--num-classes", "0"], "num_classes is 0; wanted classes to train for"),
        (["--gpus", "8"], "--gpus came without --train. Add --train."),
        (["--no-compile"], "--compile came without --train. Add --train."),
        (["--batch", "4", "--checkpoint-activations"], "--checkpoint-activations came without --train."),
    ],
)
def test_ugly_questions(capsys, words: list[str], message: str):
    assert message in failure(capsys, "vit-test", *words)


def test_a_bit_has_no_dropout(capsys):
    assert "a BiT has no dropout" in failure(capsys, "--train", "bit-r50x1", "--batch", "8", "--dropout", "0.1")
