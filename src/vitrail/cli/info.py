"""`vitrail info`: what a network is and costs, or what a checkpoint holds."""

from pathlib import Path
from typing import Annotated, Any

import tyro

from vitrail.cli.info_train import Training, refuse_without_train, show_training
from vitrail.cli.terminal import console, megabytes, operations, print_json, printable, table
from vitrail.config import (
    BitConfig,
    ModelConfig,
    PeerConfig,
    ResNetConfig,
    VitConfig,
    peer_name,
    replace,
    times,
    to_json,
)
from vitrail.config.checks import positive
from vitrail.models import tell_dropped_pixels
from vitrail.models.cost import Cost, LayerCost, measure_cost
from vitrail.models.create import named_config
from vitrail.recipes import RECIPES, recipe
from vitrail.weights.adapt import adapt
from vitrail.weights.checkpoint import Checkpoint
from vitrail.weights.load import read_checkpoint
from vitrail.zoo import ZOO, zoo_row

Size = int | tuple[int, int]
_DEFAULT = Training()


def run(
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    /,
    image_size: Size | None = None,
    num_classes: int | None = None,
    num_heads: int | None = None,
    batch: int | None = None,
    train: bool = False,
    training: Annotated[Training, tyro.conf.arg(name="")] = _DEFAULT,
    json: bool = False,
) -> None:
    """Describe a network by its name, or whatever a checkpoint file or model folder holds; or what it takes to train.

    Args:
        model: A name from `vitrail list models`, timm:NAME or torchvision:NAME, or a model folder or file of vitrail,
            Google, timm, torchvision or Hugging Face.
        image_size: Pixels per side, or height and width, if not the network's own.
        num_classes: Outputs of the head, if not the network's own.
        num_heads: Attention heads, when a file does not record them.
        batch: Images per batch, for the memory estimate; 1 if not said. With --train the images of one update.
        train: Show what training holds on each GPU, whether it fits, and what to change if not.
        training: Options of --train.
        json: Print JSON for programs instead of a table.
    """
    if batch is not None:
        positive("batch", batch)
    if not train:
        refuse_without_train(training)
    checkpoint: Checkpoint | None = None
    if not _is_path(model):
        title, note, config = _from_zoo(model, image_size, num_classes)
    else:
        checkpoint = adapt(
            read_checkpoint(model, image_size=image_size, num_heads=num_heads),
            num_classes=num_classes,
            image_size=image_size,
            resize="google",
            overrides={},
        )
        title, note, config = model, "", checkpoint.config
    tell_dropped_pixels(config)
    if train:
        show_training(title, config, batch, training, json)
        return
    cost = measure_cost(config, batch or 1)
    facts = _file_facts(checkpoint) if checkpoint else {}
    if json:
        described = {"model": title, "note": note, "file": facts, "config": to_json(config), "tokens": config.tokens}
        print_json({**described, "cost": to_json(cost)})
    else:
        _print(title, note, config, cost, facts)


def _is_path(name: str) -> bool:
    """A name with a folder or a file ending is a path even when nothing is there, so that the error says so."""
    if peer_name(name) is not None and not Path(name).exists():
        return False
    if name in ZOO or name in {row.name for row in ZOO.values()}:
        return False
    return Path(name).exists() or len(Path(name).parts) > 1 or bool(Path(name).suffix)


def _from_zoo(key: str, image_size: Size | None, num_classes: int | None) -> tuple[str, str, ModelConfig]:
    of_recipe = recipe(key).model if key in RECIPES and key not in ZOO else None
    if of_recipe is not None:
        title, note, config = f"{key}: the network of this recipe", "", of_recipe
    elif peer_name(key) is not None:
        title, note, config = f"{key}: a network of another package", "", named_config(key)
    else:
        row = zoo_row(key)
        title, note, config = f"{row.name}: {row.about}", row.note, row.config
    asked: dict[str, Any] = {"image_size": image_size, "num_classes": num_classes}
    config = replace(config, {name: value for name, value in asked.items() if value is not None}, kind="model")
    return title, note, config


def _file_facts(checkpoint: Checkpoint) -> dict[str, str]:
    head = checkpoint.state.get("head.weight")
    return {
        "layout": str(checkpoint.provenance.get("layout", "vitrail")),
        **_style(checkpoint),
        "head": "none" if head is None else "all zero" if not head.any() else "trained",
        "labels": f"{len(checkpoint.labels)} names" if checkpoint.labels else "none",
        "preprocessing": "not recorded" if checkpoint.preprocessing is None else str(to_json(checkpoint.preprocessing)),
    }


def _style(checkpoint: Checkpoint) -> dict[str, str]:
    style = checkpoint.provenance.get("style")
    return {str(name): str(value) for name, value in style.items() if value != ""} if isinstance(style, dict) else {}


