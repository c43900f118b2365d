"""The hub through an emulator on this machine: what is fetched, what is told, and every way it can fail."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
import torch
from tests.hub_emulator import TOKEN, Hub, Repository, hub_fixture, offline_fixture  # noqa: F401

import vitrail
from vitrail.config import preset
from vitrail.errors import DataError, DiskError, Notice, UsageError
from vitrail.weights import read_checkpoint
from vitrail.weights.hub import fetch, is_hub, push, with_origin, zoo_source
from vitrail.zoo import ZOO

# huggingface_hub uploads large files in a way that its HTTP library has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
REPO = "someone/small-vit"


@pytest.fixture
def model() -> torch.nn.Module:
    made = vitrail.create_model("vit-test")
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    made.labels = tuple(f"숫자 {number}" for number in range(10))
    made.preprocessing = preset("augreg")
    return made.eval()


@pytest.fixture
def folder(model, tmp_path) -> Path:
    vitrail.save_model(model, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def token(monkeypatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)


def fetched(repo: str = REPO, revision: str | None = None) -> Path:
    with pytest.warns(Notice, match="^Downloading "):
        return fetch(repo, revision)


def same(model, path: Path) -> None:
    checkpoint = read_checkpoint(path)
    assert checkpoint.state.keys() == model.state_dict().keys()
    assert all(torch.equal(checkpoint.state[name], tensor) for name, tensor in model.state_dict().items())


def test_what_names_a_repository() -> None:
    assert is_hub("hf-hub:owner/name")
    assert not any(map(is_hub, ["owner/name", "vit-b16", "./hf-hub:owner/name", "model.npz"]))


def test_a_model_folder_comes_whole_and_nothing_else_comes(hub: Hub, model, folder) -> None:
    extra = {"optimizer.bin": b"x" * 1000, "pytorch_model.bin": b"x" * 1000, "logs/events": b"x"}
    hub.add(REPO, {**{file.name: file.read_bytes() for file in folder.iterdir()}, **extra, "README.md": b"# mine"})
    path = fetched()
    assert sorted(file.name for file in path.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    same(model, path)
    checkpoint = read_checkpoint(path)
    assert (checkpoint.labels, checkpoint.preprocessing) == (model.labels, model.preprocessing)
    assert not any("optimizer" in request or "pytorch_model" in request for request in hub.requests)


def test_a_hugging_face_repository_with_its_preprocessor(hub: Hub, model, tmp_path) -> None:
    plain = vitrail.create_model("vit-ti16", num_classes=3, image_size=32, depth=1, pre_logits=None, gelu="erf")
    torch.nn.init.normal_(plain.head.weight)
    plain.preprocessing = preset("augreg")
    vitrail.save_model(plain, tmp_path / "theirs", layout="huggingface")
    hub.add(REPO, tmp_path / "theirs")
    path = fetched()
    assert (path / "preprocessor_config.json").is_file()
    same(plain, path)


def test_a_pickled_file_is_taken_when_there_is_no_better(hub: Hub, tmp_path) -> None:
    timm = pytest.importorskip("timm")
    theirs = timm.create_model("vit_tiny_patch16_224", num_classes=2, img_size=32, depth=1)
    torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
    hub.add(REPO, {"pytorch_model.bin": (tmp_path / "pytorch_model.bin").read_bytes(), "config.json": b"{}"})
    assert sorted(file.name for file in fetched().iterdir()) == ["config.json", "pytorch_model.bin"]


def test_a_lone_npz_is_given_as_the_file(hub: Hub, fixtures) -> None:
    content = (fixtures / "vit_token" / "params.npz").read_bytes()
    hub.add(REPO, {"weights/ViT-Ti_16 [1].npz": content, "README.md": b""})
    path = fetched()
    assert path.name == "ViT-Ti_16 [1].npz"
    assert path.read_bytes() == content
    assert read_checkpoint(path).config.width == 48


def test_weights_without_a_config_are_given_as_the_file(hub: Hub, folder) -> None:
    hub.add(REPO, {"model.safetensors": (folder / "model.safetensors").read_bytes()})
    assert fetched().name == "model.safetensors"


def test_sharded_weights_are_refused(hub: Hub) -> None:
    shards = {f"model-0000{n}-of-00002.safetensors": b"" for n in (1, 2)}
    hub.add(REPO, {**shards, "model.safetensors.index.json": b"{}", "config.json": b"{}"})
    with pytest.raises(DataError, match=f"^{REPO}: its weights are sharded over several files, which are not read.$"):
        fetch(REPO)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["config.json"], "has no weights that can be read; wanted model.safetensors, pytorch_model.bin or a single"),
        (["a.npz", "b.npz"], r"has 2 weight files \(a.npz, b.npz, ...\). Download the one you want and give its path."),
    ],
)
def test_a_repository_without_one_model(hub: Hub, names, message) -> None:
    hub.add(REPO, dict.fromkeys(names, b""))
    with pytest.raises(DataError, match=message):
        fetch(REPO)


def test_size_and_licence_are_told_before_the_download(hub: Hub, folder) -> None:
    card = b"---\nlicense: cc-by-nc-4.0\n---\n# mine\n"
    hub.add(REPO, {"model.safetensors": b"x" * 23_456_789, "config.json": b"{}", "README.md": card})
    wanted = f"^Downloading {REPO} from the hub: model.safetensors, 23.5 MB, licence cc-by-nc-4.0.$"
    with pytest.warns(Notice, match=wanted) as told:
        fetch(REPO)
    assert len(told) == 1


def test_the_licence_of_the_zoo_stands_in_for_a_silent_card(hub: Hub) -> None:
    published = ZOO["vit-b16"].published
    assert published
    hub.add(published.hub, {"model.safetensors": b"x", "config.json": b"{}"})
    hub.add(REPO, {"model.safetensors": b"x", "config.json": b"{}"})
    with pytest.warns(Notice, match="licence apache-2.0"):
        fetch(published.hub)
    with pytest.warns(Notice, match="no licence stated"):
        fetch(REPO)


def test_the_second_time_nothing_is_downloaded_or_told(hub: Hub, folder) -> None:
    hub.add(REPO, folder)
    path = fetched()
    hub.requests.clear()
    assert fetch(REPO) == path
    assert not any("/resolve/" in request for request in hub.requests)


@pytest.mark.parametrize("source", [REPO, f"hf-hub:{REPO}", f"hf-hub:{REPO}@main"])
def test_offline_the_cache_is_used_without_a_request(hub: Hub, folder, offline, source) -> None:
    hub.add(REPO, folder)
    path = fetched()
    hub.requests.clear()
    offline()
    assert fetch(source) == path
    assert hub.requests == []


@pytest.mark.parametrize("failure", ["down", "status"])
def test_a_hub_that_does_not_answer_leaves_the_cache(hub: Hub, folder, failure) -> None:
    hub.add(REPO, folder)
    path = fetched()
    if failure == "down":
        hub.stop()
    hub.status = 503
    assert fetch(REPO) == path


def test_a_new_commit_is_noticed(hub: Hub, folder) -> None:
    first = hub.add(REPO, folder)
    old = fetched()
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    second = hub.add(REPO, {**files, "README.md": b"# new"})
    new = fetched()
    assert (old.name, new.name) == (first, second)
    assert (new / "README.md").read_text() == "# new"


def test_a_revision_by_branch_tag_or_commit(hub: Hub, folder) -> None:
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    old, _ = hub.add(REPO, files), hub.add(REPO, {**files, "README.md": b"# new"})
    other = hub.add(REPO, {**files, "README.md": b"# other"}, branch="v1.0")
    assert fetched(f"hf-hub:{REPO}@v1.0").name == other
    assert fetched(f"{REPO}@{old}").name == old
    hub.requests.clear()
    assert fetch(REPO, old).name == old
    assert hub.requests == [], "a commit cannot change, so the hub is not asked"


def test_where_it_came_from(hub: Hub, model, folder) -> None:
    commit = hub.add(REPO, folder)
    path = fetched()
    stored = dataclasses.replace(read_checkpoint(path), provenance={"run": 1})
    made = with_origin(stored, path, f"hf-hub:{REPO}@main")
    assert made.provenance == {"run": 1, "hub": REPO, "commit": commit}
    assert made.preprocessing == model.preprocessing
    published = ZOO["vit-b16"].published
    made = with_origin(dataclasses.replace(stored, preprocessing=None), Path("elsewhere"), REPO, published)
    assert made.provenance == {"licence": "apache-2.0", "run": 1, "hub": REPO}
    assert made.preprocessing == preset("augreg")


def test_offline_without_a_cache_says_what_to_bring(hub: Hub, offline) -> None:
    offline()
    wanted = (
        f"{REPO}: HF_HUB_OFFLINE is set and its files are not in the cache; wanted config.json and model.safetensors. "
        f"Download them elsewhere from https://huggingface.co/{REPO}/tree/main and give the folder."
    )
    with pytest.raises(DataError, match=f"^{re.escape(wanted)}$"):
        fetch(REPO)
    assert hub.requests == []


@pytest.mark.parametrize(("status", "reason"), [(None, "cannot be reached"), (503, "it answers 503"), (429, "429")])
def test_an_unreachable_hub_says_what_to_bring(hub: Hub, status, reason) -> None:
    hub.status = status
    if status is None:
        hub.stop()
    with pytest.raises(DataError, match=f"{reason}.*wanted config.json and model.safetensors. Download them elsewhere"):
        fetch(REPO)


def test_an_address_that_is_no_hub(hub: Hub, monkeypatch) -> None:
    monkeypatch.setattr(hub, "answer", lambda *_: (200, {"Content-Type": "text/html"}, b"<h1>Welcome</h1>"))
    with pytest.raises(DataError, match=f"the hub at {hub.url} gives no usable answer"):
        fetch(REPO)


def test_a_download_that_breaks_off(hub: Hub, folder, monkeypatch) -> None:
    hub.add(REPO, folder)
    whole = hub.answer

    def cut(method: str, path: str, *rest):
        status, headers, body = whole(method, path, *rest)
        short = method == "GET" and path.endswith(".safetensors")
        return status, headers, body[:-9] if short else body

    monkeypatch.setattr(hub, "answer", cut)
    with pytest.warns(Notice), pytest.raises(DataError, match=r"gives no usable answer.*are not in the cache"):
        fetch(REPO)
    monkeypatch.setattr(hub, "answer", whole)
    assert read_checkpoint(fetched()).config.width == 32


def test_a_download_that_was_cut_short_is_not_taken_for_a_model(hub: Hub, folder, offline) -> None:
    hub.add(REPO, folder)
    path = fetched()
    (path / "model.safetensors").unlink()
    offline()
    with pytest.raises(DataError, match="its files are not in the cache"):
        fetch(REPO)


def test_a_repository_that_is_not_there(hub: Hub, token) -> None:
    with pytest.raises(DataError, match=r"there is no such repository on the hub, or it is private\. Check the name"):
        fetch("someone/missing")


def test_a_private_repository(hub: Hub, folder, monkeypatch) -> None:
    hub.add(REPO, folder, private=True)
    with pytest.raises(DataError, match=r"or it is private.*`hf auth login` or set HF_TOKEN"):
        fetch(REPO)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    fetched()


def test_a_gated_repository(hub: Hub, folder) -> None:
    hub.add(REPO, folder, gated=True)
    wanted = f"{REPO}: is gated: its authors ask for your consent first. Agree at {hub.url}/{REPO}, then run `hf auth"
    with pytest.warns(Notice), pytest.raises(DataError, match=re.escape(wanted)):
        fetch(REPO)


@pytest.mark.parametrize(("status", "message"), [(401, "does not accept the token"), (403, "has no right")])
def test_a_token_that_is_refused(hub: Hub, monkeypatch, folder, status, message) -> None:
    hub.add(REPO, folder)
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    hub.status = 403 if status == 403 else None
    with pytest.raises(UsageError, match=message):
        fetch(REPO)


def test_a_missing_revision(hub: Hub, folder) -> None:
    hub.add(REPO, folder)
    with pytest.raises(DataError, match=f"{REPO}: has no such revision"):
        fetch(f"{REPO}@v9")


@pytest.mark.parametrize(
    "repo",
    [
        *("", "name", "a/b/c", "../name", "owner/..", "owner/na..me", "/owner/name", "owner/", "own er/name", ".a/b"),
        *("owner/name\n", "owner/이름", "owner--x/name", "owner/name.git", "https://huggingface.co/owner/name"),
        "hf-hub:hf-hub:a/b",
    ],
)
def test_bad_names_of_repositories(hub: Hub, folder, token, repo) -> None:
    for attempt in (lambda: fetch(repo), lambda: fetch(f"hf-hub:{repo}"), lambda: push(folder, repo)):
        with pytest.raises(UsageError, match="cannot be a repository of the hub; wanted owner/name"):
            attempt()
    assert hub.requests == []


@pytest.mark.parametrize("revision", ["", "..", "../../x", "/main", "a//b", "a b", "main@x", "main\n"])
def test_bad_revisions(hub: Hub, revision) -> None:
    with pytest.raises(UsageError, match="cannot be a revision of"):
        fetch(f"{REPO}@{revision}")
    assert hub.requests == []


def test_a_cache_that_cannot_be_written(hub: Hub, folder, monkeypatch, tmp_path) -> None:
    from huggingface_hub import constants

    hub.add(REPO, folder)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.warns(Notice), pytest.raises(DiskError, match="the cache of the hub could not be written"):
        fetch(REPO)


def test_nothing_about_the_user_is_sent(hub: Hub, folder, monkeypatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", False)
    hub.add(REPO, folder)
    fetched()
    assert not any("torch" in agent or "agent/" in agent for agent in hub.agents)
    assert not any("harness" in request for request in hub.requests)
    assert constants.HF_HUB_DISABLE_TELEMETRY is False, "the user's own setting is left as it was"


def test_nothing_is_drawn_without_a_terminal(hub: Hub, folder, capfd, token) -> None:
    hub.add(REPO, folder)
    fetched()
    push(folder, "me/copy")
    assert capfd.readouterr() == ("", "")


def test_zoo_keys() -> None:
    assert zoo_source("vit-b16") is ZOO["vit-b16"].published
    assert zoo_source("no-such-key") is None
    wanted = "no weights are published for 'vit-l14'. `vitrail list models` shows which have some; vitrail.create_model"
    with pytest.raises(UsageError, match=re.escape(wanted)):
        zoo_source("vit-l14")


def test_pushed_and_fetched_again(hub: Hub, model, folder, token) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert push(folder, "me/mine", message="first") == f"{hub.url}/me/mine"
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    pushed = hub.repositories["me/mine"]
    assert pushed.private
    assert pushed.messages == ["", "first"], "one commit after the one that makes the repository"
    unchanged = [name for name in before if name != "README.md"]
    assert [pushed.files[name] for name in unchanged] == [before[name] for name in unchanged]
    assert "hf-hub:me/mine" in pushed.files["README.md"].decode()
    same(model, fetched("me/mine"))


def test_a_card_of_ones_own_is_kept(hub: Hub, folder, token) -> None:
    (folder / "README.md").write_text("# mine", encoding="utf-8")
    (folder / "notes.txt").write_text("not for others")
    push(folder, REPO, private=False)
    pushed = hub.repositories[REPO]
    assert not pushed.private
    assert sorted(pushed.files) == [".gitattributes", "README.md", "config.json", "model.safetensors"]
    assert pushed.files["README.md"] == b"# mine"


def test_pushing_again_makes_a_second_commit(hub: Hub, folder, token) -> None:
    push(folder, REPO)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "metrics": {"top1": 0.5}}))
    push(folder, REPO, message="better")
    assert hub.repositories[REPO].messages[-1] == "better"
    assert json.loads(hub.repositories[REPO].files["config.json"])["metrics"] == {"top1": 0.5}


def test_a_private_model_never_lands_in_a_public_repository(hub: Hub, folder, token) -> None:
    hub.add(REPO, {"README.md": b""})
    with pytest.raises(UsageError, match=f"{REPO}: is a public repository. Add public=True to publish there"):
        push(folder, REPO)
    assert list(hub.repositories[REPO].files) == ["README.md"]
    push(folder, REPO, private=False)


def test_a_repository_that_stays_private(hub: Hub, folder, token) -> None:
    hub.repositories[REPO] = Repository(private=True)
    hub.add(REPO, {})
    with pytest.warns(Notice, match="stays private"):
        push(folder, REPO, private=False)


def test_pushing_needs_a_token(hub: Hub, folder, monkeypatch) -> None:
    with pytest.raises(UsageError, match=r"no token of the hub is known\. To write, run `hf auth login` or set"):
        push(folder, REPO)
    assert hub.requests == []
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(UsageError, match="the hub does not accept the token"):
        push(folder, REPO)
    assert hub.repositories == {}


def test_pushing_where_one_may_not(hub: Hub, folder, token) -> None:
    with pytest.raises(UsageError, match="forbidden/name: the token has no right to do this"):
        push(folder, "forbidden/name")


def test_pushing_to_a_hub_that_does_not_answer(hub: Hub, folder, token) -> None:
    hub.status = 503
    with pytest.raises(DataError, match=f"{REPO}: the hub is not available now"):
        push(folder, REPO)


def test_a_broken_card_is_refused_by_the_hub(hub: Hub, folder, token) -> None:
    (folder / "README.md").write_text("---\na: [\n---\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"the hub refuses with 400 \(the YAML is broken\)"):
        push(folder, REPO)


def test_only_model_folders_that_load_are_pushed(hub: Hub, folder, tmp_path, token) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(UsageError, match="photos: is not a model folder; wanted a model folder with the format"):
        push(tmp_path / "photos", REPO)
    config = json.loads((folder / "config.json").read_text())
    config["model"]["width"] *= 2
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(DataError, match="has shape"):
        push(folder, REPO)
    assert hub.requests == []
