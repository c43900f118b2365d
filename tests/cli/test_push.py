"""`vitrail push` to the emulated hub."""

from pathlib import Path

import pytest
import torch
import yaml
from tests.hub_emulator import TOKEN, Hub, hub_fixture  # noqa: F401

import vitrail
from vitrail.cli import main
from vitrail.cli.main import VERBS
from vitrail.weights import read_checkpoint

# huggingface_hub uploads large files in a way that its HTTP library has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture(autouse=True)
def command(hub: Hub, monkeypatch) -> None:
    monkeypatch.setitem(VERBS, "push", ("vitrail.cli.push", "a model to the hub"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)


@pytest.fixture
def folder(tmp_path) -> Path:
    model = vitrail.create_model("vit-test")
    torch.nn.init.normal_(model.head.weight)
    vitrail.save_model(model, tmp_path / "model")
    return tmp_path / "model"


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def failure(capsys, code: int, *words: object) -> str:
    assert main(["push", *map(str, words)]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    return printed.err


def test_a_model_folder_with_a_new_card(hub: Hub, capsys, folder) -> None:
    before = contents(folder)
    assert main(["push", str(folder), "me/mine"]) == 0
    assert capsys.readouterr() == (f"{hub.url}/me/mine\n", "")
    assert contents(folder) == before, "nothing is written into the user's folder"
    pushed = hub.repositories["me/mine"]
    assert pushed.private
    assert len(pushed.messages) == 2
    card = pushed.files["README.md"].decode()
    assert yaml.safe_load(card.split("---\n")[1])["library_name"] == "vitrail"
    assert "hf-hub:me/mine" in card
    unchanged = [name for name in before if name != "README.md"]
    assert [pushed.files[name] for name in unchanged] == [before[name] for name in unchanged]


def test_public_only_when_asked(hub: Hub, capsys, folder) -> None:
    assert main(["push", str(folder), "me/mine", "--public"]) == 0
    assert not hub.repositories["me/mine"].private
    assert capsys.readouterr().err == ""
    assert "is a public repository. Add --public" in failure(capsys, 2, folder, "me/mine")


def test_another_layout_is_converted_on_the_way(hub: Hub, capsys, fixtures, tmp_path) -> None:
    source = fixtures / "vit_token" / "params.npz"
    before = sorted(path.name for path in source.parent.iterdir())
    assert main(["push", str(source), "me/mine"]) == 0
    assert sorted(path.name for path in source.parent.iterdir()) == before
    (tmp_path / "back").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "back" / name).write_bytes(hub.repositories["me/mine"].files[name])
    ours, back = read_checkpoint(source), read_checkpoint(tmp_path / "back")
    assert all(torch.equal(tensor, back.state[name]) for name, tensor in ours.state.items())
    assert (back.config, back.preprocessing) == (ours.config, ours.preprocessing)


def test_mistakes_end_in_one_line(hub: Hub, capsys, folder, tmp_path, monkeypatch) -> None:
    assert "'mine' cannot be a repository of the hub; wanted owner/name." in failure(capsys, 2, folder, "mine")
    assert "there is no such file or folder" in failure(capsys, 3, tmp_path / "missing", "me/mine")
    assert "the token has no right" in failure(capsys, 2, folder, "forbidden/mine")
    hub.status = 503
    assert "the hub is not available now (it answers 503)" in failure(capsys, 3, folder, "me/mine")
    hub.status = None
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert "the hub does not accept the token" in failure(capsys, 2, folder, "me/mine")
    monkeypatch.delenv("HF_TOKEN")
    assert "To write, run `hf auth login` or set HF_TOKEN." in failure(capsys, 2, folder, "me/mine")
    assert hub.repositories == {}
