"""One update: accumulation, clipping, steps that are skipped, precision, recomputed activations, what is remembered."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from vitrail.config import ConvLayerConfig, ConvStemConfig, OptimConfig, ResNetConfig, TrainConfig, VitConfig
from vitrail.models import build
from vitrail.training.average import Average
from vitrail.training.memory import checkpoint_blocks
from vitrail.training.objective import build_objective
from vitrail.training.optimizer import build_optimizer, moments
from vitrail.training.spread import Whole
from vitrail.training.step import TrainingStep

VIT = VitConfig(width=16, depth=2, num_heads=2, mlp_width=32, patch_size=4, image_size=8, num_classes=5)
HYBRID = replace(VIT, patch_size=1, image_size=16, backbone=ResNetConfig(blocks=(1,), width=32))
STEM = replace(VIT, patch_size=1, image_size=16, backbone=ConvStemConfig(layers=(ConvLayerConfig(channels=8),) * 2))
ADAM = OptimConfig(optimizer="adam", lr=0.01, weight_decay=0.1, clip=1.0)
MUON = replace(ADAM, optimizer="muon")
SGD = OptimConfig(optimizer="sgd", lr=0.01, weight_decay=0.1, clip=1.0)
BATCH = 8


def network(config: VitConfig) -> nn.Module:
    """A network whose head is not zero, so that every parameter has a gradient; always the same one."""
    torch.manual_seed(5)
    model = build(config).train()
    nn.init.normal_(model.head.weight, std=0.1)
    return model


def step_of(model: nn.Module, optim: OptimConfig = ADAM, *, average: Average | None = None, **train) -> TrainingStep:
    config = TrainConfig(**({"batch_size": BATCH, "steps": 1, "loss": "softmax", "label_smoothing": 0.1} | train))
    step = TrainingStep(
        Whole(model, compiled=config.compile),
        build_optimizer(model, optim),
        build_objective(config),
        config,
        optim,
        average,
    )
    step.learning_rate.fill_(optim.lr)
    step.average_share.fill_(0.25)
    return step


def batch_of(config: VitConfig, mixed: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(9)
    images = torch.randn(BATCH, 3, *config.image_size, generator=generator)
    targets = torch.rand(BATCH, 5, generator=generator).softmax(1) if mixed else torch.arange(BATCH) % 5
    return images, targets


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def everything(step: TrainingStep, model: nn.Module) -> dict[str, torch.Tensor]:
    """Weights, statistics and moments, copied."""
    state = {**model.state_dict(), **moments(step._optimizer, dict(model.named_parameters()))}
    return {name: value.detach().clone() for name, value in state.items()}


def assert_equal(came: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert set(came) == set(wanted)
    assert [name for name in came if not torch.equal(came[name], wanted[name])] == []


@pytest.mark.parametrize("mixed", [False, True], ids=["classes", "mixed"])
@pytest.mark.parametrize("config", [VIT, HYBRID], ids=["vit", "hybrid"])
def test_gradients_of_micro_batches_add_up_to_that_of_the_batch(config, mixed) -> None:
    """In float64, where how a processor rounds is far below any bound."""
    images, targets = batch_of(config, mixed)
    wanted = None
    for size in (8, 4, 2, 1):
        model = network(config).double()
        step = step_of(model)
        for part, shares in zip(images.double().split(size), targets.split(size), strict=True):
            step.accumulate(part, shares.double() if mixed else shares)
        came = gradients(model)
        assert set(came) == {name for name, _ in model.named_parameters()}
        wanted = wanted or came
        for name, gradient in came.items():
            # Behind a LayerNorm of numbers near zero some gradients are in the tens.
            scale = max(1.0, wanted[name].abs().max().item())
            torch.testing.assert_close(gradient, wanted[name], rtol=0, atol=1e-12 * scale, msg=f"{size} {name}")


@pytest.mark.parametrize("mixed", [False, True], ids=["classes", "mixed"])
@pytest.mark.parametrize("config", [VIT, HYBRID], ids=["vit", "hybrid"])
def test_what_is_told_of_micro_batches_is_told_of_the_batch(config, mixed) -> None:
    images, targets = batch_of(config, mixed)
    wanted = None
    for size in (8, 4, 2, 1):
        step = step_of(network(config))
        for part, shares in zip(images.split(size), targets.split(size), strict=True):
            step.accumulate(part, shares)
        step.update()
        (happened,) = step.read(1)
        wanted = wanted or happened
        assert happened.loss == pytest.approx(wanted.loss, abs=1e-6)
        assert happened.accuracy == pytest.approx(wanted.accuracy, abs=1e-6)
        assert happened.gradient_norm == pytest.approx(wanted.gradient_norm, rel=1e-5)


@pytest.mark.parametrize("config", [VIT, HYBRID], ids=["vit", "hybrid"])
def test_the_update_of_micro_batches_is_that_of_the_batch(config) -> None:
    """With SGD, whose update is linear in the gradient: Adam's first step is its sign, which no tolerance describes."""
    images, targets = batch_of(config)
    found = []
    for size in (8, 4, 2, 1):
        model = network(config)
        step = step_of(model, replace(SGD, lr=0.1))
        for part, classes in zip(images.split(size), targets.split(size), strict=True):
            step.accumulate(part, classes)
        step.update()
        found.append({name: p.detach() for name, p in model.named_parameters()})
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=0, atol=1e-6)


