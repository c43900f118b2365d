"""Hugging Face data sets: from the hub, a folder written by save_to_disk, or Parquet files."""

import glob
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vitrail.data.sources.arrow_columns import class_names, find_columns, read_labels
from vitrail.data.sources.arrow_rows import ArrowRows
from vitrail.data.sources.files import in_one_spelling, shown, state_of, user_path
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.numbering import by_name, number_classes
from vitrail.data.sources.splits import canonical_split, missing_split
from vitrail.errors import DataError, UsageError
from vitrail.runtime.cache import cache_folder, cache_key

if TYPE_CHECKING:
    from datasets import Dataset, Features

_SECONDS = 10
_PART = r"\w(?:[\w.-]{0,94}\w)?"
_REPO = re.compile(f"{_PART}/{_PART}", re.ASCII)
_SHARD = re.compile(r"(?P<split>.+)-\d+-of-\d+")
_BRING = "Download its .parquet files elsewhere and give their folder."


@dataclass(frozen=True)
class _Loaded:
    """A split that `datasets` has opened."""

    dataset: "Dataset"

    @property
    def features(self) -> "Features":
        return self.dataset.features

    def load(self, columns: list[str]) -> "Dataset":
        return self.dataset.select_columns(columns)


@dataclass(frozen=True)
class _Parquet:
    """A split in Parquet files, which have no random access: `datasets` makes a memory-mapped copy in our cache."""

    files: list[Path]

    @property
    def features(self) -> "Features":
        import pyarrow.parquet as pq
        from datasets import Features

        schemas = []
        for file in self.files:
            try:
                schemas.append(pq.read_schema(file))
            except (OSError, ValueError) as error:
                raise _damaged(error, shown(str(file))) from None
            if schemas[-1].names != schemas[0].names:
                came = f"the columns are {', '.join(schemas[-1].names)}"
                raise DataError(came, wanted=f"those of {self.files[0].name}", where=shown(str(file)))
        found = [Features.from_arrow_schema(schema) for schema in schemas]
        for file, features in zip(self.files, found, strict=True):
            if class_names(features) != class_names(found[0]):
                came = "the class names are not the same, or in another order"
                raise DataError(came, wanted=f"those of {self.files[0].name}", where=shown(str(file)))
        return found[0]

    def load(self, columns: list[str]) -> "Dataset":
        from datasets import Dataset

        # `datasets` makes its copy again when the time of a file changes; a file may change and keep its time.
        state = cache_key(*(state_of(file.stat()) for file in self.files))
        # The names of files are taken for patterns.
        files = [glob.escape(str(file.resolve())) for file in self.files]
        return Dataset.from_parquet(files, columns=columns, cache_dir=str(cache_folder("huggingface") / state))  # type: ignore


_Split = _Loaded | _Parquet


def is_saved(path: Path) -> bool:
    """Whether a folder was written by save_to_disk, or holds Parquet files and nothing else."""
    if (path / "dataset_dict.json").is_file() or all(
        (path / name).is_file() for name in ("dataset_info.json", "state.json")
    ):
        return True
    any_parquet = False
    # Stops at the first other file, so that a folder of a million images costs nothing.
    for file in _files_below(path):
        if file.suffix.lower() != ".parquet":
            return False
        any_parquet = True
    return any_parquet


def open_huggingface(name: str, split: str = "train") -> ArrowRows:
    """Open `owner/name` or `owner/name:config` of the hub, a saved folder, a folder of Parquet files or one of them."""
    split, path = canonical_split(split), user_path(name)
    is_local = path.exists()
    title = shown(name) if is_local else f"hf:{name}"
    _require_datasets()
    folders = [path if path.is_dir() else path.parent] if is_local else _hub_caches()
    with _quiet():
        parts = _local_parts(path) if is_local else _hub_parts(name)
        if split not in parts:
            raise missing_split(split, parts, title)
        try:
            return _open(parts, split, title, folders)
        except (OSError, ValueError, RuntimeError, _build_error()) as error:
            raise _damaged(error, title) from error


def _open(parts: dict[str, _Split], split: str, title: str, folders: list[Path]) -> ArrowRows:
    image, label = find_columns(parts[split].features, title)
    dataset = parts[split].load([image, label])
    column = read_labels(dataset, label, f"{title}, {split}")
    words = known = column.words
    names = column.names
    if split != "train" and "train" in parts:
        # Each split may number the same names in its own way.
        words = by_name(words, names, f"{title}, {split}")
        train = parts["train"]
        _, label = find_columns(train.features, title)
        names = class_names(train.features).get(label)
        known = [] if names else read_labels(train.load([label]), label, f"{title}, train").words
    classes, mapping = number_classes(words, known, names, f"{title}, {split}")
    labels = Labels(mapping[column.values], len(classes), column.offsets)
    return ArrowRows(title, split, classes, labels, dataset.select_columns([image]), folders)


