"""The Polyak average against its formula in float64."""

import numpy as np
import torch
from torch import nn

from vitrail.training.average import Average


def average_of(model: nn.Module, decay: float) -> Average:
    return Average(model.state_dict(), dict(model.named_parameters()), decay)


def test_the_average_is_its_formula() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    average = average_of(model, 0.99)
    wanted = model.weight.detach().double().numpy().copy()
    for step in range(1500):
        with torch.no_grad():
            model.weight.add_(torch.randn(3, 4), alpha=0.1)
        average.update(torch.tensor(average.share(step)))
        decay = min(0.99, (1 + step) / (10 + step))
        wanted = decay * wanted + (1 - decay) * model.weight.detach().double().numpy()
    np.testing.assert_allclose(average.state["weight"].numpy(), wanted, rtol=0, atol=2e-6)


def test_the_first_updates_forget_the_first_weights() -> None:
    average = average_of(nn.Linear(1, 1), 0.9999)
    assert average.share(0) == 0.9
    assert average.share(8) == 0.5
    np.testing.assert_allclose(average.share(10**6), 1e-4, rtol=1e-9)
    assert average_of(nn.Linear(1, 1), 0.05).share(0) == 0.95


def test_the_average_neither_moves_nor_follows_the_weights_by_itself() -> None:
    model = nn.Linear(2, 2)
    average = average_of(model, 0.9)
    before = {name: value.clone() for name, value in average.state.items()}
    with torch.no_grad():
        model.weight.fill_(7)
    assert torch.equal(average.state["weight"], before["weight"])
    kept = model.weight.clone()
    average.update(torch.tensor(0.5))
    assert torch.equal(model.weight, kept)
    torch.testing.assert_close(average.state["weight"], 0.5 * before["weight"] + 3.5)


def test_statistics_are_copied_and_not_averaged() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    average = average_of(model, 0.999)
    for step in range(3):
        model(torch.randn(8, 3) + 5)
        average.update(torch.tensor(average.share(step)))
    for name in ("1.running_mean", "1.running_var", "1.num_batches_tracked"):
        assert torch.equal(average.state[name], model.state_dict()[name])
        assert average.state[name].data_ptr() != model.state_dict()[name].data_ptr()
    assert average.state["1.num_batches_tracked"] == 3