def test_what_a_step_saw_is_the_mean_over_the_batch() -> None:
    model = network(VIT)
    images, targets = batch_of(VIT)
    with torch.no_grad():
        logits = model(images)
    step = step_of(model)
    step.accumulate(images, targets)
    norm = torch.sqrt(sum((p.grad.double() ** 2).sum() for p in model.parameters()))
    step.update()
    (happened,) = step.read(1)
    wanted = nn.functional.cross_entropy(logits, targets, label_smoothing=0.1)
    assert happened.loss == pytest.approx(wanted.item(), abs=1e-6)
    assert happened.accuracy == (logits.argmax(1) == targets).float().mean().item()
    assert happened.gradient_norm == pytest.approx(norm.item(), rel=1e-6)
    assert happened.was_finite


@pytest.mark.parametrize("size", [0.5, 1.0, 40.0])
def test_clipping_uses_the_norm_over_all_parameters(size) -> None:
    model = network(VIT)
    step = step_of(model, OptimConfig(optimizer="sgd", lr=1.0, momentum=0.0, clip=1.0))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    generator = torch.Generator().manual_seed(2)
    raw = {name: torch.randn(p.shape, generator=generator) for name, p in model.named_parameters()}
    norm = torch.sqrt(sum((value**2).sum() for value in raw.values()))
    for name, parameter in model.named_parameters():
        parameter.grad = raw[name] * (size / norm)
    step.learning_rate.fill_(1.0)
    step.update()
    factor = min(1.0, 1.0 / size) * size / norm
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(before[name] - parameter, raw[name] * factor, rtol=1e-5, atol=1e-6)
    assert step.read(1)[0].gradient_norm == pytest.approx(size, rel=1e-5)


def test_frozen_parameters_do_not_count_in_the_norm() -> None:
    images, targets = batch_of(VIT)
    norms = {}
    for freeze in (0, -1):
        model = network(VIT)
        step = step_of(model, replace(ADAM, freeze=freeze))
        step.accumulate(images, targets)
        wanted = torch.sqrt(sum((p.grad**2).sum() for p in model.parameters() if p.grad is not None)).item()
        step.update()
        norms[freeze] = step.read(1)[0].gradient_norm
        assert norms[freeze] == pytest.approx(wanted, rel=1e-5)
    assert norms[-1] < norms[0]


def spoil_loss(model: nn.Module, images: torch.Tensor) -> None:
    images[3, 0, 0, 0] = float("nan")


def spoil_one_gradient(model: nn.Module, images: torch.Tensor) -> None:
    model.norm.weight.register_hook(lambda gradient: gradient * float("inf"))


@pytest.mark.parametrize("spoil", [spoil_loss, spoil_one_gradient])
@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("optim", [ADAM, SGD, MUON], ids=["adam", "sgd", "muon"])
@pytest.mark.parametrize("config", [VIT, STEM], ids=["vit", "batch-norm"])
def test_a_step_that_is_not_finite_moves_nothing(config, optim, clip, spoil) -> None:
    images, targets = batch_of(config)
    model = network(config)
    step = step_of(model, replace(optim, clip=clip))
    step.accumulate(images, targets)
    step.update()
    before = everything(step, model)
    bad = images.clone()
    spoil(model, bad)
    step.accumulate(bad, targets)
    step.update()
    after = everything(step, model)
    counters = {name for name in before if name.endswith("num_batches_tracked")}
    assert_equal(*({name: value for name, value in state.items() if name not in counters} for state in (after, before)))
    assert [happened.was_finite for happened in step.read(2)] == [True, False]


@pytest.mark.parametrize("optim", [ADAM, SGD, MUON], ids=["adam", "sgd", "muon"])
def test_after_a_skipped_step_the_run_is_as_if_it_had_not_been(optim) -> None:
    images, targets = batch_of(STEM)
    found = []
    for spoiled in (False, True):
        model = network(STEM)
        step = step_of(model, optim)
        for number in range(4):
            if spoiled and number == 2:
                step.accumulate(images * float("inf"), targets)
                step.update()
            step.accumulate(images + number, targets)
            step.update()
        found.append({k: v for k, v in everything(step, model).items() if not k.endswith("num_batches_tracked")})
    assert_equal(*found)


def test_a_skipped_step_leaves_the_average_alone() -> None:
    images, targets = batch_of(VIT)
    model = network(VIT)
    average = Average(model.state_dict(), dict(model.named_parameters()), 0.9)
    step = step_of(model, average=average)
    step.accumulate(images, targets)
    step.update()
    before = {name: value.clone() for name, value in average.state.items()}
    step.accumulate(images * float("nan"), targets)
    step.update()
    assert_equal(average.state, before)


def test_what_was_accumulated_can_be_forgotten() -> None:
    images, targets = batch_of(VIT)
    model = network(VIT)
    step = step_of(model)
    step.accumulate(images * float("nan"), targets)
    step.clear()
    assert gradients(model) == {}
    step.accumulate(images, targets)
    step.update()
    assert step.read(1)[0].was_finite


