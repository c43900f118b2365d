"""The Hugging Face hub: weights that others published come in, a model folder of ours goes out."""

import dataclasses
import glob
import os
import re
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vitrail.errors import DataError, DiskError, UsageError, VitrailError, notice, setting
from vitrail.weights.card import CARD_FILE, may_write_card, model_card
from vitrail.weights.checkpoint import Checkpoint, to_model
from vitrail.weights.folder import CONFIG_FILE, WEIGHTS_FILE, read_folder, sidecar
from vitrail.weights.record import FORMAT
from vitrail.zoo import ZOO, Published

if TYPE_CHECKING:
    from huggingface_hub import HfApi, ModelInfo, errors

PREFIX = "hf-hub:"

_TEXT_FILES = (CONFIG_FILE, "preprocessor_config.json", CARD_FILE)
_WEIGHT_FILES = (WEIGHTS_FILE, "pytorch_model.bin")
_SHARDS = tuple(f"{name}.index.json" for name in _WEIGHT_FILES)
_SECONDS = 10
_LOG_IN = "run `hf auth login` or set HF_TOKEN"

_PART = r"\w(?:[\w.-]{0,94}\w)?"
_REPO = re.compile(f"{_PART}/{_PART}", re.ASCII)
_REVISION = re.compile(r"\w[\w.+-]*(?:/\w[\w.+-]*)*", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")


class HubUnreachable(DataError):
    """The hub did not answer, or not as a hub does."""


def is_hub(source: str) -> bool:
    """Whether a source names a repository of the hub."""
    return source.startswith(PREFIX)


def checked_repo(repo: str) -> str:
    """The name of a repository; it becomes part of addresses and of paths in the cache, so it is checked first."""
    name = repo.removeprefix(PREFIX)
    if not _REPO.fullmatch(name) or ".." in name or "--" in name or name.endswith(".git"):
        raise UsageError(f"{name!r} cannot be a repository of the hub", wanted="owner/name")
    return name


def zoo_source(key: str) -> Published | None:
    """The published weights of a zoo key; none for what is no key."""
    row = ZOO.get(key)
    if row is not None and row.published is None:
        fix = "`vitrail list models` shows which have some; vitrail.create_model makes the network without."
        raise UsageError(f"no weights are published for {key!r}", fix=fix)
    return row.published if row else None


def fetch(repo: str, revision: str | None = None) -> Path:
    """Bring the weights of `owner/name` or `hf-hub:owner/name@revision` into the hub's cache.

    Returns their folder, or the file itself where no config travels with it. What a branch means is asked of the hub
    each time, and taken from the cache when the hub cannot be reached.
    """
    name, at, named = repo.partition("@")
    repo = checked_repo(name)
    revision = named if at and revision is None else revision
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise UsageError(f"{revision!r} cannot be a revision of {repo}", wanted="a branch, a tag or a commit")
    cached = _cached(repo, revision) if revision and _COMMIT.fullmatch(revision) else None
    if cached is not None:
        return cached
    try:
        with _hub(repo) as api:
            return _download(api, repo, revision)
    except HubUnreachable as error:
        cached = _cached(repo, revision)
        if cached is None:
            raise _offline(error, repo, revision) from error
        return cached


def with_origin(checkpoint: Checkpoint, path: Path, repo: str, published: Published | None = None) -> Checkpoint:
    """A fetched checkpoint that records its repository and commit; the zoo fills in what its files leave open."""
    commit = next((part for part in path.parts if _COMMIT.fullmatch(part)), None)
    origin = {"hub": repo.removeprefix(PREFIX).partition("@")[0], **({"commit": commit} if commit else {})}
    licence = {"licence": published.licence} if published else {}
    preprocessing = checkpoint.preprocessing or (published.preprocessing if published else None)
    provenance = {**licence, **checkpoint.provenance, **origin}
    return dataclasses.replace(checkpoint, preprocessing=preprocessing, provenance=provenance)


def push(folder: Path, repo: str, private: bool = True, message: str = "A model of vitrail") -> str:
    """Upload a model folder in one commit, with a card if it has none; returns the address of the repository."""
    from huggingface_hub import CommitOperationAdd, get_token

    repo = checked_repo(repo)
    if sidecar(folder).get("format") != FORMAT:
        wanted = f"a model folder with the format {FORMAT!r} in its {CONFIG_FILE}"
        raise UsageError("is not a model folder", wanted=wanted, where=str(folder), fix="`vitrail convert` makes one.")
    checkpoint = read_folder(folder)
    to_model(checkpoint, str(folder))  # what does not load here is not sent to others
    files: dict[str, Path | bytes] = {name: folder / name for name in (CONFIG_FILE, WEIGHTS_FILE)}
    # Ours names the folder in its examples, where readers of the hub need the repository.
    ours = may_write_card(folder)
    files[CARD_FILE] = model_card(checkpoint, f"{PREFIX}{repo}").encode() if ours else folder / CARD_FILE
    if get_token() is None:
        raise UsageError("no token of the hub is known", where=repo, fix=f"To write, {_LOG_IN}.")
    with _hub(repo) as api:
        api.create_repo(repo, private=private, exist_ok=True)
        _check_visibility(api.model_info(repo, timeout=_SECONDS), repo, private)
        operations = [CommitOperationAdd(path_in_repo=name, path_or_fileobj=file) for name, file in files.items()]
        api.create_commit(repo, operations, commit_message=message)
        return f"{api.endpoint}/{repo}"


def _download(api: "HfApi", repo: str, revision: str | None) -> Path:
    from huggingface_hub import try_to_load_from_cache

    info = api.model_info(repo, revision=revision, files_metadata=True, timeout=_SECONDS)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    weights = _weights_file(sizes)
    if weights is None:
        raise _no_weights(repo, sizes)
    if not isinstance(try_to_load_from_cache(repo, weights, revision=info.sha), str):
        licence = _licence(repo, info)
        terms = f", licence {licence}" if licence else ", no licence stated"
        notice(f"Downloading {repo} from the hub: {weights}, {sizes[weights] / 1e6:,.1f} MB{terms}.")
    wanted = [glob.escape(name) for name in (*_TEXT_FILES, weights)]
    return _entry(Path(api.snapshot_download(repo, revision=revision, allow_patterns=wanted)), weights)


def _cached(repo: str, revision: str | None) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(repo, revision=revision, local_files_only=True, allow_patterns=[CONFIG_FILE]))
    except LocalEntryNotFoundError:
        return None
    weights = _weights_file([path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()])
    return None if weights is None else _entry(folder, weights)


