"""Optimisers: the original's traces, groups against arithmetic by hand, layer decay beside timm's, freezing."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import vitrail.training
from vitrail.config import BitConfig, OptimConfig, ResNetConfig, ScheduleConfig, TrainConfig, VitConfig
from vitrail.errors import UsageError
from vitrail.models import build
from vitrail.training.objective import build_objective
from vitrail.training.optimizer import build_optimizer, learning, moments
from vitrail.training.schedule import learning_rate
from vitrail.training.spread import Whole
from vitrail.training.step import TrainingStep

SMALL = VitConfig(width=16, depth=3, num_heads=2, mlp_width=32, patch_size=4, image_size=8, num_classes=5)
HYBRID = VitConfig(
    width=16, depth=2, num_heads=2, mlp_width=32, patch_size=1, image_size=16, num_classes=5,
    backbone=ResNetConfig(blocks=(1,), width=32),
)  # fmt: skip


NAMES = {"kernel": "a/kernel", "bias": "a/bias", "scale": "ln/scale", "positions.table": "pos_embedding"}


class Pieces(nn.Module):
    """Parameters with the shapes of the original's trace, under names that our code reads the same way."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        super().__init__()
        self.config = SimpleNamespace(depth=0)
        for name, original in NAMES.items():
            *path, last = name.split(".")
            owner = self if not path else self._child(path[0])
            owner.register_parameter(last, nn.Parameter(torch.from_numpy(arrays[original])))

    def _child(self, name: str) -> nn.Module:
        self.add_module(name, nn.Module())
        return self.get_submodule(name)


def plain_step(model: nn.Module, optim: OptimConfig, average=None, **train) -> TrainingStep:
    config = TrainConfig(**({"batch_size": 8, "steps": 1, "loss": "softmax"} | train))
    return TrainingStep(
        Whole(model, compiled=config.compile),
        build_optimizer(model, optim),
        build_objective(config),
        config,
        optim,
        average,
    )


def random_gradients(model: nn.Module, seed: int, scale: float = 1.0) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = scale * torch.randn(parameter.shape, generator=generator)


@pytest.mark.parametrize(
    ("trace", "optim"),
    [
        # big_vision writes the decay as a share of each update: 0.0001 there is 0.1 times the rate of 0.001.
        ("adam_linear_noclip_wd0.1", OptimConfig(optimizer="adam", lr=1e-3, weight_decay=0.1)),
        ("sgdm_cosine_clip1", OptimConfig(optimizer="sgd", lr=0.03, momentum=0.9, clip=1.0)),
    ],
)
def test_the_originals_traces(trace, optim, fixtures) -> None:
    told = json.loads((fixtures / "optim_adam" / f"{trace}.json").read_text())
    with np.load(fixtures / "optim_adam" / f"{trace}.npz") as file:
        arrays = {name: file[name] for name in file.files}

    def at(kind: str) -> dict[str, np.ndarray]:
        return {name.partition("/")[2]: array for name, array in arrays.items() if name.partition("/")[0] == kind}

    assert told["cfg"]["lr"] == optim.lr
    assert told["cfg"].get("wd", 0) == pytest.approx(optim.weight_decay * optim.lr)
    assert told["cfg"].get("grad_clip_norm") == optim.clip
    asked = told["cfg"]["schedule"]
    schedule = ScheduleConfig(
        decay=asked["decay_type"],
        warmup_steps=asked["warmup_steps"],
        linear_end=asked.get("linear_end", 0.0) * optim.lr,
        lr=optim.lr,
        steps=told["total_steps"],
    )
    model = Pieces(at("p0"))
    step = plain_step(model, optim, log_every=told["total_steps"])
    for number in range(told["total_steps"]):
        for name, parameter in model.named_parameters():
            parameter.grad = torch.from_numpy(at(f"g{number}")[NAMES[name]])
        step.learning_rate.fill_(learning_rate(schedule, number))
        step.update()
        for name, parameter in model.named_parameters():
            wanted = at(f"p{number + 1}")[NAMES[name]]
            np.testing.assert_allclose(
                parameter.detach().numpy(), wanted, rtol=0, atol=1e-6, err_msg=f"{number} {name}"
            )
    norms = [happened.gradient_norm for happened in step.read(told["total_steps"])]
    if optim.clip:
        assert max(norms) > optim.clip, "the trace never clipped"


def test_the_public_name() -> None:
    assert vitrail.training.build_optimizer is build_optimizer


def decayed_names(model: nn.Module) -> set[str]:
    optimizer = build_optimizer(model, OptimConfig(optimizer="adam", lr=1.0, weight_decay=0.3))
    chosen = {p for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.0, 0.3}
    return {name for name, parameter in model.named_parameters() if parameter in chosen}


