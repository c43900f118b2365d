"""What a program holds in memory, stored as files: a run is a function of files, and goes on from its folder alone."""

import hashlib
import os
import unicodedata
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from vitrail.config import to_json
from vitrail.data.decoding.decode import decode_opened
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.numbering import Label, number_classes
from vitrail.data.sources.packed import (
    RECORD,
    PackIndex,
    PackRecord,
    is_packed,
    open_packed,
    read_record,
    save_index,
)
from vitrail.data.sources.splits import SPLITS, canonical_split
from vitrail.errors import DataError, UsageError, choose, notice
from vitrail.models import BitResNet, PeerNetwork, VisionTransformer
from vitrail.models.empty import build_empty
from vitrail.runtime.atomic import atomic_folder
from vitrail.runtime.json_text import json_text
from vitrail.weights.checkpoint import Checkpoint, from_model
from vitrail.weights.fingerprint import tensors_hash
from vitrail.weights.folder import CONFIG_FILE, WEIGHTS_FILE, read_text
from vitrail.weights.record import record_text
from vitrail.weights.safetensors_file import read_safetensors
from vitrail.weights.save import save_model

_NETWORKS = (VisionTransformer, BitResNet, PeerNetwork)
# What float32, in which a network is loaded, holds to the last bit.
_EXACT = (torch.float32, torch.float16, torch.bfloat16)
_IMAGES = "uint8 of shape (N, H, W), (N, H, W, 1 or 3) or (N, 1 or 3, H, W), or a list of arrays or Pillow images"
_ARRAYS = "Give (images, labels) as arrays, a dict of them for each split, or the path of a data set."
_WHOLE = "Turn whole floats into ints, rows of one-hot labels into labels.argmax(1), and leave unknown ones out."
_ANOTHER = "Choose another folder."


@dataclass(frozen=True)
class _Split:
    """Images as they will be stored, (height, width) or (height, width, 3), and a label for each."""

    images: Sequence[np.ndarray]
    labels: list[Label]


@dataclass(frozen=True)
class _Packing:
    """What is written of a split, but for its pixels."""

    index: PackIndex
    digest: str
    """Of pixels, shapes, labels and class names."""


def is_in_memory(value: object) -> bool:
    """Whether data or a network is an object of the program rather than a name or a path."""
    return not isinstance(value, str | os.PathLike)


def store_network(network: object, folder: Path) -> str:
    """Save a network as a model folder and give its path; the network stays as it is.

    A folder that holds this very network is left alone, and one that holds another is refused.
    """
    inner = getattr(network, "_orig_mod", network)  # torch.compile wraps the network
    # A class made of ours may compute anything.
    if not isinstance(inner, _NETWORKS) or type(inner) not in _NETWORKS:
        raise UsageError(
            f"the network is a {_class_name(inner)}",
            wanted="one that vitrail.create_model or vitrail.load_model gave",
            fix="Load its weights with vitrail.load_model, or name it, such as timm:NAME."
            if isinstance(inner, nn.Module)
            else "Give a network, or the path or the name of one.",
        )
    checkpoint = from_model(inner)
    _ensure_described(inner)
    _ensure_exact(checkpoint)
    target = folder.resolve()
    if (target / CONFIG_FILE).is_file() and (target / WEIGHTS_FILE).is_file():
        if not _is_stored(checkpoint, target):
            raise UsageError("another network is stored there", where=str(target), fix=_ANOTHER)
    else:
        save_model(inner, target)
    return str(target)


def store_images(data: object, folder: Path) -> str:
    """Store images and labels as a data set that `open_data` opens to the same pixels, and give its name.

    `data` is (images, labels) or (images, labels, classes) to train on, or a dict of such for train, val and test, in
    which "classes" may name the classes. A folder that holds these very images is left alone, and one that holds others
    is refused.
    """
    splits, given = _read(data)
    classes, numbers = _numbered(splits, given)
    packings = {
        name: _packing(split.images, Labels.of(numbers[name], len(classes)), classes) for name, split in splits.items()
    }
    target = folder.resolve()
    if not _are_stored(packings, target):
        _write(splits, packings, classes, target)
    return str(target)


