"""Checkpoints of other torch libraries: recognised by their names, read, and written back."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from vitrail.config import ModelConfig, Preprocessing, VitConfig, from_json
from vitrail.errors import DataError, UsageError, notice, setting
from vitrail.runtime.atomic import atomic_file, atomic_folder
from vitrail.weights import huggingface_names, parts, timm_names, torchvision_names
from vitrail.weights.checkpoint import Checkpoint, expected_shapes, with_tensors
from vitrail.weights.huggingface_processor import PROCESSOR_FILE, is_own, processor_settings, read_processor
from vitrail.weights.layout import Entry, as_float32, read_entries, write_entries
from vitrail.weights.library_config import Hints
from vitrail.weights.numerics import with_numerics
from vitrail.weights.record import METADATA_KEY, Described, read_record, record_text
from vitrail.weights.safetensors_file import write_safetensors


@dataclass(frozen=True, kw_only=True)
class Library:
    """How one library names and computes a ViT."""

    name: str
    recognises: Callable[[set[str]], bool]
    infer: Callable[[Mapping[str, Tensor], Hints, str], ModelConfig]
    entries: Callable[[ModelConfig, Mapping[str, Tensor]], list[Entry]]
    numerics: Mapping[str, Any]
    """What its networks compute with; empty where its files record it."""
    holds: frozenset[str]
    """Parts beyond a plain class-token ViT."""

    def reads_as(self, config: ModelConfig) -> ModelConfig:
        """The network that the library builds from a file of this one."""
        return with_numerics(config, **self.numerics)


def _huggingface_entries(config: ModelConfig, tensors: Mapping[str, Tensor]) -> list[Entry]:
    if not tensors:
        return huggingface_names.huggingface_entries(config)
    prefix, naming = huggingface_names.prefix_of(tensors), huggingface_names.naming_of(tensors)
    return huggingface_names.huggingface_entries(config, prefix, naming)


TIMM = Library(
    name="timm",
    recognises=timm_names.is_timm,
    infer=timm_names.infer_timm,
    entries=lambda config, _: timm_names.timm_entries(config),
    numerics=timm_names.NUMERICS,
    holds=frozenset({parts.BIT, parts.RESNET, parts.NO_CLASS_ROW}),
)
TORCHVISION = Library(
    name="torchvision",
    recognises=torchvision_names.is_torchvision,
    infer=torchvision_names.infer_torchvision,
    entries=lambda config, _: torchvision_names.torchvision_entries(config),
    numerics=torchvision_names.NUMERICS,
    holds=frozenset({parts.CONV_STEM, parts.PRE_LOGITS}),
)
HUGGINGFACE = Library(
    name="huggingface",
    recognises=huggingface_names.is_huggingface,
    infer=huggingface_names.infer_huggingface,
    entries=_huggingface_entries,
    numerics={},
    holds=frozenset(),
)
LIBRARIES = (TIMM, TORCHVISION, HUGGINGFACE)


def read_tensors(tensors: Mapping[str, Tensor], metadata: Mapping[str, str], hints: Hints, path: Path) -> Checkpoint:
    """A checkpoint from tensors of ours or of any library; a record of ours in the metadata decides what it can."""
    where = str(path)
    recorded = METADATA_KEY in metadata
    described = read_record(metadata[METADATA_KEY], f"{where}, metadata") if recorded else None
    tensors = torchvision_names.modern_names(tensors)
    library = next((library for library in LIBRARIES if library.recognises(set(tensors))), None)
    if library is None:
        if described is None:
            seen = ", ".join(sorted(tensors)[:3]) or "no tensors"
            wanted = "a ViT of timm, torchvision, Hugging Face or vitrail"
            raise DataError(f"its tensors belong to no network known here (found {seen})", wanted=wanted, where=where)
        return with_tensors(described, {name: as_float32(t, name, where) for name, t in tensors.items()})
    if library is HUGGINGFACE:
        tensors = huggingface_names.without_idle_pooler(tensors, where)
    described = (
        _describe(library, tensors, hints, path) if described is None else _edited(library, described, hints, path)
    )
    shapes = expected_shapes(described.config)
    state = read_entries(library.entries(described.config, tensors), tensors, shapes, where)
    return with_tensors(described, state)


def write_file(library: Library, path: Path, checkpoint: Checkpoint) -> None:
    """Write a `.safetensors` with the library's names; its metadata carries our record, numerics included."""
    with atomic_file(path) as temporary:
        write_safetensors(temporary, *_contents(library, checkpoint))