def _local_parts(path: Path) -> dict[str, _Split]:
    from datasets import Dataset, load_from_disk

    if path.is_dir() and any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        try:
            saved = load_from_disk(str(path))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _damaged(error, shown(str(path))) from None
        if isinstance(saved, Dataset):
            saved = {str(saved.split or "train").partition("[")[0]: saved}
        return _by_split({str(name): _Loaded(part) for name, part in saved.items()})
    files = [path] if path.is_file() else sorted(_files_below(path), key=lambda file: in_one_spelling(str(file)))
    files = [file for file in files if file.suffix.lower() == ".parquet"]
    if not files:
        raise DataError(
            "there is no Hugging Face data set",
            wanted="a folder written by save_to_disk, or .parquet files",
            where=shown(str(path)),
        )
    found: dict[str, list[Path]] = {}
    for file in files:
        found.setdefault(_split_of(file, path), []).append(file)
    return _by_split({name: _Parquet(part) for name, part in found.items()})


def _split_of(file: Path, root: Path) -> str:
    """The hub writes data/train-00000-of-00001.parquet; others write train.parquet or train/0.parquet."""
    match = _SHARD.fullmatch(file.stem)
    if match:
        return match["split"]
    folders = () if file == root else file.relative_to(root).parts[:-1]
    known = [word for word in (file.stem, *folders) if canonical_split(word) in ("train", "val", "test")]
    return known[0] if known else "train"


def _by_split(parts: dict[str, _Split]) -> dict[str, _Split]:
    """Under their usual names, unless two would then have the same."""
    named: dict[str, _Split] = {}
    for name, part in parts.items():
        usual = canonical_split(name)
        named[name if usual in named else usual] = part
    return named


def _hub_caches() -> list[Path]:
    """Where Hugging Face's libraries put what they fetch: images that are files of their own are there."""
    import datasets.config
    from huggingface_hub import constants

    return [Path(constants.HF_HUB_CACHE), Path(datasets.config.HF_DATASETS_CACHE)]


def _hub_parts(name: str) -> dict[str, _Split]:
    from datasets import DatasetDict, load_dataset
    from datasets.exceptions import DatasetNotFoundError, DatasetsError
    from huggingface_hub import errors

    repo, _, config = name.partition(":")
    if not _REPO.fullmatch(repo) or ".." in repo or "--" in repo:
        raise DataError("there is no such folder or file", wanted="owner/name of the hub, or a path", where=name)
    # Of httpx or httpx2, whichever this release is built on.
    transport: type[Exception] = errors.HTTPError  # pyright: ignore[reportPrivateImportUsage]
    try:
        with _offline_unless_reached(repo, transport):
            loaded = load_dataset(repo, config or None)
    except (DatasetNotFoundError, errors.RepositoryNotFoundError):
        raise DataError(
            f"the hub has no data set {repo!r}, or it is not public",
            where=f"hf:{name}",
            fix="Check the name; for a private one run `hf auth login`.",
        ) from None
    except (transport, DatasetsError, OSError, ValueError, RuntimeError) as error:
        unreached = "the hub cannot be reached, and this data set is not in its cache"
        came = unreached if isinstance(error, ConnectionError) else f"the data set cannot be had ({_reason(error)})"
        raise DataError(came, where=f"hf:{name}", fix=_BRING) from error
    assert isinstance(loaded, DatasetDict)
    return _by_split({str(key): _Loaded(part) for key, part in loaded.items()})


@contextmanager
def _offline_unless_reached(repo: str, transport: type[Exception]) -> Iterator[None]:
    """Ask the hub once; when it does not answer, look into its cache at once instead of after half a minute."""
    import datasets.config
    from huggingface_hub import HfApi, constants, errors

    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    try:
        HfApi().dataset_info(repo, timeout=_SECONDS)
    except errors.HfHubHTTPError:
        raise
    except (transport, OSError):
        constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


@contextmanager
def _quiet() -> Iterator[None]:
    """Progress for people at a terminal only."""
    from datasets import disable_progress_bars, enable_progress_bars
    from datasets.utils import are_progress_bars_disabled

    silent = not are_progress_bars_disabled() and not (sys.stderr and sys.stderr.isatty())
    if silent:
        disable_progress_bars()
    try:
        yield
    finally:
        if silent:
            enable_progress_bars()


def _require_datasets() -> None:
    try:
        import datasets  # noqa: F401
    except ImportError:
        raise UsageError(
            "Hugging Face data sets and Parquet files need the package 'datasets'",
            fix="Run `pip install 'vitrail[data]'`.",
        ) from None


def _build_error() -> type[Exception]:
    from datasets.exceptions import DatasetsError

    return DatasetsError


def _files_below(folder: Path) -> Iterator[Path]:
    """All files below a folder but hidden ones and the card that the hub adds."""
    # Not os.walk, which gives up on a thousand folders in each other.
    waiting = [str(folder)]
    while waiting:
        try:
            entries = sorted(os.scandir(waiting.pop()), key=lambda entry: entry.name)
        except OSError:
            continue
        shown_ones = [entry for entry in entries if not entry.name.startswith(".")]
        waiting += [entry.path for entry in reversed(shown_ones) if entry.is_dir(follow_symlinks=False)]
        yield from (Path(one.path) for one in shown_ones if not one.is_dir() and one.name.lower() != "readme.md")


def _damaged(error: Exception, where: str) -> DataError:
    return DataError(f"the data set is damaged or cut off ({_reason(error)})", where=where)


def _reason(error: BaseException) -> str:
    # `datasets` wraps what went wrong in an error that says only that something did.
    cause = error.__cause__ or error
    lines = str(cause).strip().splitlines() or [type(cause).__name__]
    return lines[0].rstrip(".")[:160]
