"""A Hugging Face hub on 127.0.0.1: what huggingface_hub needs to read and write model repositories."""

import base64
import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml

TOKEN = "hf_emulated"
_GETADDRINFO = socket.getaddrinfo
LARGE = (".safetensors", ".npz", ".bin")

Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Repository:
    """Files by commit, and commits by branch or tag."""

    private: bool = False
    gated: bool = False
    refs: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def commit(self, files: dict[str, bytes], branch: str = "main", message: str = "") -> str:
        name = hashlib.sha1(repr((sorted(files.items()), len(self.commits))).encode()).hexdigest()
        self.commits[name] = files
        self.refs[branch] = name
        self.messages.append(message)
        return name

    def resolve(self, revision: str) -> str | None:
        return revision if revision in self.commits else self.refs.get(revision)

    @property
    def files(self) -> dict[str, bytes]:
        return self.commits[self.refs["main"]]


class Hub:
    """The repositories of the emulated hub, what was asked of it, and how it should misbehave."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.large: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.agents: set[str] = set()
        self.status: int | None = None
        """Answer everything with this."""
        handler = type("Handler", (_Handler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def add(self, name: str, files: dict[str, bytes] | Path, branch: str = "main", **facts: bool) -> str:
        """Publish files, or those of a folder, as the next commit of a repository; returns the commit."""
        contents = {f.name: f.read_bytes() for f in files.iterdir()} if isinstance(files, Path) else files
        return self.repositories.setdefault(name, Repository(**facts)).commit(contents, branch)

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def answer(self, method: str, path: str, token: str | None, body: bytes) -> Answer:
        if self.status is not None:
            return _error(self.status, "told to")
        if token not in (None, TOKEN):
            return _error(401, "Invalid credentials in Authorization header")
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if path.startswith("/emulated-storage/") and method == "PUT":
            self.large[parts[1]] = body
            return 200, {}, b""
        if method == "POST" and token is None:
            return _error(401, "Invalid username or password.")
        match parts:
            case ["api", "whoami-v2"]:
                return _json({"name": "tester", "type": "user"}) if token else _error(401, "Invalid credentials")
            case ["api", "validate-yaml"]:
                return _validated(json.loads(body)["content"])
            case ["api", "repos", "create"]:
                return self._create(json.loads(body))
            case [owner, name, "info", "lfs", "objects", "batch"]:
                return _json({"transfer": "basic", "objects": [self._upload(o) for o in json.loads(body)["objects"]]})
            case ["api", "models", owner, name, *rest]:
                return self._model(f"{owner}/{name}", rest, token, body)
            case [owner, name, "resolve", revision, *file]:
                return self._file(f"{owner}/{name}", revision, "/".join(file), token)
        return _error(404, f"the emulator does not know {method} {path}")

    def _create(self, wanted: dict[str, Any]) -> Answer:
        name = f"{wanted['organization']}/{wanted['name']}"
        if wanted["organization"] == "forbidden":
            return _error(403, "You don't have the rights to create a model under this namespace")
        if name in self.repositories:
            return _json({"error": "You already created this model repo", "url": f"{self.url}/{name}"}, 409)
        private = wanted.get("visibility") == "private" or wanted.get("private") is True
        self.repositories[name] = Repository(private=private)
        self.repositories[name].commit({".gitattributes": b""})
        return _json({"url": f"{self.url}/{name}", "name": name})

    def _upload(self, wanted: dict[str, Any]) -> dict[str, Any]:
        upload = {"href": f"{self.url}/emulated-storage/{wanted['oid']}"}
        return {**wanted, **({} if wanted["oid"] in self.large else {"actions": {"upload": upload}})}

    def _found(self, name: str, token: str | None) -> Repository | Answer:
        repository = self.repositories.get(name)
        if repository is None or (repository.private and token is None):
            # The hub does not tell strangers which repositories are not there.
            return _error(404 if token else 401, "Repository not found", "RepoNotFound")
        return repository

    def _model(self, name: str, rest: list[str], token: str | None, body: bytes) -> Answer:
        repository = self._found(name, token)
        if isinstance(repository, tuple):
            return repository
        action, revision = (rest[0], rest[1]) if rest else ("revision", "main")
        commit = repository.resolve(revision)
        if commit is None:
            return _error(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        files = repository.commits[commit]
        match action:
            case "revision":
                return _json(
                    {**_info(name, repository, commit), "siblings": [_sibling(*item) for item in files.items()]}
                )
            case "tree":
                return _json([_tree_entry(*item) for item in files.items()])
            case "preupload":
                return _json({"files": [_mode(file["path"]) for file in json.loads(body)["files"]]})
            case "commit":
                return self._commit(name, repository, dict(files), revision, body)
        return _error(404, f"the emulator does not know {action}")

    def _commit(self, name: str, repository: Repository, files: dict[str, bytes], branch: str, body: bytes) -> Answer:
        message = ""
        for line in body.splitlines():
            key, value = (entry := json.loads(line))["key"], entry["value"]
            if key == "header":
                message = value["summary"]
            elif key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                if hashlib.sha256(self.large.get(value["oid"], b"")).hexdigest() != value["oid"]:
                    return _error(400, f"{value['path']} was not uploaded")
                files[value["path"]] = self.large[value["oid"]]
        commit = repository.commit(files, branch, message)
        return _json({"success": True, "commitOid": commit, "commitUrl": f"{self.url}/{name}/commit/{commit}"})

    def _file(self, name: str, revision: str, file: str, token: str | None) -> Answer:
        repository = self._found(name, token)
        if isinstance(repository, tuple):
            return repository
        if repository.gated:
            return _error(403 if token else 401, "Access to this model is restricted", "GatedRepo")
        commit = repository.resolve(revision)
        if commit is None:
            return _error(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        content = repository.commits[commit].get(file)
        if content is None:
            return _error(404, "Entry not found", "EntryNotFound", {"X-Repo-Commit": commit})
        headers = {"X-Repo-Commit": commit, "ETag": f'"{_git_hash(content)}"'}
        if file.endswith(LARGE):
            digest = hashlib.sha256(content).hexdigest()
            headers |= {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(content))}
        return 200, headers, content


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def _respond(self) -> None:
        path = urlsplit(self.path).path
        self.hub.requests.append(f"{self.command} {path}")
        self.hub.agents.add(self.headers.get("User-Agent", ""))
        authorization = self.headers.get("Authorization")
        token = authorization.removeprefix("Bearer ") if authorization else None
        status, headers, body = self.hub.answer(self.command, path, token, self._body())
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = _respond

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep standard error for what the tests look at."""


