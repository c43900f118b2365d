"""What we say of published weights is what the library that published them says."""

import pytest
import torch

import vitrail
from vitrail.zoo import ZOO

PUBLISHED = {key: row.published for key, row in ZOO.items() if row.published}


@pytest.mark.parametrize("key", PUBLISHED)
def test_hub_licence_and_preprocessing_are_timms(key) -> None:
    from timm.models import get_pretrained_cfg

    ours = PUBLISHED[key]
    theirs = get_pretrained_cfg(ours.hub.removeprefix("timm/"))
    assert theirs is not None
    assert theirs.hf_hub_id == ours.hub
    assert theirs.license == ours.licence
    assert theirs.input_size == (3, ours.image_size, ours.image_size)
    assert theirs.num_classes == ours.num_classes
    assert (theirs.mean, theirs.std) == (ours.preprocessing.mean, ours.preprocessing.std)
    assert (theirs.crop_pct, theirs.interpolation) == (ours.preprocessing.crop, ours.preprocessing.interpolation)


@pytest.mark.parametrize("key", PUBLISHED)
def test_sizes_are_those_of_the_float32_weights(key) -> None:
    ours = PUBLISHED[key]
    with torch.device("meta"):
        model = vitrail.create_model(key, num_classes=ours.num_classes, image_size=ours.image_size)
    bytes_ = 4 * sum(parameter.numel() for parameter in model.parameters())
    assert round(bytes_ / 1e6) == ours.megabytes