# Networks.


def _ensure_described(network: VisionTransformer | BitResNet | PeerNetwork) -> None:
    """Refuse parts that were replaced or set otherwise, even those without weights, and tell what will not stay frozen.

    Tensors of other names or shapes were refused before.
    """
    plain = build_empty(network.config)
    wanted = {name: _described(module) for name, module in plain.named_modules()}
    found = {name: _described(module) for name, module in network.named_modules()}
    for name in (*found, *wanted):
        if found.get(name) != wanted.get(name):
            raise UsageError(
                f"the part {name!r} of the network is {found.get(name, 'missing')}, which its config does not describe",
                wanted=wanted.get(name, "none"),
                fix="Change a network through its config, not by replacing its modules.",
            )
    learnt = {name for name, weight in plain.named_parameters() if weight.requires_grad}
    frozen = [name for name, weight in network.named_parameters() if name in learnt and not weight.requires_grad]
    # All of them say only that nothing was to be trained so far.
    if 0 < len(frozen) < len(learnt):
        notice(
            f"{len(frozen)} of the {len(learnt)} weights of the network are frozen, such as {frozen[0]}: files do not "
            "say so, and a run that starts from them trains all."
        )


def _described(module: nn.Module) -> str:
    return f"{type(module).__name__}({module.extra_repr()})"


def _ensure_exact(checkpoint: Checkpoint) -> None:
    for name, tensor in checkpoint.state.items():
        if (tensor.is_floating_point() or tensor.is_complex()) and tensor.dtype not in _EXACT:
            raise UsageError(
                f"the weights {name!r} are {tensor.dtype}",
                wanted="float32, which networks are loaded in, or less",
                fix="Give network.float().",
            )


def _is_stored(checkpoint: Checkpoint, folder: Path) -> bool:
    stored, _ = read_safetensors(folder / WEIGHTS_FILE)
    is_same_record = read_text(folder / CONFIG_FILE) == record_text(checkpoint)
    return is_same_record and tensors_hash(stored) == tensors_hash(checkpoint.state)


# Images and labels as they are handed over.


def _read(data: object) -> tuple[dict[str, _Split], tuple[str, ...] | None]:
    """The splits, and the class names where they are given."""
    named: dict[Any, object] = dict(data) if isinstance(data, Mapping) else {"train": data}
    classes = [named.pop("classes")] if "classes" in named else []
    splits: dict[str, _Split] = {}
    for key, pair in named.items():
        name = choose("split", canonical_split(key) if isinstance(key, str) else key, SPLITS)
        if name in splits:
            raise UsageError(f"the split {name!r} is there twice", wanted="each split once")
        if not isinstance(pair, tuple) or len(pair) not in (2, 3):
            came = f"a tuple of {len(pair)}" if isinstance(pair, tuple) else f"a {_class_name(pair)}"
            raise UsageError(
                f"the images are {came}",
                wanted="(images, labels) or (images, labels, classes)",
                where=name,
                fix=_ARRAYS,
            )
        images, labels, *more = pair
        classes.extend(more)
        splits[name] = _Split(_images(images, name), _labels(labels, name))
        _ensure_paired(splits[name], name)
    if not splits:
        raise UsageError("there are no images", wanted="one split or more", fix=_ARRAYS)
    given = list(dict.fromkeys(_class_names(names) for names in classes if names is not None))
    if len(given) > 1:
        raise UsageError("the class names differ between splits", wanted="the same everywhere, or under 'classes'")
    return splits, given[0] if given else None


def _ensure_paired(split: _Split, name: str) -> None:
    if not split.images:
        raise UsageError("there are no images", wanted="one or more", where=name)
    if len(split.images) != len(split.labels):
        raise UsageError(
            f"there are {len(split.images):,} images and {len(split.labels):,} labels",
            wanted="a label for each image",
            where=name,
        )