def _json(value: Any, status: int = 200) -> Answer:
    return status, {"Content-Type": "application/json"}, json.dumps(value).encode()


def _error(status: int, message: str, code: str = "", headers: dict[str, str] | None = None) -> Answer:
    named = {"X-Error-Code": code} if code else {}
    body = json.dumps({"error": message}).encode()
    return status, {"Content-Type": "application/json", "X-Error-Message": message, **named, **(headers or {})}, body


def _git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _front_matter(text: str) -> Any:
    return yaml.safe_load(text.split("---\n")[1]) if text.startswith("---\n") else None


def _validated(text: str) -> Answer:
    try:
        valid = isinstance(_front_matter(text), dict | None)
    except yaml.YAMLError:
        valid = False
    return _json({}) if valid else _json({"errors": [{"message": "the YAML is broken"}]}, 400)


def _info(name: str, repository: Repository, commit: str) -> dict[str, Any]:
    card = _front_matter(repository.commits[commit].get("README.md", b"").decode())
    gated = "auto" if repository.gated else False
    return {"id": name, "sha": commit, "private": repository.private, "gated": gated, "tags": [], "cardData": card}


def _large(content: bytes) -> dict[str, Any]:
    return {"size": len(content), "sha256": hashlib.sha256(content).hexdigest(), "pointerSize": 130}


def _sibling(path: str, content: bytes) -> dict[str, Any]:
    lfs = {"lfs": _large(content)} if path.endswith(LARGE) else {}
    return {"rfilename": path, "size": len(content), "blobId": _git_hash(content), **lfs}


def _tree_entry(path: str, content: bytes) -> dict[str, Any]:
    large = _large(content)
    lfs = {"lfs": {**large, "oid": large["sha256"]}} if path.endswith(LARGE) else {}
    return {"type": "file", "path": path, "size": len(content), "oid": _git_hash(content), **lfs}


def _mode(path: str) -> dict[str, Any]:
    return {"path": path, "uploadMode": "lfs" if path.endswith(LARGE) else "regular", "shouldIgnore": False}


def _loopback_only(host: Any, *arguments: Any, **options: Any) -> Any:
    assert host == "127.0.0.1", f"a test asked for {host}"
    return _GETADDRINFO(host, *arguments, **options)


@pytest.fixture(name="hub")
def hub_fixture(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """An emulated hub that huggingface_hub talks to, with an empty cache and no token of this machine."""
    from huggingface_hub import close_session, constants

    emulated = Hub()
    home = tmp_path_factory.mktemp("hub-home")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    settings = {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "127.0.0.1"}
    for name, value in {**settings, "HF_ENDPOINT": emulated.url, "HF_HOME": str(home)}.items():
        monkeypatch.setenv(name, value)
    # Its settings are read when it is imported, which another test may have done.
    for name, value in {
        "ENDPOINT": emulated.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": emulated.url + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": str(home / "hub"),
        "HF_TOKEN_PATH": str(home / "token"),
        "HF_STORED_TOKENS_PATH": str(home / "stored_tokens"),
        "HF_HUB_OFFLINE": False,
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_DISABLE_TELEMETRY": True,
    }.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setattr(socket, "getaddrinfo", _loopback_only)
    close_session()
    yield emulated
    close_session()
    emulated.stop()


@pytest.fixture(name="offline")
def offline_fixture(monkeypatch: pytest.MonkeyPatch):
    """A switch that acts as HF_HUB_OFFLINE=1 would."""
    from huggingface_hub import constants

    def switch() -> None:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    return switch
