"""The model card that travels with a model folder: what the network is, how to use it, where it came from."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitrail.config import BitConfig, ModelConfig, PeerConfig, Preprocessing, ResNetConfig, VitConfig, times
from vitrail.weights.checkpoint import Checkpoint

CARD_FILE = "README.md"

MARK = "<!-- Written by vitrail, which may write it anew. Remove this line, and the card is yours. -->"

_SHOWN_LABELS = 10
_LONGEST = 120
_LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,40}")
_TAGS = {VitConfig: "vision-transformer", BitConfig: "bit", PeerConfig: "baseline"}
_STATISTICS = (".running_mean", ".running_var", ".num_batches_tracked")
_POOLS = {"token": "class token", "mean": "mean of the patch tokens", "map": "attention pooling"}


def model_card(
    checkpoint: Checkpoint, source: str = "path/to/this-folder", *, exports: str = "", use: str | None = None
) -> str:
    """The card as Markdown; `source` is what its examples load, where `use` does not say another use.

    `exports` is what is said about exported files.
    """
    kind = "An image classifier" if checkpoint.config.num_classes else "A network that gives features of images,"
    sections = [
        f"# {_title(checkpoint.config)}",
        f"{kind} in the format of vitrail, the Vision Transformer of "
        '"An Image is Worth 16x16 Words" ([arXiv:2010.11929](https://arxiv.org/abs/2010.11929)).',
        _table("part", "value", _facts(checkpoint)),
        f"## Use\n\n{use or _use(checkpoint.config, source)}",
        f"## Preprocessing\n\n{_preprocessing(checkpoint.preprocessing)}",
        f"## Labels\n\n{_labels(checkpoint)}",
    ]
    if taught := lineage(checkpoint.provenance):
        sections.append("## Lineage\n\n" + "\n".join(f"{place}. {line}" for place, line in enumerate(taught, start=1)))
    provenance = {name: value for name, value in checkpoint.provenance.items() if name != "taught"}
    for title, values in (("Provenance", provenance), ("Metrics", checkpoint.metrics)):
        if values:
            sections.append(f"## {title}\n\n{_table('name', 'value', values)}")
    if exports:
        sections.append(f"## Exports\n\n{exports}")
    return "\n\n".join([_front_matter(checkpoint), MARK, *sections]) + "\n"


def lineage(provenance: Mapping[str, Any]) -> list[str]:
    """Who taught a student of `vitrail selftrain`, and who taught the teacher: a sentence for each, the last first."""
    lines: list[str] = []
    taught = provenance.get("taught")
    while isinstance(taught, Mapping):
        known = {name: plain(value) for name, value in taught.items()}
        lines.append(
            f"Taught by {known.get('teacher')} (fingerprint {str(known.get('teacher_fingerprint'))[:12]}), which "
            f"labelled {known.get('images')} of {known.get('unlabelled_images')} images of {known.get('unlabelled')}: "
            f"{known.get('labels')} labels, confidence {known.get('threshold')} or more; beside "
            f"{known.get('labelled_images')} labelled images of {known.get('labelled')}."
        )
        before = taught.get("teacher_provenance")
        before = before if isinstance(before, Mapping) else {}
        taught = before.get("taught")
        if not taught and before:
            lines.append(f"That teacher: {plain(before.get('recipe'))} on {plain(before.get('data'))}.")
    return lines


def may_write_card(folder: Path) -> bool:
    """Whether there is no card, or one of ours: what a person wrote stays."""
    try:
        return MARK in (folder / CARD_FILE).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return True
    except OSError:
        return False


def plain(value: Any) -> str:
    """Text that Markdown, its tables and HTML show as it is, on one line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    short = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
    html = short.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]|~$])", r"\\\1", html)


def _front_matter(checkpoint: Checkpoint) -> str:
    stated = str(checkpoint.provenance.get("licence") or checkpoint.provenance.get("license") or "")
    task = "image-classification" if checkpoint.config.num_classes else "image-feature-extraction"
    lines = [
        "library_name: vitrail",
        f"pipeline_tag: {task}",
        f"license: {json.dumps(stated) if _LICENCE.fullmatch(stated) else 'other'}",
        "tags:",
        "- vitrail",
        f"- {task}",
        f"- {_TAGS[type(checkpoint.config)]}",
    ]
    return "\n".join(["---", *lines, "---"])


