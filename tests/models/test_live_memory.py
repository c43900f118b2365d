"""Memory of every tensor is followed until its last view is gone."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from vitrail.models.live_memory import LiveMemory

KILOBYTE = 256  # numbers in float32


def test_a_view_keeps_what_it_looks_at() -> None:
    weight = torch.ones(KILOBYTE)
    with LiveMemory() as live:
        made = weight * 2
        view = made[:4]
        del made
        assert live.now.total() == 1024
        del view
        assert live.now.total() == 0
    assert live.peak == 1024


def test_what_was_there_before_is_not_counted() -> None:
    weight = torch.ones(KILOBYTE)
    with LiveMemory() as live:
        kept = [weight[:8], weight.view(2, -1).t(), weight.add_(1)]
    assert len(kept) == 3
    assert live.peak == 0


def test_work_in_place_makes_nothing_new() -> None:
    with LiveMemory() as live:
        made = torch.ones(KILOBYTE)
        made.mul_(2).add_(1)
        assert live.now.total() == 1024
        del made
    assert live.now.total() == 0
    assert live.peak == 1024


def test_labels_say_who_holds_what() -> None:
    with LiveMemory() as live:
        live.label = "first"
        first = torch.ones(KILOBYTE)
        live.label = "second"
        second = first + 1
        assert live.now == {"first": 1024, "second": 1024}
        live.relabel(second, "third")
        assert (live.now["second"], live.now["third"]) == (0, 1024)
        del second
        assert live.now.total() == 1024
        live.relabel(torch.nn.Parameter(torch.ones(1)).detach(), "unknown")


def test_tensors_without_data_count_as_if_they_had_some() -> None:
    with FakeTensorMode(), LiveMemory() as live:
        huge = torch.empty(2**40)
        assert live.now.total() == 2**42
        del huge
        assert live.now.total() == 0


def test_what_autograd_keeps_is_alive_until_the_backward_pass() -> None:
    weight = torch.ones(KILOBYTE, requires_grad=True)
    with LiveMemory() as live:
        loss = (weight * weight).exp().sum()
        # The product went; its exponential is what the backward pass needs.
        assert live.now.total() == 1024 + 4
        loss.backward()
        del loss
        assert live.now.total() == 1024
    assert weight.grad is not None