@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        HYBRID,
        VitConfig(**{**vars(SMALL), "pool": "map", "registers": 2, "position": "learned_2d"}),
        VitConfig(**{**vars(SMALL), "position": "relative", "pre_logits": 8}),
        VitConfig(**{**vars(SMALL), "position_at": "every_layer"}),
        BitConfig(blocks=(1, 1, 1, 1), width=32, image_size=32, num_classes=5),
    ],
    ids=["vit", "hybrid", "map", "relative", "every-layer", "bit"],
)
def test_kernels_alone_are_decayed(config) -> None:
    model = build(config)
    found = decayed_names(model)
    kernels = {
        f"{name}.{kind}"
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | nn.Conv2d)
        for kind, _ in module.named_parameters(recurse=False)
        if kind.endswith("weight")
    }
    packed = {name for name, parameter in model.named_parameters() if name.endswith("qkv") and parameter.ndim > 1}
    assert kernels
    assert found == kernels | packed


def adam_by_hand(weight, gradients, rate, decay, betas=(0.9, 0.999), epsilon=1e-8):
    first, second = np.zeros_like(weight), np.zeros_like(weight)
    for number, gradient in enumerate(gradients, start=1):
        first = betas[0] * first + (1 - betas[0]) * gradient
        second = betas[1] * second + (1 - betas[1]) * gradient**2
        corrected = first / (1 - betas[0] ** number), second / (1 - betas[1] ** number)
        weight = weight - rate * (corrected[0] / (np.sqrt(corrected[1]) + epsilon) + decay * weight)
    return weight


def sgd_by_hand(weight, gradients, rate, decay, momentum=0.9):
    speed = np.zeros_like(weight)
    for gradient in gradients:
        speed = momentum * speed + gradient + decay * weight
        weight = weight - rate * speed
    return weight


@pytest.mark.parametrize(("optimizer", "by_hand"), [("adam", adam_by_hand), ("sgd", sgd_by_hand)])
def test_every_group_against_arithmetic_by_hand(optimizer, by_hand) -> None:
    torch.manual_seed(1)
    model = build(SMALL)
    optim = OptimConfig(optimizer=optimizer, lr=0.05, weight_decay=0.2, layer_decay=0.7)
    step = plain_step(model, optim, log_every=6)
    first = {name: p.detach().double().numpy().copy() for name, p in model.named_parameters()}
    seen: dict[str, list[np.ndarray]] = {name: [] for name in first}
    for number in range(6):
        random_gradients(model, number)
        for name, parameter in model.named_parameters():
            seen[name].append(parameter.grad.double().numpy().copy())
        step.learning_rate.fill_(0.05)
        step.update()
    kernels = decayed_names(build(SMALL))
    for name, parameter in model.named_parameters():
        layer = 4 if name.startswith(("head", "norm")) else int(name.split(".")[1]) + 1 if "blocks" in name else 0
        decay = 0.2 if name in kernels else 0.0
        wanted = by_hand(first[name], seen[name], 0.05 * 0.7 ** (4 - layer), decay)
        np.testing.assert_allclose(parameter.detach().numpy(), wanted, rtol=0, atol=2e-6, err_msg=name)


def scales(model: nn.Module, optim: OptimConfig) -> dict[str, float]:
    names = {parameter: name for name, parameter in model.named_parameters()}
    groups = build_optimizer(model, optim).param_groups
    return {names[parameter]: group["scale"] for group in groups for parameter in group["params"]}


def test_layer_decay_is_timms_but_for_the_last_norm() -> None:
    """timm lets the norm after the last block learn as fast as that block; ours is part of the top, as in BEiT."""
    from timm.models.vision_transformer import VisionTransformer
    from timm.optim import param_groups_layer_decay

    theirs = VisionTransformer(img_size=8, patch_size=4, embed_dim=16, depth=3, num_heads=2, num_classes=5)
    names = {parameter: name for name, parameter in theirs.named_parameters()}
    groups = param_groups_layer_decay(theirs, weight_decay=0.05, layer_decay=0.6)
    wanted = {names[parameter]: group["lr_scale"] for group in groups for parameter in group["params"]}
    found = scales(build(SMALL), OptimConfig(optimizer="adam", lr=1.0, layer_decay=0.6))
    same = {
        "head.weight": "head.weight",
        "blocks.2.mlp_norm.weight": "blocks.2.norm2.weight",
        "blocks.0.attention_norm.bias": "blocks.0.norm1.bias",
        "class_token": "cls_token",
    }
    for ours, other in same.items():
        assert found[ours] == pytest.approx(wanted[other]), ours
    embedding = [scale for name, scale in found.items() if name.startswith(("patch", "positions", "embed"))]
    assert embedding == pytest.approx([wanted["pos_embed"]] * len(embedding))
    assert embedding
    assert (found["norm.weight"], wanted["norm.weight"]) == (1.0, pytest.approx(0.6))


