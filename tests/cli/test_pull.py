"""`vitrail pull` from the emulated hub."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from tests.hub_emulator import TOKEN, Hub, hub_fixture, offline_fixture  # noqa: F401

import vitrail
from vitrail.cli import main
from vitrail.cli.main import VERBS
from vitrail.config import preset
from vitrail.errors import Notice
from vitrail.weights import read_checkpoint
from vitrail.weights.hub import push
from vitrail.zoo import ZOO

# huggingface_hub uploads large files in a way that its HTTP library has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
REPO = "someone/small-vit"


@pytest.fixture(autouse=True)
def command(monkeypatch) -> None:
    monkeypatch.setitem(VERBS, "pull", ("vitrail.cli.pull", "a model from the hub"))


@pytest.fixture
def model() -> torch.nn.Module:
    made = vitrail.create_model("vit-test")
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    made.labels = tuple(f"숫자 | {number}" for number in range(10))
    made.preprocessing = preset("imagenet")
    made.metrics = {"top1": 0.5}
    return made.eval()


@pytest.fixture
def folder(model, tmp_path) -> Path:
    vitrail.save_model(model, tmp_path / "model")
    return tmp_path / "model"


def pulled(capsys, *words: object) -> tuple[str, str]:
    assert main(["pull", *map(str, words)]) == 0
    return capsys.readouterr()


def failure(capsys, code: int, *words: object) -> str:
    assert main(["pull", *map(str, words)]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    return printed.err


def test_pushed_and_pulled_bit_by_bit(hub: Hub, capsys, monkeypatch, model, folder, tmp_path) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    push(folder, "me/mine")
    out, err = pulled(capsys, "me/mine", tmp_path / "back")
    commit = hub.repositories["me/mine"].refs["main"]
    assert out.startswith(f"{tmp_path / 'back'}: ")
    assert out.endswith(f", from me/mine at {commit}\n")
    assert err.startswith("note: Downloading me/mine from the hub: model.safetensors, ")
    assert err.endswith(" MB, licence other.\n")
    back = read_checkpoint(tmp_path / "back")
    assert back.state.keys() == model.state_dict().keys()
    assert all(torch.equal(back.state[name], tensor) for name, tensor in model.state_dict().items())
    assert (back.labels, back.preprocessing, back.metrics) == (model.labels, model.preprocessing, model.metrics)
    assert (back.config, back.provenance) == (model.config, {"hub": "me/mine", "commit": commit})
    card = hub.repositories["me/mine"].files["README.md"]
    assert (tmp_path / "back" / "README.md").read_bytes() == card


def test_published_weights_of_a_zoo_key_as_timm_computes_them(hub: Hub, capsys, tmp_path) -> None:
    timm = pytest.importorskip("timm")
    published = ZOO["vit-ti16"].published
    assert published
    theirs = timm.create_model("vit_tiny_patch16_224", num_classes=7).eval()
    torch.nn.init.normal_(theirs.head.weight)
    settings = {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic", "crop_pct": 0.9}
    config = {"architecture": "vit_tiny_patch16_224", "num_classes": 7, "label_names": [*"abcdefg"]}
    files = {
        "config.json": json.dumps({**config, "pretrained_cfg": {**settings, "input_size": [3, 224, 224]}}).encode(),
        "model.safetensors": save(dict(theirs.state_dict())),
        "README.md": b"---\nlicense: apache-2.0\nlibrary_name: timm\n---\n",
    }
    hub.add(published.hub, files)
    _, err = pulled(capsys, "vit-ti16", tmp_path / "model")
    size = len(files["model.safetensors"]) / 1e6
    assert err == (
        f"note: Downloading {published.hub} from the hub: model.safetensors, {size:.1f} MB, licence apache-2.0.\n"
    )
    ours = vitrail.load_model(tmp_path / "model")
    images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(
            ours(images), wanted := theirs(images), rtol=0, atol=1e-5 * wanted.abs().max().item()
        )
    assert ours.preprocessing == published.preprocessing
    assert ours.labels == tuple("abcdefg")
    assert ours.provenance["hub"] == published.hub
    card = (tmp_path / "model" / "README.md").read_text()
    assert "library_name: vitrail" in card
    assert 'license: "apache-2.0"' in card


def test_the_zoo_fills_in_the_preprocessing(hub: Hub, capsys, tmp_path) -> None:
    timm = pytest.importorskip("timm")
    published = ZOO["vit-ti16"].published
    assert published
    weights = save(dict(timm.create_model("vit_tiny_patch16_224", num_classes=2).state_dict()))
    hub.add(published.hub, {"model.safetensors": weights})
    pulled(capsys, "vit-ti16", tmp_path / "by-key")
    assert read_checkpoint(tmp_path / "by-key").preprocessing == published.preprocessing
    _, err = pulled(capsys, published.hub, tmp_path / "by-repository")
    assert "its preprocessing is not recorded; say it with --preprocessing" in err
    assert read_checkpoint(tmp_path / "by-repository").preprocessing is None


def test_a_hugging_face_repository(hub: Hub, capsys, tmp_path) -> None:
    theirs = vitrail.create_model("vit-ti16", num_classes=3, image_size=32, depth=1, pre_logits=None, gelu="erf")
    theirs.preprocessing = preset("google")
    with pytest.warns(Notice, match="processors smooth images"):
        vitrail.save_model(theirs, tmp_path / "theirs", layout="huggingface")
    hub.add(REPO, tmp_path / "theirs")
    pulled(capsys, f"hf-hub:{REPO}", tmp_path / "model")
    ours = vitrail.load_model(tmp_path / "model").eval()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(ours(images), theirs.eval()(images))


def test_a_google_file(hub: Hub, capsys, fixtures, tmp_path) -> None:
    source = fixtures / "vit_token" / "params.npz"
    hub.add(REPO, {"params.npz": source.read_bytes()})
    pulled(capsys, f"{REPO}@main", tmp_path / "model")
    ours, back = read_checkpoint(source), read_checkpoint(tmp_path / "model")
    assert all(torch.equal(tensor, back.state[name]) for name, tensor in ours.state.items())
    assert back.preprocessing == preset("google")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]


def test_offline_from_the_cache(hub: Hub, capsys, folder, tmp_path, offline) -> None:
    hub.add(REPO, folder)
    pulled(capsys, REPO, tmp_path / "first")
    hub.requests.clear()
    offline()
    _, err = pulled(capsys, REPO, tmp_path / "second")
    assert err == ""
    assert hub.requests == []
    names = ("config.json", "model.safetensors", "README.md")
    assert all((tmp_path / "first" / n).read_bytes() == (tmp_path / "second" / n).read_bytes() for n in names[:2])


def test_a_target_that_is_there_is_left_alone(hub: Hub, capsys, folder, tmp_path) -> None:
    hub.add(REPO, folder)
    target = tmp_path / "mine"
    target.mkdir()
    (target / "thesis.txt").write_text("mine")
    assert "is there already. Choose another target, or add --overwrite." in failure(capsys, 2, REPO, target)
    assert hub.requests == []
    assert main(["pull", REPO, str(target), "--overwrite"]) == 2
    assert "is not a model folder" in capsys.readouterr().err
    assert [path.name for path in target.iterdir()] == ["thesis.txt"]


def test_overwriting_a_model_folder(hub: Hub, capsys, model, folder, tmp_path) -> None:
    hub.add(REPO, folder)
    target = tmp_path / "old"
    vitrail.save_model(vitrail.create_model("vit-test", num_classes=3), target)
    (target / "README.md").write_text("# the old one")
    (target / "notes.txt").write_text("mine")
    pulled(capsys, REPO, target, "--overwrite")
    assert read_checkpoint(target).labels == model.labels
    assert "the old one" not in (target / "README.md").read_text()
    assert (target / "notes.txt").read_text() == "mine"


def test_mistakes_end_in_one_line(hub: Hub, capsys, tmp_path, offline) -> None:
    target = tmp_path / "model"
    assert failure(capsys, 2, "vit-b61", target) == "error: Unknown model 'vit-b61'. Did you mean 'vit-b16'?\n"
    assert "no weights are published for 'vit-l14'" in failure(capsys, 2, "vit-l14", target)
    assert "cannot be a repository of the hub" in failure(capsys, 2, "a/b/c", target)
    assert "there is no such repository on the hub" in failure(capsys, 3, "someone/missing", target)
    offline()
    message = failure(capsys, 3, "vit-b16", target)
    assert "timm/vit_base_patch16_224.augreg_in21k_ft_in1k: HF_HUB_OFFLINE is set" in message
    assert "wanted config.json and model.safetensors" in message
    assert not target.exists()