def _images(images: object, split: str) -> Sequence[np.ndarray]:
    if isinstance(images, np.ndarray) and images.dtype == object and images.ndim == 1:
        images = list(images)
    if isinstance(images, list | tuple):
        return [_image(image, f"{split}, image {place}") for place, image in enumerate(images)]
    if not isinstance(images, np.ndarray | Tensor):
        raise UsageError(f"the images are a {_class_name(images)}", wanted=_IMAGES, where=split, fix=_ARRAYS)
    return list(_laid_out(_array(images, split), split))


def _image(image: object, where: str) -> np.ndarray:
    if isinstance(image, Image.Image):
        # As the file would be read, and as prediction takes such an image: upright, and on white where transparent.
        return np.asarray(decode_opened(image, "L" if image.mode in ("1", "L") else "RGB", where=where).image)
    if not isinstance(image, np.ndarray | Tensor):
        raise UsageError(f"it is a {_class_name(image)}", wanted="an array or a Pillow image", where=where, fix=_ARRAYS)
    return _laid_out(_array(image, where)[None], where)[0]


def _laid_out(images: np.ndarray, where: str) -> np.ndarray:
    """The same pixels as (images, height, width) or (images, height, width, 3)."""
    if images.dtype != np.uint8:
        raise _not_bytes(images, where)
    first, last = (images.ndim == 4 and images.shape[axis] in (1, 3) for axis in (1, 3))
    if first and last:
        raise UsageError(
            f"the images have shape {images.shape[1:]}, and either end may be the channels",
            wanted="one that can be told",
            where=where,
            fix="Give grey images as (N, H, W), and colour images as a list of Pillow images.",
        )
    if not (images.ndim == 3 or first or last) or 0 in images.shape[1:]:
        raise UsageError(f"the images have shape {images.shape[1:]}", wanted=_IMAGES, where=where)
    if first:
        images = np.moveaxis(images, 1, 3)
    return images[..., 0] if images.ndim == 4 and images.shape[3] == 1 else images


def _not_bytes(images: np.ndarray, where: str) -> UsageError:
    has_range = images.dtype.kind in "fiu" and images.size > 0
    # Not min and max, of which one value that is no number makes no number.
    low, high = (float(end.reduce(images, axis=None)) for end in (np.fmin, np.fmax)) if has_range else (0.0, 0.0)
    share = images.dtype.kind == "f" and 0 <= low <= high <= 1
    return UsageError(
        f"the images are {images.dtype}{f' from {low:g} to {high:g}' if has_range else ''}",
        wanted="uint8 from 0 to 255",
        where=where,
        fix=f"{'Multiply them by 255, round' if share else 'Bring them to 0..255, round'} and turn them into uint8; "
        "mean and deviation are taken off later.",
    )


def _labels(labels: object, split: str) -> list[Label]:
    if isinstance(labels, np.ndarray | Tensor):
        values = _label_array(_array(labels, split), split).tolist()
    elif isinstance(labels, list | tuple):
        values = list(map(_scalar, labels))
    else:
        raise UsageError(f"the labels are a {_class_name(labels)}", wanted="a list or an array", where=split)
    odd = [place for place, value in enumerate(values) if not isinstance(value, int | str) or isinstance(value, bool)]
    if odd:
        # What is no number at all says more than the first 1.0.
        place = next((place for place in odd if isinstance(values[place], float) and isnan(values[place])), odd[0])
        value = values[place]
        raise UsageError(
            f"label {place} is {repr(value) if isinstance(value, float | bool) else f'a {_class_name(value)}'}",
            wanted="a class number, which is whole, or a class name",
            where=split,
            fix=_WHOLE,
        )
    return values


def _label_array(labels: np.ndarray, split: str) -> np.ndarray:
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise UsageError(
            f"the labels have shape {labels.shape}",
            wanted="(N,), a class number or a class name for each image",
            where=split,
            fix=_WHOLE,
        )
    return labels


def _scalar(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) or (isinstance(label, Tensor) and label.ndim == 0) else label


def _array(value: np.ndarray | Tensor, where: str) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    try:
        value = value.detach().cpu()
        # numpy knows neither bfloat16 nor smaller ones.
        return (value.float() if value.is_floating_point() else value).numpy()
    except (RuntimeError, TypeError) as error:
        reason = str(error).splitlines()[0][:120]
        raise UsageError(f"the tensor holds no values that can be read ({reason})", where=where) from None


