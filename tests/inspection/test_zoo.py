"""Every network of the zoo can be looked at in what makes sense for it."""

import pytest
import torch
from tests.inspection.networks import filled, pictures
from tests.models.test_contract import toy

from vitrail.config import VitConfig
from vitrail.errors import UsageError
from vitrail.inspection import (
    attention_distance,
    attention_rollout,
    embedding_filters,
    logit_lens,
    occlusion,
    position_similarity,
)
from vitrail.models import build
from vitrail.zoo import ZOO


@pytest.mark.slow
@pytest.mark.parametrize("key", ZOO)
def test_every_network_can_be_looked_at(key) -> None:
    config = toy(ZOO[key].config)
    model = filled(build(config))
    images = pictures(model, 2)
    filters = embedding_filters(model)
    assert filters.shape[-1] == config.channels and filters.min() >= 0 and filters.max() <= 1
    assert torch.isfinite(occlusion(model, images)).all()
    if not isinstance(config, VitConfig):
        with pytest.raises(UsageError, match="has no attention"):
            attention_rollout(model, images)
        return
    assert attention_rollout(model, images).shape == (2, *config.grid)
    assert attention_distance(model, images).shape == (config.depth, config.num_heads)
    assert position_similarity(model).shape == (*config.grid, *config.grid)
    torch.testing.assert_close(logit_lens(model, images)[-1], model(images).detach())