def test_rates_follow_the_scale_of_each_group() -> None:
    optim = OptimConfig(optimizer="sgd", lr=0.5, layer_decay=0.5)
    step_model = build(SMALL)
    step = plain_step(step_model, optim)
    random_gradients(step_model, 0)
    step.learning_rate.fill_(0.08)
    step.update()
    groups = step._optimizer.param_groups
    assert {group["scale"] for group in groups} == {0.5**power for power in range(5)}
    for group in groups:
        assert group["lr"].item() == pytest.approx(0.08 * group["scale"])


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "muon"])
@pytest.mark.parametrize("freeze", [-1, 1, 3])
@pytest.mark.parametrize("config", [SMALL, HYBRID], ids=["vit", "hybrid"])
def test_what_is_frozen_never_changes_and_has_no_moments(config, freeze, optimizer) -> None:
    freeze = min(freeze, config.depth)
    model = build(config)
    nn.init.normal_(model.head.weight, std=0.1)
    optim = OptimConfig(optimizer=optimizer, lr=0.1, weight_decay=0.1, freeze=freeze)
    step = plain_step(model, optim, batch_size=2)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    step.accumulate(torch.randn(2, 3, *config.image_size), torch.tensor([1, 2]))
    step.learning_rate.fill_(0.1)
    step.update()
    moved = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    remembered = {name.partition("/")[2] for name in moments(step._optimizer, dict(model.named_parameters()))}
    if freeze == -1:
        free = {"head.weight", "head.bias"}
    else:
        above = tuple(f"blocks.{number}." for number in range(freeze, config.depth))
        free = {name for name in before if name.startswith(("head.", "norm.", *above))}
    assert moved == free
    assert remembered == free
    assert {name for name, parameter in model.named_parameters() if parameter.requires_grad} == free


def test_freezing_can_be_undone_by_building_anew() -> None:
    model = build(SMALL)
    build_optimizer(model, OptimConfig(optimizer="adam", lr=1.0, freeze=-1))
    build_optimizer(model, OptimConfig(optimizer="adam", lr=1.0))
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    ("config", "freeze", "told"),
    [
        (SMALL, 4, "freeze is 4; wanted at most the 3 blocks"),
        (BitConfig(blocks=(1,), width=32, image_size=32, num_classes=5), 1, "freeze is 1; wanted at most the 0 blocks"),
        (VitConfig(**{**vars(SMALL), "num_classes": 0}), -1, "at least the head left to train"),
    ],
)
def test_too_much_frozen_is_refused(config, freeze, told) -> None:
    with pytest.raises(UsageError, match=told):
        build_optimizer(build(config), OptimConfig(optimizer="adam", lr=1.0, freeze=freeze))


@pytest.mark.parametrize(
    ("optimizer", "kinds"), [("adam", {"step", "exp_avg", "exp_avg_sq"}), ("sgd", {"momentum_buffer"})]
)
def test_all_state_is_there_before_the_first_step(optimizer, kinds) -> None:
    model = build(SMALL)
    made = build_optimizer(model, OptimConfig(optimizer=optimizer, lr=1.0))
    found = moments(made, dict(model.named_parameters()))
    assert set(found) == {f"{kind}/{name}" for kind in kinds for name, _ in model.named_parameters()}
    assert not any(value.any() for value in found.values())
    random_gradients(model, 0)
    made.step()
    assert set(moments(made, dict(model.named_parameters()))) == set(found)
    # The same tensors: what a checkpoint is loaded into is what the optimiser reads.
    assert all(
        value.data_ptr() == found[name].data_ptr()
        for name, value in moments(made, dict(model.named_parameters())).items()
    )


def test_every_parameter_is_in_exactly_one_group() -> None:
    model = build(HYBRID)
    places = list(learning(model, OptimConfig(optimizer="adam", lr=1.0)))
    assert sorted(place.name for place in places) == sorted(name for name, _ in model.named_parameters())
    groups = build_optimizer(model, OptimConfig(optimizer="adam", lr=1.0, layer_decay=0.9)).param_groups
    assert sum(len(group["params"]) for group in groups) == len(places)
    assert math.prod(sorted({group["scale"] for group in groups})) == pytest.approx(0.9 ** (1 + 2 + 3))