def _print(title: str, note: str, config: ModelConfig, cost: Cost, facts: dict[str, str]) -> None:
    out = console()
    out.print(printable(title), style="bold", markup=False, soft_wrap=True)
    notes = [("note", note)] if note else []
    for name, value in [*_lines(config, cost), *notes, *((f"file: {name}", value) for name, value in facts.items())]:
        out.print(printable(f"  {name:<20} {value}"), markup=False, soft_wrap=True)
    view = table("layer", "kind", "parameters", "compute", "output", numbers=("parameters", "compute"))
    for layer in _collapsed(cost.layers):
        shape = " x ".join(map(str, layer.output))
        view.add_row(layer.name, layer.kind, f"{layer.parameters:,}", operations(layer.macs), shape)
    out.print(view)


def _lines(config: ModelConfig, cost: Cost) -> list[tuple[str, str]]:
    batch = "" if cost.batch == 1 else f" for a batch of {cost.batch}"
    return [
        ("input", f"{times(config.image_size)} pixels, channels: {config.channels}"),
        *_own_lines(config),
        ("parameters", f"{cost.parameters:,} ({megabytes(4 * cost.parameters)} in float32)"),
        ("compute", f"{operations(cost.macs)} = {operations(2 * cost.macs, 'FLOPs')} forward{batch}"),
        (
            "activation memory",
            f"{megabytes(cost.inference_bytes)} to predict, {megabytes(cost.training_bytes)} kept to train "
            f"(float32, batch {cost.batch}, without weights)",
        ),
    ]


def _own_lines(config: ModelConfig) -> list[tuple[str, str]]:
    match config:
        case VitConfig():
            return _vit_lines(config)
        case BitConfig():
            return _bit_lines(config)
        case PeerConfig():
            return [("network", f"{config.name}, built by {config.package}"), ("head", _classes(config))]


def _vit_lines(config: VitConfig) -> list[tuple[str, str]]:
    prefix = [name for name, there in (("a class token", config.class_token), ("registers", config.registers)) if there]
    grid = " and ".join([f"{times(config.grid)} grid of {times(config.patch_size)} patches", *prefix])
    pool = {"token": "class token", "mean": "mean of the patch tokens", "map": "attention pooling"}[config.pool]
    hidden = f"tanh layer of {config.pre_logits}, then " if config.pre_logits else ""
    lines = [
        ("tokens", f"{config.tokens}: {grid}, positions {config.position} ({config.position_at})"),
        ("encoder", f"{config.depth} blocks, width {config.width}, {config.num_heads} heads, MLP {config.mlp_width}"),
        ("numerics", f"GELU {config.gelu}, LayerNorm epsilon {config.layer_norm_epsilon:g}"),
        ("head", f"{pool}, {hidden}{_classes(config)}"),
    ]
    if config.backbone:
        stride = f"{config.backbone.stride} pixels per cell"
        kind = "ResNet" if isinstance(config.backbone, ResNetConfig) else "convolutional stem"
        lines.insert(0, ("backbone", f"{kind}, {times(config.feature_size)} feature map, {stride}"))
    return lines


def _bit_lines(config: BitConfig) -> list[tuple[str, str]]:
    rule = f"weights standardised by {config.standardisation} with epsilon {config.standardisation_epsilon:g}"
    return [
        ("feature map", f"{times(config.grid)} cells of {config.feature_width} numbers"),
        ("stages", f"{' + '.join(map(str, config.blocks))} units, root width {config.width}"),
        ("numerics", f"GroupNorm epsilon {config.group_norm_epsilon:g}, {rule}"),
        ("head", f"mean over the map, {_classes(config)}"),
    ]


def _classes(config: ModelConfig) -> str:
    return f"linear, {config.num_classes:,} classes" if config.num_classes else "none: features come out"


def _collapsed(layers: tuple[LayerCost, ...]) -> list[LayerCost]:
    """Fold runs of equal blocks into one row with their totals."""
    rows: list[list[LayerCost]] = []
    for layer in layers:
        last = rows[-1][-1] if rows else None
        alike = last and (last.kind, last.parameters, last.macs) == (layer.kind, layer.parameters, layer.macs)
        if alike and "." in layer.name:
            rows[-1].append(layer)
        else:
            rows.append([layer])
    return [
        group[0]
        if len(group) == 1
        else LayerCost(
            name=f"{group[0].name}-{group[-1].name.split('.')[-1]}",
            kind=f"{len(group)} x {group[0].kind}",
            parameters=sum(layer.parameters for layer in group),
            macs=sum(layer.macs for layer in group),
            output=group[-1].output,
        )
        for group in rows
    ]
