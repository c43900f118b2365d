"""Which patches are hidden, and what becomes of them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vitrail.config import MaskingConfig
from vitrail.models.masked.corruption import draw_corruption, hidden_patches

CPU = torch.device("cpu")


def test_over_a_million_patches_half_are_hidden_and_those_are_split_80_10_10() -> None:
    torch.manual_seed(0)
    found = draw_corruption(5_120, 196, MaskingConfig(), CPU)
    hidden = found.hidden.sum().item()
    assert found.hidden.numel() > 10**6
    assert hidden / found.hidden.numel() == pytest.approx(0.5, abs=0.003)
    assert found.masked.sum().item() / hidden == pytest.approx(0.8, abs=0.003)
    assert found.swapped.sum().item() / hidden == pytest.approx(0.1, abs=0.003)
    unchanged = found.hidden & ~found.masked & ~found.swapped
    assert unchanged.sum().item() / hidden == pytest.approx(0.1, abs=0.003)


def test_every_patch_is_hidden_as_often_as_another_and_the_draws_of_images_differ() -> None:
    torch.manual_seed(0)
    hidden = draw_corruption(20_000, 16, MaskingConfig(share=0.25), CPU).hidden
    assert (hidden.sum(dim=1) == 4).all()
    # Five standard deviations of a share of 20,000 draws.
    assert hidden.float().mean(dim=0) == pytest.approx(torch.full((16,), 0.25), abs=0.0153)
    assert len(hidden.unique(dim=0)) > 1_000


@given(st.integers(2, 300), st.floats(0.001, 0.999))
def test_one_patch_at_least_is_hidden_and_one_is_left(patches: int, share: float) -> None:
    count = hidden_patches(patches, MaskingConfig(share=share))
    assert 1 <= count <= patches - 1
    assert abs(count - share * patches) <= 1


def test_what_takes_the_place_of_a_patch() -> None:
    torch.manual_seed(0)
    patches, token = torch.randn(64, 9, 4), torch.full((1, 4), 7.0)
    found = draw_corruption(64, 9, MaskingConfig(masked=0.4, swapped=0.4), CPU)
    seen = found.apply(patches, token)
    assert (seen[found.masked] == 7.0).all()
    assert torch.equal(seen[~found.masked & ~found.swapped], patches[~found.masked & ~found.swapped])
    images, places = found.swapped.nonzero(as_tuple=True)
    donors = found.donors[images, places]
    assert len(images) > 100
    assert (donors != places).all()
    assert torch.equal(seen[images, places], patches[images, donors])
    assert not (found.masked & found.swapped).any()
    assert (found.hidden | ~(found.masked | found.swapped)).all()