def _weights_file(names: Collection[str]) -> str | None:
    named = [name for name in _WEIGHT_FILES if name in names]
    lone = [name for name in names if name.endswith((".npz", ".safetensors"))]
    return named[0] if named else lone[0] if len(lone) == 1 and not any(index in names for index in _SHARDS) else None


def _entry(folder: Path, weights: str) -> Path:
    whole = weights in _WEIGHT_FILES and (folder / CONFIG_FILE).is_file()
    return folder if whole else folder / weights


def _no_weights(repo: str, names: Collection[str]) -> DataError:
    if any(index in names for index in _SHARDS):
        return DataError("its weights are sharded over several files, which are not read", where=repo)
    lone = sorted(name for name in names if name.endswith((".npz", ".safetensors")))
    if lone:
        fix = "Download the one you want and give its path."
        return DataError(f"has {len(lone)} weight files ({', '.join(lone[:3])}, ...)", where=repo, fix=fix)
    wanted = f"{', '.join(_WEIGHT_FILES)} or a single .npz or .safetensors"
    return DataError("has no weights that can be read", wanted=wanted, where=repo)


def _licence(repo: str, info: "ModelInfo") -> str:
    stated = info.card_data.get("license") if info.card_data else None
    if stated:
        return ", ".join(map(str, stated)) if isinstance(stated, list) else str(stated)
    return next((row.published.licence for row in ZOO.values() if row.published and row.published.hub == repo), "")