def test_forgetting_half_a_step_gives_the_statistics_back() -> None:
    """A stop while waiting for the second micro-batch saves a checkpoint of the step before: whole, or not exact."""
    images, targets = batch_of(STEM)
    model = network(STEM)
    step = step_of(model)
    before = everything(step, model)
    step.accumulate(images[:4], targets[:4])
    step.clear()
    counters = {name for name in before if name.endswith("num_batches_tracked")}
    after = everything(step, model)
    assert_equal(*({name: value for name, value in state.items() if name not in counters} for state in (after, before)))


@pytest.mark.parametrize("keeps", [False, True])
def test_gradients_that_stay_in_place_give_the_same_steps(keeps) -> None:
    images, targets = batch_of(VIT)
    wanted, model = (network(VIT) for _ in range(2))
    plain, step = step_of(wanted), step_of(model)
    step.keeps_gradients = keeps
    step.clear()
    places = {name: p.grad.data_ptr() for name, p in model.named_parameters() if p.grad is not None}
    assert bool(places) == keeps
    for number in range(3):
        for one in (plain, step):
            one.accumulate(images + number, targets)
            one.update()
    assert_equal(everything(step, model), everything(plain, wanted))
    if keeps:
        assert places == {name: p.grad.data_ptr() for name, p in model.named_parameters()}


@pytest.mark.parametrize("config", [VIT, HYBRID], ids=["vit", "hybrid"])
def test_recomputed_activations_give_the_same_bits_with_dropout(config) -> None:
    config = replace(config, dropout=0.2, attention_dropout=0.2, stochastic_depth=0.3)
    images, targets = batch_of(config)
    found = []
    for recomputed in (False, True):
        model = network(config)
        if recomputed:
            checkpoint_blocks(model)
        step = step_of(model)
        torch.manual_seed(77)
        step.accumulate(images, targets)
        found.append(gradients(model))
    assert_equal(*found)
    torch.manual_seed(78)
    other = network(config)
    step_of(other).accumulate(images, targets)
    assert any(not torch.equal(gradients(other)[name], found[0][name]) for name in found[0]), "no dropout was drawn"


def test_recomputed_activations_are_not_kept() -> None:
    images, _ = batch_of(VIT)
    kept = []
    for recomputed in (False, True):
        model = network(VIT)
        if recomputed:
            checkpoint_blocks(model)
        sizes: list[int] = []

        def pack(tensor: torch.Tensor, sizes: list[int] = sizes) -> torch.Tensor:
            sizes.append(tensor.nbytes)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model(images)
        kept.append(sum(sizes))
    assert kept[1] < kept[0] / 2


def test_bfloat16_keeps_float32_masters() -> None:
    images, targets = batch_of(VIT)
    seen = []
    model = network(VIT)
    model.head.register_forward_hook(lambda _module, _inputs, output: seen.append(output.dtype))
    step = step_of(model, precision="bfloat16")
    for _ in range(3):
        step.accumulate(images, targets)
        assert {p.grad.dtype for p in model.parameters()} == {torch.float32}
        step.update()
    assert seen == [torch.bfloat16] * 3
    assert {value.dtype for value in everything(step, model).values()} == {torch.float32}
    plain = step_of(network(VIT))
    plain.accumulate(images, targets)
    plain.update()
    rough, exact = step.read(3)[0], plain.read(1)[0]
    assert rough.loss == pytest.approx(exact.loss, abs=0.02)
    assert rough.loss != exact.loss


def test_a_rate_of_zero_moves_no_weight() -> None:
    images, targets = batch_of(VIT)
    model = network(VIT)
    step = step_of(model)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    step.learning_rate.fill_(0.0)
    step.accumulate(images, targets)
    step.update()
    assert_equal({name: p.detach() for name, p in model.named_parameters()}, before)


def test_history_is_read_oldest_first_and_starts_over() -> None:
    images, targets = batch_of(VIT)
    model = network(VIT)
    step = step_of(model, log_every=3)
    losses = []
    for updates in (3, 2, 3, 1):
        for _ in range(updates):
            with torch.no_grad():
                logits = model(images)
            losses.append(nn.functional.cross_entropy(logits, targets, label_smoothing=0.1).item())
            step.accumulate(images, targets)
            step.update()
        assert [happened.loss for happened in step.read(updates)] == pytest.approx(losses[-updates:], abs=1e-6)


def test_an_objective_of_ones_own() -> None:
    images, targets = batch_of(VIT)
    config = TrainConfig(batch_size=BATCH, steps=1, loss="softmax")
    model = network(VIT)
    step = TrainingStep(
        Whole(model, compiled=config.compile),
        build_optimizer(model, SGD),
        lambda logits, _: logits.square().sum(1),
        config,
        SGD,
        None,
    )
    with torch.no_grad():
        wanted = model(images).square().sum(1).mean().item()
    step.accumulate(images, targets)
    step.update()
    assert step.read(1)[0].loss == pytest.approx(wanted, rel=1e-5)
