"""What is exported computes the network itself, in another form; for any size, as a network that was loaded for it."""

import copy

import pytest
import torch
from tests.exporting.networks import NETWORKS

from vitrail.errors import UsageError
from vitrail.exporting.any_grid import resample
from vitrail.exporting.compare import other_sizes
from vitrail.exporting.network import exportable
from vitrail.models import VisionTransformer, create_model
from vitrail.weights import resize_positions
from vitrail.weights.adapt import with_image_size
from vitrail.weights.checkpoint import from_model, to_model


def assert_same(network, model, images) -> None:
    with torch.inference_mode():
        logits, features = network(images)
        torch.testing.assert_close(features, model.features(images), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(logits, model(images), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_function(name) -> None:
    model = NETWORKS[name]()
    before = copy.deepcopy(model.state_dict())
    images = torch.randn(3, model.config.channels, *model.config.image_size)
    for any_size in (False, True):
        for split in (False, True):
            assert_same(exportable(model, any_size=any_size, split_attention=split), model, images)
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items()), "it is a copy"


@pytest.mark.filterwarnings("ignore::vitrail.errors.Notice")
@pytest.mark.parametrize("name", NETWORKS)
def test_any_size_is_what_loading_at_that_size_gives(name) -> None:
    model = NETWORKS[name]()
    network = exportable(model, any_size=True, split_attention=True)
    height, width = model.config.image_size
    for size in (*other_sizes(model), (height - height // 4, 3 * width)):
        resized = to_model(with_image_size(from_model(model), size, "google"), "memory")
        assert_same(network, resized, torch.randn(2, model.config.channels, *size))


@pytest.mark.parametrize(("old", "new"), [(14, 24), (14, 14), (14, 7), (14, 1), (1, 5), (3, 200)])
def test_resampling_is_the_originals(old, new) -> None:
    table = torch.randn(old, 8)
    expected = resize_positions(table, (old, 1), (new, 1), prefix=0)
    torch.testing.assert_close(resample(table, new), expected, atol=2e-6, rtol=0)
    if old == new:
        assert torch.equal(resample(table, new), table)


def test_positions_that_nobody_knows_how_to_resize() -> None:
    class Mine(torch.nn.Module):
        def forward(self):
            return torch.zeros(17, 32)

    model = VisionTransformer(create_model("vit-test").config, position=Mine())
    with pytest.raises(UsageError, match=r"position embedding of its own.*without any_size"):
        exportable(model, any_size=True, split_attention=True)
