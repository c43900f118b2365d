"""Muon: singular values near 1, every kernel against arithmetic by hand, and where it cannot be had."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.training.several import train_in
from tests.training.test_optimizer import SMALL, plain_step, random_gradients
from tests.training.tiny_run import assert_same_run, config, losses, resumed, started, trained
from torch import Tensor

from vitrail.config import BitConfig, OptimConfig, TrainConfig
from vitrail.errors import UsageError
from vitrail.models import build
from vitrail.runtime.processes import Processes
from vitrail.training.events import Event, Trained
from vitrail.training.muon import orthogonal
from vitrail.training.optimizer import build_optimizer, moments
from vitrail.training.spread import Placement, kind_of_spread
from vitrail.training.stopping import Stopped

MUON = OptimConfig(optimizer="muon", lr=0.05, weight_decay=0.2, momentum=0.8, layer_decay=0.7)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 3), st.integers(0, 2**32))
def test_singular_values_come_near_one_and_directions_stay(rows: int, columns: int, count: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    # Well conditioned, because a value of nearly nothing stays small: five products cannot lift it.
    u = torch.linalg.qr(torch.randn(count, max(rows, columns), min(rows, columns), generator=generator)).Q
    v = torch.linalg.qr(torch.randn(count, min(rows, columns), min(rows, columns), generator=generator)).Q
    values = 0.2 + torch.rand(count, 1, min(rows, columns), generator=generator)
    matrices = (u * values) @ v.mT
    matrices = matrices if rows > columns else matrices.mT
    found = orthogonal(matrices * 1000)
    assert found.shape == matrices.shape
    assert found.is_contiguous()
    kept = torch.linalg.svdvals(found)
    assert kept.min() > 0.6
    assert kept.max() < 1.3
    along = (u * (u.mT @ (found if rows > columns else found.mT) @ v).diagonal(dim1=1, dim2=2)[:, None]) @ v.mT
    torch.testing.assert_close(along if rows > columns else along.mT, found, rtol=0, atol=1e-4)


def test_of_nothing_comes_nothing() -> None:
    assert not orthogonal(torch.zeros(2, 4, 8)).any()


def muon_by_hand(weight: Tensor, gradients: list[Tensor], rate: float, decay: float) -> Tensor:
    """One matrix at a time, in double precision."""
    momentum = torch.zeros_like(weight)
    for gradient in gradients:
        momentum = 0.8 * momentum + 0.2 * gradient
        x = 0.2 * gradient + 0.8 * momentum
        x = x / x.norm()
        for _ in range(5):
            square = x @ x.T
            x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
        weight = weight - rate * (0.4 * max(weight.shape) ** 0.5 * x + decay * weight)
    return weight


def test_every_kernel_of_a_block_against_arithmetic_by_hand() -> None:
    torch.manual_seed(1)
    model = build(SMALL)
    step = plain_step(model, MUON, log_every=4)
    first = {name: weight.detach().double().clone() for name, weight in model.named_parameters()}
    seen: dict[str, list[Tensor]] = {name: [] for name in first}
    for number in range(4):
        random_gradients(model, number)
        for name, weight in model.named_parameters():
            assert weight.grad is not None
            seen[name].append(weight.grad.double().clone())
        step.learning_rate.fill_(0.05)
        step.update()
    kernels = [name for name in first if name.startswith("blocks.") and first[name].ndim == 2]
    assert len(kernels) == 4 * SMALL.depth
    for name in kernels:
        rate = 0.05 * 0.7 ** (3 - int(name.split(".")[1]))
        # Queries, keys and values lie joined in one tensor, and are three matrices.
        pieces = 3 if "qkv" in name else 1
        gradients = zip(*(gradient.chunk(pieces) for gradient in seen[name]), strict=True)
        wanted = [
            muon_by_hand(weight, list(history), rate, 0.2)
            for weight, history in zip(first[name].chunk(pieces), gradients, strict=True)
        ]
        np.testing.assert_allclose(
            model.get_parameter(name).detach(), torch.cat(wanted), rtol=0, atol=2e-5, err_msg=name
        )


def test_everything_else_is_moved_by_adam() -> None:
    moved = []
    for optimizer in ("muon", "adam"):
        torch.manual_seed(1)
        model = build(SMALL)
        step = plain_step(model, OptimConfig(optimizer=optimizer, lr=0.05, weight_decay=0.2))
        for number in range(3):
            random_gradients(model, number)
            step.learning_rate.fill_(0.05)
            step.update()
        moved.append(dict(model.named_parameters()))
    same = {name for name in moved[0] if torch.equal(moved[0][name], moved[1][name])}
    assert same == {name for name in moved[0] if not name.startswith("blocks.") or moved[0][name].ndim == 1}


def test_what_it_remembers_is_there_before_the_first_step_and_stays_in_place() -> None:
    model = build(SMALL)
    made = build_optimizer(model, MUON)
    weights = dict(model.named_parameters())
    found = moments(made, weights)
    by_muon = {name for name in weights if name.startswith("blocks.") and weights[name].ndim == 2}
    adam = {f"{kind}/{name}" for kind in ("step", "exp_avg", "exp_avg_sq") for name in weights.keys() - by_muon}
    assert set(found) == adam | {f"momentum_buffer/{name}" for name in by_muon}
    random_gradients(model, 0)
    made.step()
    after = moments(made, weights)
    assert {name: value.data_ptr() for name, value in after.items()} == {
        name: value.data_ptr() for name, value in found.items()
    }
    assert all(value.any() for value in after.values())


def test_a_run_that_was_stopped_goes_on_to_the_last_bit(images: Path, tmp_path: Path) -> None:
    settings = config(images, optim={"optimizer": "muon"}, average=0.9, steps=12)
    trained(started(settings, tmp_path / "whole"), tmp_path / "whole")

    def stop(event: Event) -> None:
        if isinstance(event, Trained) and event.step == 7:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped):
        trained(started(settings, tmp_path / "run"), tmp_path / "run", stop)
    assert losses(tmp_path / "run")[-1][0] < 12
    trained(resumed(tmp_path / "run"), tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
def test_two_processes_make_the_same_run(images: Path, tmp_path: Path) -> None:
    settings = config(images, optim={"optimizer": "muon"}, batch_size=32, steps=20)
    trained(started(settings, tmp_path / "one"), tmp_path / "one")
    train_in(2, tmp_path / "two", settings)
    np.testing.assert_allclose(losses(tmp_path / "two"), losses(tmp_path / "one"), rtol=0, atol=1e-5)


def test_a_resnet_is_refused() -> None:
    network = BitConfig(blocks=(1,), width=32, image_size=32, num_classes=5)
    with pytest.raises(UsageError, match="adam or sgd for a network that is no Vision Transformer"):
        build_optimizer(build(network), MUON)


def test_parts_of_matrices_are_refused_and_not_chosen() -> None:
    train = TrainConfig(batch_size=8, steps=1, loss="softmax")
    several = Processes(rank=0, ranks=2, control=object())  # type: ignore[arg-type]
    spread = [build(SMALL), train, MUON, torch.device("cpu")]
    with pytest.raises(UsageError, match="parallel=ddp"):
        kind_of_spread(*spread, Placement(processes=several, parallel="fsdp"))
    assert kind_of_spread(*spread, Placement(processes=several)).has_all


def test_a_state_dict_that_is_loaded_stays_one_optimiser() -> None:
    model = build(SMALL)
    made = build_optimizer(model, MUON)
    made.load_state_dict(made.state_dict())
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    for group in made.param_groups:
        group["lr"] = torch.zeros(())
    random_gradients(model, 0)
    made.step()
    assert [name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])] == []