def write_huggingface(path: Path, checkpoint: Checkpoint) -> None:
    """Write a folder that `AutoModelForImageClassification.from_pretrained` loads."""
    config = checkpoint.config
    if not isinstance(config, VitConfig):
        raise UsageError(f"the huggingface layout cannot hold {parts.BIT}")
    files = {"config.json": _huggingface_config(config, checkpoint.labels)}
    if checkpoint.preprocessing is None:
        notice(
            f"How the images of this network are prepared is not known, so no {PROCESSOR_FILE} is written: name it "
            f"with {setting('preprocessing')}, or in Python with load_model(..., preprocessing=)."
        )
    elif (settings := processor_settings(config, checkpoint.preprocessing)) is not None:
        files[PROCESSOR_FILE] = settings
    with atomic_folder(path) as temporary:
        write_safetensors(temporary / "model.safetensors", *_contents(HUGGINGFACE, checkpoint))
        for name, values in files.items():
            (temporary / name).write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _contents(library: Library, checkpoint: Checkpoint) -> tuple[dict[str, Tensor], dict[str, str]]:
    tensors = write_entries(library.entries(checkpoint.config, {}), checkpoint.state)
    return {name: tensor.cpu() for name, tensor in tensors.items()}, {
        "format": "pt",
        METADATA_KEY: record_text(checkpoint),
    }


def _describe(library: Library, tensors: Mapping[str, Tensor], hints: Hints, path: Path) -> Described:
    config = library.infer(tensors, hints, str(path))
    return Described(
        config=config,
        labels=_labels(library, hints, config.num_classes),
        preprocessing=_preprocessing(library, hints, str(path)),
        provenance={"layout": library.name, "file": path.name},
    )


def _edited(library: Library, described: Described, hints: Hints, path: Path) -> Described:
    """What a record says of a network, changed by the files beside it, which people read and edit."""
    config, preprocessing, labels = described.config, described.preprocessing, described.labels
    if preprocessing is None or not is_own(hints.preprocessor, config, preprocessing):
        beside = _preprocessing(library, hints, str(path))
        if preprocessing is None:
            preprocessing = beside
        elif beside is not None and not beside.agrees(preprocessing, config.image_size, config.channels):
            _tell_edited(path, "preprocessing", PROCESSOR_FILE if library is HUGGINGFACE else "config.json")
            preprocessing = beside
    names = _labels(library, hints, config.num_classes)
    if names is not None and names != labels:
        if labels is not None:
            _tell_edited(path, "class names", "config.json")
        labels = names
    return dataclasses.replace(described, preprocessing=preprocessing, labels=labels)


def _tell_edited(path: Path, what: str, file: str) -> None:
    notice(f"{path}: the {what} in {file} beside it is not what it records itself; {file} is followed.")


def _labels(library: Library, hints: Hints, num_classes: int) -> tuple[str, ...] | None:
    if library is HUGGINGFACE:
        return huggingface_names.labels_of(hints.config, num_classes)
    names = hints.config.get("label_names")
    return tuple(map(str, names)) if isinstance(names, list) and len(names) == num_classes else None


def _preprocessing(library: Library, hints: Hints, where: str) -> Preprocessing | None:
    if library is HUGGINGFACE:
        return read_processor(hints.preprocessor, where)
    settings = hints.config.get("pretrained_cfg")
    if not isinstance(settings, dict) or not {"mean", "std", "interpolation"} <= settings.keys():
        return None
    mode, share = settings.get("crop_mode") or "center", settings.get("crop_pct") or 1.0
    if settings["interpolation"] not in ("bilinear", "bicubic") or mode not in ("center", "squash"):
        notice(f"{where}: interpolation or crop_mode in config.json is not one that is followed.")
        return None
    is_whole = mode == "squash" and share == 1.0
    values = {name: settings[name] for name in ("mean", "std", "interpolation")} | {
        "crop": None if is_whole else share,
        "squash": mode == "squash" and not is_whole,
    }
    return from_json(Preprocessing, values, where=f"{where}, config.json")


def _huggingface_config(config: VitConfig, labels: tuple[str, ...] | None) -> dict[str, Any]:
    names = labels or tuple(f"LABEL_{index}" for index in range(config.num_classes))
    square = len(set(config.image_size)) == 1
    patch_square = len(set(config.patch_size)) == 1
    return {
        "architectures": ["ViTForImageClassification"],
        "model_type": "vit",
        "hidden_size": config.width,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.mlp_width,
        "hidden_act": "gelu" if config.gelu == "erf" else "gelu_pytorch_tanh",
        "layer_norm_eps": config.layer_norm_epsilon,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "image_size": config.image_size[0] if square else list(config.image_size),
        "patch_size": config.patch_size[0] if patch_square else list(config.patch_size),
        "num_channels": config.channels,
        "qkv_bias": True,
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
    }