def _class_name(value: object) -> str:
    """With its module, for others have a VisionTransformer, too."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# Classes.


def _class_names(names: object) -> tuple[str, ...]:
    values = names.tolist() if isinstance(names, np.ndarray) else names
    if not isinstance(values, list | tuple) or not all(isinstance(name, str) for name in values):
        raise UsageError(f"the classes are a {_class_name(names)}", wanted="a list of texts, one for each class")
    return tuple(unicodedata.normalize("NFC", name) for name in values)


def _numbered(
    splits: Mapping[str, _Split], given: tuple[str, ...] | None
) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """The class names, and the class numbers of every split."""
    distinct = {name: list(dict.fromkeys(split.labels)) for name, split in splits.items()}
    known = distinct.get("train") or [label for labels in distinct.values() for label in labels]
    classes: tuple[str, ...] = ()
    numbers: dict[str, np.ndarray] = {}
    for name, labels in distinct.items():
        try:
            classes, found = number_classes(labels, known, given, name)
        except DataError as error:
            raise UsageError(error.came, wanted=error.wanted, where=error.where, fix=error.fix) from None
        table = dict(zip(labels, found.tolist(), strict=True))
        numbers[name] = np.array([table[label] for label in splits[name].labels], dtype=np.int64)
    if given is None and isinstance(known[0], int):
        # So that whoever sorts the names keeps the numbers.
        width = max(map(len, classes))
        classes = tuple(name.zfill(width) for name in classes)
    _ensure_names(classes)
    return classes, numbers


def _ensure_names(classes: tuple[str, ...]) -> None:
    seen: set[str] = set()
    for number, name in enumerate(classes):
        if not name or not _is_text(name):
            raise UsageError(f"class {number} is {name!r}", wanted="a text that is not empty")
        if name in seen:
            raise UsageError(f"the class {name!r} is there twice", wanted="each class once")
        seen.add(name)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


# Files.


def _packing(images: Sequence[np.ndarray], labels: Labels, classes: tuple[str, ...]) -> _Packing:
    shapes = np.array([(*image.shape, 1)[:3] for image in images], dtype=np.int32)
    record = hashlib.sha256(json_text(classes).encode() + labels.values.tobytes() + shapes.tobytes())
    checksums = np.empty(len(images), dtype=np.uint32)
    for place, image in enumerate(images):
        pixels = np.ascontiguousarray(image).data
        record.update(pixels)
        checksums[place] = zlib.crc32(pixels)
    offsets = np.concatenate([[0], np.cumsum(shapes.astype(np.int64).prod(axis=1))])
    return _Packing(PackIndex(offsets, shapes, checksums, labels), record.hexdigest())


def _are_stored(packings: Mapping[str, _Packing], folder: Path) -> bool:
    """Whether a folder holds these very images; one that holds anything else is refused."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    if not is_packed(folder):
        raise UsageError("there is something already", where=str(folder), fix=_ANOTHER)
    if read_record(folder).digests != {name: packing.digest for name, packing in packings.items()}:
        raise UsageError("other images, labels or classes are stored there", where=str(folder), fix=_ANOTHER)
    for name in packings:
        open_packed(folder, name)
    return True


def _write(
    splits: Mapping[str, _Split], packings: Mapping[str, _Packing], classes: tuple[str, ...], folder: Path
) -> None:
    with atomic_folder(folder) as temporary:
        indexes = {}
        for name, packing in packings.items():
            with (temporary / f"{name}.pixels").open("wb") as file:
                for image in splits[name].images:
                    file.write(np.ascontiguousarray(image).data)
            indexes[name] = save_index(temporary / f"{name}.safetensors", packing.index)
        record = PackRecord(
            name="arrays in memory",
            classes=classes,
            short_side=max(int(packing.index.shapes[:, :2].min(axis=1).max()) for packing in packings.values()),
            digests={name: packing.digest for name, packing in packings.items()},
            indexes=indexes,
        )
        (temporary / RECORD).write_text(json_text(to_json(record), indent=2), encoding="utf-8")