def _title(config: ModelConfig) -> str:
    if isinstance(config, PeerConfig):
        return f"{config.name}, as {config.package} builds it"
    if isinstance(config, BitConfig):
        return f"BiT ResNet, {'+'.join(map(str, config.blocks))} units, root width {config.width}"
    kind = "Hybrid Vision Transformer" if config.backbone else "Vision Transformer"
    return f"{kind}, {config.depth} blocks of width {config.width}"


def _facts(checkpoint: Checkpoint) -> dict[str, str]:
    config = checkpoint.config
    facts = {"input": f"{times(config.image_size)} pixels, {config.channels} channels"}
    if isinstance(config, PeerConfig):
        facts["network"] = f"{config.name} of {config.package}, which has to be installed"
        pool = "as in the package"
    elif isinstance(config, BitConfig):
        numerics = f"GroupNorm epsilon {config.group_norm_epsilon:g}, standardisation by {config.standardisation}"
        facts |= {"feature map": f"{times(config.grid)} cells of {config.feature_width} numbers", "numerics": numerics}
        pool = "mean over the map"
    else:
        if config.backbone:
            facts["backbone"] = "ResNet" if isinstance(config.backbone, ResNetConfig) else "convolutional stem"
        heads = f"{config.num_heads} heads, MLP {config.mlp_width}"
        facts["tokens"] = f"{times(config.grid)} grid of {times(config.patch_size)} patches, {config.tokens} tokens"
        facts["encoder"] = f"{config.depth} blocks, width {config.width}, {heads}, positions {config.position}"
        facts["numerics"] = f"GELU {config.gelu}, LayerNorm epsilon {config.layer_norm_epsilon:g}"
        pool = _POOLS[config.pool]
    facts["head"] = f"{pool}, {f'{config.num_classes:,} classes' if config.num_classes else 'no classes'}"
    learnt = (tensor for name, tensor in checkpoint.state.items() if not name.endswith(_STATISTICS))
    facts["parameters"] = f"{sum(tensor.numel() for tensor in learnt):,}"
    return facts


def _use(config: ModelConfig, source: str) -> str:
    shape = ", ".join(map(str, (1, config.channels, *config.image_size)))
    python = [
        "import torch, vitrail",
        f"model = vitrail.load_model({json.dumps(source)})",
        f"{'logits' if config.num_classes else 'features'} = model(torch.zeros({shape}))  # pixels prepared as below",
    ]
    embed = "" if config.num_classes else " --embed features.npz"
    commands = [f"$ vitrail info {source}", f"$ vitrail predict {source} photo.jpg{embed}"]
    return "\n".join(["```python", *python, "```", "", "```console", *commands, "```"])


def _preprocessing(values: Preprocessing | None) -> str:
    if values is None:
        return "Not recorded: say it with `preprocessing=` when the model is loaded."
    antialias = "" if values.antialias else " without antialiasing"
    fit = "squashed to the input size"
    if values.crop is not None:
        side = "a square image" if values.squash else "the short side"
        fit = f"{'squashed, then ' * values.squash}centre crop of {values.crop:.4g} of {side}"
    mean, std = (", ".join(f"{value:.6g}" for value in numbers) for numbers in (values.mean, values.std))
    return f"Pixels in [0, 1]; {values.interpolation} resize{antialias}, {fit}; mean ({mean}), std ({std})."


def _labels(checkpoint: Checkpoint) -> str:
    labels, classes = checkpoint.labels, checkpoint.config.num_classes
    if not labels:
        return f"{classes:,} classes without recorded names." if classes else "The network gives features, no classes."
    count = f"{len(labels):,} classes" + (f"; the first {_SHOWN_LABELS}:" if len(labels) > _SHOWN_LABELS else ":")
    rows = {str(index): label for index, label in enumerate(labels[:_SHOWN_LABELS])}
    return f"{count}\n\n{_table('index', 'label', rows)}"


def _table(left: str, right: str, rows: Mapping[str, Any]) -> str:
    lines = [f"| {plain(name)} | {plain(value)} |" for name, value in rows.items()]
    return "\n".join([f"| {left} | {right} |", "|---|---|", *lines])
