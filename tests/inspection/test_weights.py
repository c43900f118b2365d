"""Filters and position similarity: what is read off the weights alone."""

import numpy as np
import pytest
import torch
from tests.inspection.networks import filled, network

import vitrail
from vitrail.config import ConvLayerConfig, ConvStemConfig, ResNetConfig
from vitrail.errors import UsageError
from vitrail.inspection import embedding_filters, position_similarity, principal_filters


def test_the_first_components_are_those_of_the_covariance() -> None:
    model = network()
    vectors = model.embedding.projection.weight.detach().double().numpy().reshape(24, -1)
    values, directions = np.linalg.eigh(np.cov(vectors.T))
    found = principal_filters(model, 5)
    assert found.components.shape == (5, 4, 4, 3)
    np.testing.assert_allclose(found.shares, values[::-1][:5] / values.sum(), rtol=1e-5)
    for place, component in enumerate(found.components.double().numpy()):
        wanted = directions[:, -1 - place].reshape(3, 4, 4).transpose(1, 2, 0)
        # The sign is free, the scale is from 0 to 1.
        both = [(one - one.min()) / (one.max() - one.min()) for one in (wanted, -wanted)]
        assert min(np.abs(component - one).max() for one in both) < 1e-5


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (network(patch_size=(2, 5)), (23, 2, 5, 3)),
        (network(channels=1), (16, 4, 4, 1)),
        (network(width=48, num_heads=4), (28, 4, 4, 3)),
        (network(backbone=ResNetConfig(blocks=(1,), width=32), patch_size=1), (28, 7, 7, 3)),
        (network(backbone=ConvStemConfig(layers=(ConvLayerConfig(channels=40),)), patch_size=2), (27, 3, 3, 3)),
        (filled(vitrail.create_model("bit-r50x1", width=32, blocks=(1, 1, 1, 1), num_classes=2)), (28, 7, 7, 3)),
    ],
)
def test_every_network_has_filters_that_read_pixels(model, shape) -> None:
    found = embedding_filters(model)
    assert found.shape == shape
    torch.testing.assert_close(found.flatten(1).min(dim=1).values, torch.zeros(shape[0]))
    torch.testing.assert_close(found.flatten(1).max(dim=1).values, torch.ones(shape[0]))


def test_filters_of_a_network_without_any_are_no_crash() -> None:
    model = network()
    torch.nn.init.zeros_(model.embedding.projection.weight)
    assert torch.isfinite(embedding_filters(model)).all()
    with pytest.raises(UsageError, match="components is 0"):
        embedding_filters(model, 0)
    with pytest.raises(UsageError, match="Linear is no network of ours"):
        embedding_filters(torch.nn.Linear(2, 2))


@pytest.mark.parametrize("registers", [0, 2])
@pytest.mark.parametrize("position", ["learned_1d", "learned_2d", "sincos_2d", "sinusoid_1d"])
def test_similarity_is_the_cosine_of_two_rows(position, registers) -> None:
    model = network(position=position, registers=registers)
    found = position_similarity(model)
    rows = model.positions[0]().detach().double().numpy()[1 + registers :].reshape(3, 5, 24)
    assert found.shape == (3, 5, 3, 5)
    for here, there in [((0, 0), (2, 4)), ((1, 3), (1, 2)), ((2, 1), (2, 1))]:
        a, b = rows[here], rows[there]
        assert float(found[here][there]) == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-6)


def test_each_layer_may_have_a_table_of_its_own() -> None:
    model = network(position_at="every_layer")
    assert not torch.equal(position_similarity(model, 0), position_similarity(model, 1))
    assert torch.equal(position_similarity(model, -1), position_similarity(model, 2))
    shared = network(position_at="every_layer_shared")
    assert torch.equal(position_similarity(shared, 0), position_similarity(shared, 2))


@pytest.mark.parametrize(
    ("position", "told"), [("relative", "the positions of this network are relative"), ("none", "has no position embe")]
)
def test_a_network_without_a_table_says_so(position, told) -> None:
    with pytest.raises(UsageError, match=told):
        position_similarity(network(position=position))
