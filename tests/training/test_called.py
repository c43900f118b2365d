"""Any method of a network can be called with other weights, and its own stay as they are."""

import torch
from tests.training.tiny_run import PLAIN

from vitrail.models import build
from vitrail.training.step import called_with


def test_it_answers_as_a_network_with_those_weights_does() -> None:
    torch.manual_seed(0)
    network, other, images = build(PLAIN).eval(), build(PLAIN).eval(), torch.randn(2, 3, *PLAIN.image_size)
    before = network.features(images)
    found = called_with(network.features, dict(other.named_parameters()), images)
    assert torch.equal(found, other.features(images))
    assert not torch.equal(found, before)
    assert torch.equal(network.features(images), before)
