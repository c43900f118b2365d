"""Mixup and CutMix: the law of the shares, the pixels that they take, and targets that say so."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, kstest

from vitrail.config import AugmentConfig
from vitrail.data.transforms.mixing import Mix, draw_mix, mix_images

STEPS = 1500


def mixes(steps: int = STEPS, seed: int = 0, **augment) -> list[Mix]:
    drawn = [draw_mix(AugmentConfig(**augment), seed, step) for step in range(steps)]
    assert all(isinstance(mix, Mix) for mix in drawn)
    return drawn  # type: ignore[return-value]


def noise(batch: int = 5, channels: int = 3, height: int = 12, width: int = 16) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(size=(batch, channels, height, width)).astype(np.float32))


@pytest.mark.parametrize("power", [0.1, 0.2, 0.5, 0.8, 1.0, 4.0])
def test_mixup_keeps_the_larger_share_of_a_beta_law(power) -> None:
    keep = np.array([mix.keep for mix in mixes(mixup=power)])
    assert keep.min() >= 0.5
    assert keep.max() <= 1
    law = beta(power, power)
    assert kstest(keep, lambda value: 2 * law.cdf(value) - 1).pvalue > 1e-3


@pytest.mark.parametrize("power", [0.2, 1.0, 3.0])
def test_cutmix_draws_its_share_from_a_beta_law_and_its_centre_anywhere(power) -> None:
    drawn = mixes(cutmix=power)
    assert kstest([mix.keep for mix in drawn], beta(power, power).cdf).pvalue > 1e-3
    centres = np.array([mix.centre for mix in drawn])
    for axis in (0, 1):
        assert kstest(centres[:, axis], "uniform").pvalue > 1e-3
    assert np.abs(np.corrcoef(np.c_[[mix.keep for mix in drawn], centres].T) - np.eye(3)).max() < 0.1


def test_without_either_there_is_no_mix() -> None:
    assert draw_mix(AugmentConfig(), 0, 0) is None


def test_alone_each_is_always_taken_and_together_half_the_time() -> None:
    assert all(mix.centre is None for mix in mixes(100, mixup=0.2))
    assert all(mix.centre is not None for mix in mixes(100, cutmix=1.0))
    both = mixes(mixup=0.2, cutmix=1.0)
    share = np.mean([mix.centre is not None for mix in both])
    assert abs(share - 0.5) < 4 * np.sqrt(0.25 / STEPS)
    law = beta(0.2, 0.2)
    assert kstest([mix.keep for mix in both if mix.centre], beta(1, 1).cdf).pvalue > 1e-3
    assert kstest([mix.keep for mix in both if not mix.centre], lambda value: 2 * law.cdf(value) - 1).pvalue > 1e-3


def test_the_same_step_is_the_same_mix() -> None:
    assert mixes(20, mixup=0.2, cutmix=1.0) == mixes(20, mixup=0.2, cutmix=1.0)
    augment = AugmentConfig(mixup=0.2, cutmix=1.0)
    assert draw_mix(augment, 0, 17) == mixes(18, mixup=0.2, cutmix=1.0)[17]
    assert len({mix.keep for mix in mixes(50, mixup=0.5)}) == 50
    assert mixes(20, seed=1, mixup=0.5) != mixes(20, seed=0, mixup=0.5)


@given(keep=st.floats(0.5, 1), batch=st.integers(1, 6))
def test_mixup_is_a_weighted_mean_with_the_image_before(keep, batch) -> None:
    images, targets = noise(batch), torch.arange(batch) % 3
    mixed, shares = mix_images(images, targets, Mix(keep), 3)
    for row in range(batch):
        before = (row - 1) % batch
        expected = keep * images[row] + (1 - keep) * images[before]
        assert (mixed[row] - expected).abs().max() < 1e-5
        wanted = np.zeros(3)
        wanted[int(targets[row])] += keep
        wanted[int(targets[before])] += 1 - keep
        assert np.abs(shares[row].numpy() - wanted).max() < 1e-6


centres = st.tuples(st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True))


@given(keep=st.floats(0, 1), centre=centres, size=st.tuples(st.integers(1, 20), st.integers(1, 20)))
def test_cutmix_pastes_a_box_and_counts_its_pixels(keep, centre, size) -> None:
    height, width = size
    # One value per image, so that each pixel tells where it came from.
    images = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 2, height, width)
    mixed, shares = mix_images(images, torch.arange(4), Mix(keep, centre), 4)
    for row in range(4):
        other = mixed[row, 0] == (row - 1) % 4
        assert ((mixed[row, 0] == row) | other).all()
        assert torch.equal(mixed[row, 0], mixed[row, 1])
        pasted = int(other.sum())
        wanted = torch.zeros(4)
        wanted[row], wanted[(row - 1) % 4] = 1 - pasted / (height * width), pasted / (height * width)
        assert (shares[row] - wanted).abs().max() < 1e-6
        if pasted:
            rows, columns = np.nonzero(other.numpy())
            assert pasted == (np.ptp(rows) + 1) * (np.ptp(columns) + 1)


@given(keep=st.floats(0, 1), centre=centres)
def test_the_box_of_cutmix_is_where_torchvision_would_put_it(keep, centre) -> None:
    height, width = 32, 48
    images = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1).expand(2, 1, height, width)
    mixed, _ = mix_images(images, torch.zeros(2, dtype=torch.int64), Mix(keep, centre), 1)
    reach = 0.5 * (1 - keep) ** 0.5
    tall, wide, y, x = int(reach * height), int(reach * width), int(centre[0] * height), int(centre[1] * width)
    expected = np.zeros((height, width))
    expected[max(y - tall, 0) : y + tall, max(x - wide, 0) : x + wide] = 1
    assert (mixed[0, 0].numpy() == expected).all()


def test_the_average_share_of_cutmix_is_near_the_one_that_was_drawn() -> None:
    images = torch.arange(2.0).view(2, 1, 1, 1).expand(2, 1, 64, 64)
    inside = Mix(0.75, (0.5, 0.5))
    _, shares = mix_images(images, torch.arange(2), inside, 2)
    assert shares[0].tolist() == [0.75, 0.25]
    _, shares = mix_images(images, torch.arange(2), Mix(0.75, (0.0, 0.0)), 2)
    assert shares[0].tolist() == [1 - 0.25 / 4, 0.25 / 4]


@pytest.mark.parametrize("mix", [Mix(0.7), Mix(0.6, (0.4, 0.6))])
def test_several_classes_per_image(mix) -> None:
    targets = torch.tensor([[1.0, 1, 0], [0, 0, 0], [0, 1, 1], [1, 1, 1]])
    mixed, shares = mix_images(noise(4), targets, mix, 3)
    # The second image has no class: all it has comes from the two of the first.
    keep = 1 - float(shares[1].sum()) / 2
    assert mix.centre or keep == pytest.approx(mix.keep)
    assert 0 < keep < 1
    assert (shares - (keep * targets + (1 - keep) * targets.roll(1, 0))).abs().max() < 1e-6
    assert mixed.shape == (4, 3, 12, 16)


@pytest.mark.parametrize("mix", [Mix(0.7), Mix(1.0), Mix(0.6, (0.4, 0.6)), Mix(0.0, (0.5, 0.5)), Mix(1.0, (0.5, 0.5))])
def test_shares_sum_to_one_and_the_arguments_stay_as_they_were(mix) -> None:
    images, targets = noise(), torch.tensor([4, 0, 0, 2, 1])
    before, classes = images.clone(), targets.clone()
    mixed, shares = mix_images(images, targets, mix, 5)
    assert shares.dtype == torch.float32
    assert mixed.dtype == torch.float32
    assert (shares.sum(1) - 1).abs().max() < 1e-6
    assert torch.equal(images, before)
    assert torch.equal(targets, classes)
    if mix.keep == 1:
        assert torch.equal(mixed, images)
        assert torch.equal(shares, torch.nn.functional.one_hot(targets, 5).float())
    else:
        assert not torch.equal(mixed, images)


def test_a_batch_of_one_is_mixed_with_itself() -> None:
    for mix in (Mix(0.7), Mix(0.5, (0.5, 0.5))):
        images = noise(1)
        mixed, shares = mix_images(images, torch.tensor([1]), mix, 2)
        assert torch.allclose(mixed, images)
        assert torch.allclose(shares, torch.tensor([[0.0, 1.0]]))


def test_a_share_of_the_batches_is_mixed_and_the_others_are_as_they_were() -> None:
    some, all_of_them = (AugmentConfig(mixup=0.8, cutmix=1.0, mixing=share) for share in (0.25, 1.0))
    drawn = [draw_mix(some, 3, step) for step in range(2000)]
    plain = [step for step, mix in enumerate(drawn) if mix == Mix(1.0)]
    assert 0.7 < len(plain) / len(drawn) < 0.8
    for step in set(range(200)) - set(plain):
        assert drawn[step] == draw_mix(all_of_them, 3, step)
    images, targets = torch.rand(4, 3, 5, 5), torch.tensor([0, 1, 2, 1])
    mixed, shares = mix_images(images, targets, Mix(1.0), 3)
    assert torch.equal(mixed, images)
    assert torch.equal(shares, torch.eye(3)[targets])