def _check_visibility(info: "ModelInfo", repo: str, private: bool) -> None:
    """The hub keeps the visibility of a repository that is there already, whatever is asked."""
    if private and info.private is False:
        fix = f"Add {setting('public', True)} to publish there, or choose another."
        raise UsageError("is a public repository", where=repo, fix=fix)
    if not private and info.private:
        notice(f"{repo} is there already and stays private; its settings on the hub can change that.")


def _offline(error: HubUnreachable, repo: str, revision: str | None) -> DataError:
    files = f"{CONFIG_FILE} and {WEIGHTS_FILE}"
    fix = f"Download them elsewhere from https://huggingface.co/{repo}/tree/{revision or 'main'} and give the folder."
    return DataError(f"{error.came} and its files are not in the cache", wanted=files, where=repo, fix=fix)


@contextmanager
def _hub(repo: str) -> Iterator["HfApi"]:
    """The hub's client: it tells nothing about the user, is silent without a terminal, and fails with our errors."""
    from huggingface_hub import HfApi, constants, errors
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    # Of httpx or httpx2, whichever this release is built on.
    transport: type[Exception] = errors.HTTPError  # pyright: ignore[reportPrivateImportUsage]
    # The setting is read when huggingface_hub is imported, which may have been long ago.
    telemetry, constants.HF_HUB_DISABLE_TELEMETRY = constants.HF_HUB_DISABLE_TELEMETRY, True
    free = constants.HF_HUB_DISABLE_PROGRESS_BARS is None and not are_progress_bars_disabled()
    silent = free and not (sys.stderr and sys.stderr.isatty())
    if silent:
        disable_progress_bars()
    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT", "").rstrip("/") or None)
    try:
        yield api
    except (transport, OSError, RuntimeError, ValueError, KeyError) as error:
        raise _explained(error, repo, api.endpoint) from error
    finally:
        constants.HF_HUB_DISABLE_TELEMETRY = telemetry
        if silent:
            enable_progress_bars()


def _explained(error: Exception, repo: str, endpoint: str) -> VitrailError:
    from huggingface_hub import errors

    if not isinstance(error, errors.HfHubHTTPError) and isinstance(error.__cause__, errors.HfHubHTTPError):
        error = error.__cause__
    if isinstance(error, errors.GatedRepoError):
        fix = f"Agree at {endpoint}/{repo}, then {_LOG_IN}."
        return DataError("is gated: its authors ask for your consent first", where=repo, fix=fix)
    if isinstance(error, errors.RevisionNotFoundError):
        return DataError("has no such revision", where=repo, fix=f"{endpoint}/{repo}/tree/main lists them.")
    if isinstance(error, errors.RepositoryNotFoundError):
        fix = f"Check the name; for a private one, {_LOG_IN}."
        return DataError("there is no such repository on the hub, or it is private", where=repo, fix=fix)
    if isinstance(error, errors.HfHubHTTPError):
        return _refused(error, repo)
    if isinstance(error, OSError) and error.errno and not isinstance(error, ConnectionError | TimeoutError):
        return DiskError(f"the cache of the hub could not be written ({error.strerror})", where=error.filename or repo)
    if isinstance(error, errors.OfflineModeIsEnabled):
        return HubUnreachable("HF_HUB_OFFLINE is set", where=repo)
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    broken = isinstance(error, OSError | ValueError | KeyError) and not isinstance(
        error, errors.LocalEntryNotFoundError
    )
    what = "gives no usable answer" if broken else "cannot be reached"
    return HubUnreachable(f"the hub at {endpoint} {what} ({reason})", where=repo)


def _refused(error: "errors.HfHubHTTPError", repo: str) -> VitrailError:
    status = error.response.status_code
    if status == 401:
        return UsageError("the hub does not accept the token", where=repo, fix=f"Make a new one; then {_LOG_IN}.")
    if status == 403:
        fix = f"Make a token that has it, or choose another repository; then {_LOG_IN}."
        return UsageError("the token has no right to do this", where=repo, fix=fix)
    if status >= 500 or status in (408, 429):
        return HubUnreachable(f"the hub is not available now (it answers {status})", where=repo)
    said = " ".join((error.server_message or "").split())[:200]
    return UsageError(f"the hub refuses with {status}{f' ({said})' if said else ''}", where=repo)
