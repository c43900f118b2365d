"""Which columns of a Hugging Face data set hold the images and the labels, and what the labels are."""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vitrail.data.sources.numbering import Label
from vitrail.errors import DataError

if TYPE_CHECKING:
    from datasets import Dataset, Features

_IMAGE_NAMES = ("image", "img")
_LABEL_NAMES = ("label", "labels", "fine_label")


def find_columns(features: "Features", where: str) -> tuple[str, str]:
    """The names of the image and the label column, by their types and usual names; an error when that is unclear."""
    from datasets import ClassLabel, Image

    images = [name for name, feature in features.items() if isinstance(feature, Image)]
    images = images or [name for name, feature in features.items() if _holds_bytes(feature)]
    images = images or [name for name in _IMAGE_NAMES if _dtype(features.get(name)) in ("string", "large_string")]
    images = [name for name in images if name in _IMAGE_NAMES] if len(images) > 1 else images
    labels = [name for name in _LABEL_NAMES if name in features and _is_label(features[name])]
    labels = labels or [name for name, feature in features.items() if isinstance(_inside(feature), ClassLabel)]
    for kind, found, names in (("image", images, _IMAGE_NAMES), ("label", labels, _LABEL_NAMES)):
        if len(found) != 1:
            columns = ", ".join(f"{name} ({_described(feature)})" for name, feature in features.items())
            came = f"{len(found)} columns look like" if found else "no column looks like"
            raise DataError(
                f"{came} the {kind}; the columns are {columns}", wanted=f"one named {' or '.join(names)}", where=where
            )
    return images[0], labels[0]


def class_names(features: "Features") -> dict[str, tuple[str, ...]]:
    """The names that columns state for their numbers."""
    from datasets import ClassLabel

    inside = {name: _inside(feature) for name, feature in features.items()}
    return {name: _in_nfc(feature.names) for name, feature in inside.items() if isinstance(feature, ClassLabel)}


@dataclass(frozen=True)
class LabelColumn:
    """The distinct labels, which of them the images have, and where those of an image begin if it may have several."""

    words: list[Label]
    values: np.ndarray
    offsets: np.ndarray | None
    names: tuple[str, ...] | None
    """Names by number, where the data set states them."""


def read_labels(dataset: "Dataset", column: str, where: str) -> LabelColumn:
    """Read a whole column of labels; one that is missing is an error."""
    import pyarrow as pa
    from datasets import ClassLabel

    whole: Any = dataset.select_columns([column]).with_format("arrow")[:]
    values = whole.column(0).combine_chunks()
    offsets = None
    _refuse_nulls(values, where)
    if pa.types.is_fixed_size_list(values.type):
        values = values.cast(pa.list_(values.type.value_type))
    if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        offsets = np.concatenate([[0], np.cumsum(values.value_lengths().to_numpy())]).astype(np.int64)
        values = values.flatten()
        _refuse_nulls(values, where)
    encoded = values.dictionary_encode()
    words: list[Label] = encoded.dictionary.to_pylist()
    numbers = encoded.indices.to_numpy().astype(np.int64)
    if any(isinstance(word, int) and word < 0 for word in words):
        raise DataError("a label is -1, which means none: this part was published without labels", where=where)
    if "" in words:
        raise DataError("a label is empty", wanted="a class name", where=where)
    feature = _inside(dataset.features[column])
    names = _in_nfc(feature.names) if isinstance(feature, ClassLabel) else None
    return LabelColumn(words, numbers, offsets, names)


def _in_nfc(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(unicodedata.normalize("NFC", name) for name in names)


def _refuse_nulls(values: Any, where: str) -> None:
    if values.null_count:
        row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError(f"the label {row} is missing", wanted="a class name or number", where=where)


def _holds_bytes(feature: Any) -> bool:
    return _dtype(feature) in ("binary", "large_binary") or (isinstance(feature, dict) and "bytes" in feature)


def _is_label(feature: Any) -> bool:
    from datasets import ClassLabel

    inside = _inside(feature)
    return isinstance(inside, ClassLabel) or _dtype(inside).startswith(
        ("int", "uint", "string", "large_string", "dict")
    )


def _inside(feature: Any) -> Any:
    """What a list is a list of; anything else as it is."""
    return getattr(feature, "feature", feature)


def _dtype(feature: Any) -> str:
    from datasets import Value

    return str(feature.dtype) if isinstance(feature, Value) else ""


def _described(feature: Any) -> str:
    return _dtype(feature) or type(feature).__name__.lower()
