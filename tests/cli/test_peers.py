"""Networks of timm and torchvision at the command line: every verb takes them or says why not."""

import json
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save
from tests.hub_emulator import Hub, hub_fixture, offline_fixture  # noqa: F401

from vitrail import load_model
from vitrail.cli import main
from vitrail.config import PeerConfig

pytestmark = pytest.mark.filterwarnings("ignore::vitrail.errors.Notice")
SMALL = "timm:test_efficientnet"
SHORT = ("--device", "cpu", "--workers", "0", "--steps", "2", "--batch-size", "8")


def said(capsys, *words: str) -> str:
    """What a command prints that ends well."""
    assert main(words) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys, *words: str) -> str:
    """The one sentence or two of a mistake."""
    assert main(words) == 2
    *before, told = capsys.readouterr().err.splitlines()
    assert told.startswith("error: ") and not any("Traceback" in line for line in before)
    return told


@pytest.fixture
def run(place: Path, capsys) -> Path:
    told = said(capsys, "train", SMALL, "--data", "photos", "--image-size", "32", "--name", "peer", *SHORT)
    assert "test_efficientnet of timm, 32x32 px" in told and "test_efficientnet-folder on" in told
    return place / "runs/peer"


def test_one_is_trained_measured_and_asked_as_any_other(run, place, capsys) -> None:
    recorded = json.loads((run / "config.json").read_text())["config"]
    assert (recorded["recipe"], recorded["model"]["name"]) == ("test_efficientnet-folder", "test_efficientnet")
    assert recorded["optim"]["optimizer"] == "adam"
    assert load_model(run).labels == ("ant", "bee", "cow")
    assert "test_efficientnet of timm" in (run / "report.html").read_text()
    assert "as timm builds it" in (run / "model/README.md").read_text()
    assert "15 images counted" in said(capsys, "evaluate", str(run), "--data", "photos", "--device", "cpu")
    photo = next((place / "photos/test/ant").iterdir())
    assert "ant" in said(capsys, "predict", str(run), str(photo), "--device", "cpu", "--backend", "torch")
    assert "built by timm" in said(capsys, "info", str(run))
    assert "finished" in said(capsys, "train", "--resume", str(run))
    assert "cannot hold a network that another package builds" in refused(
        capsys, "convert", str(run), "out.safetensors", "--layout", "timm"
    )
    assert "--to onnx" in refused(capsys, "export", str(run), "--to", "torch", "--out", "out.pt2")


@pytest.mark.slow
def test_the_other_verbs_take_it_too(run, place, capsys) -> None:
    assert "Test accuracy" in said(capsys, "knn", str(run), "--data", "photos", "--device", "cpu")
    assert "Test accuracy" in said(capsys, "fewshot", str(run), "--data", "photos", "--device", "cpu", "--shots", "2")
    photo = str(next((place / "photos/test/ant").iterdir()))
    seen = said(capsys, "inspect", str(run), photo, "--out", "seen")
    assert "filters" in seen and "timm:test_efficientnet shows no attention" in seen
    assert "the same first class" in said(capsys, "export", str(run), "--to", "onnx", "--out", "out.onnx")
    assert "ant" in said(capsys, "predict", "out.onnx", photo)
    found = said(capsys, "finetune", str(run), "--data", "photos", "--lr", "0.01", "--name", "next", *SHORT)
    assert "test accuracy" in found


@pytest.mark.slow
def test_published_weights_are_fine_tuned_and_pulled(hub: Hub, place, capsys) -> None:
    torch.manual_seed(0)
    theirs = timm.create_model("test_efficientnet")
    hub.add("timm/test_efficientnet.r160_in1k", {"model.safetensors": save(theirs.state_dict())})
    words = ("--data", "photos", "--lr", "0.01", "--image-size", "48", "--name", "tuned", *SHORT)
    told = said(capsys, "finetune", f"{SMALL}.r160_in1k", *words)
    assert f"from {SMALL}.r160_in1k, at 48x48 px" in told
    config = load_model(place / "runs/tuned").config
    assert config == PeerConfig(package="timm", name="test_efficientnet", image_size=(48, 48), num_classes=3)
    assert "parameters" in said(capsys, "pull", SMALL, "pulled")
    assert torch.equal(load_model(place / "pulled").body.conv_stem.weight, theirs.conv_stem.weight)


def test_the_network_is_described_by_its_name(capsys) -> None:
    told = said(capsys, "info", "torchvision:resnet18", "--image-size", "32")
    assert "resnet18, built by torchvision" in told and "11,689,512" in told
    assert json.loads(said(capsys, "info", "timm:test_vit", "--json"))["config"]["package"] == "timm"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("train", "timm:test_efficientnt", "--data", "photos"), "Did you mean 'test_efficientnet'?"),
        (("train", "timm:resnet18.a1_in1k", "--data", "photos"), "`vitrail finetune timm:resnet18.a1_in1k` uses them"),
        (("train", "timm:levit_128s", "--data", "photos"), "does not end in one linear layer"),
        (("train", "torchvision:vgg11", "--data", "photos", "--image-size", "16"), "cannot take images of 16x16"),
        (("train", SMALL), "there is neither a recipe nor data"),
        (("finetune", "torchvision:resnet_18", "--data", "photos"), "Did you mean 'resnet18'?"),
        (("info", SMALL, "--train", "--batch", "8"), "--train came for a network of another package"),
        (("info", "timm:../x"), "cannot be a network of timm"),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(words, what, place, capsys) -> None:
    assert what in refused(capsys, *words)
    assert not (place / "runs").exists()
