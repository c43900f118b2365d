"""Networks that learn without labels: what they answer, what they keep, and that they can learn."""

import math
from dataclasses import replace

import pytest
import torch
from tests.tiny_fixtures import _one_thread as _one_thread

from vitrail.config import MaskingConfig, VitConfig, preset
from vitrail.errors import UsageError
from vitrail.models import VisionTransformer
from vitrail.models.masked import build_masked

GOOGLE = preset("google")
NETWORK = VitConfig(
    width=64,
    depth=2,
    num_heads=4,
    mlp_width=128,
    patch_size=(4, 4),
    image_size=(16, 16),
    num_classes=0,
    pool="mean",
    position="sincos_2d",
)
AUTOENCODER = MaskingConfig(
    method="autoencoder", target="pixels", share=0.75, decoder_width=64, decoder_depth=2, decoder_heads=4
)
ALL = {
    "colour": MaskingConfig(),
    "small_patch": MaskingConfig(target="small_patch"),
    "pixels": MaskingConfig(target="pixels"),
    "autoencoder": AUTOENCODER,
}


def made(masking: MaskingConfig, config: VitConfig = NETWORK):
    torch.manual_seed(0)
    return build_masked(config, masking, GOOGLE)


@pytest.mark.parametrize("kind", ["colour", "small_patch"])
def test_the_first_loss_of_colours_is_that_of_512_equal_chances(kind) -> None:
    answer = made(ALL[kind])(torch.randn(6, 3, 16, 16))
    assert answer.shape == (6, 2)
    assert answer[:, 0].tolist() == pytest.approx([math.log(512)] * 6, rel=1e-5)


def test_the_first_loss_of_pixels_is_their_mean_square() -> None:
    images = torch.full((3, 3, 16, 16), 0.5)
    assert made(ALL["pixels"])(images)[:, 0].tolist() == pytest.approx([0.25] * 3)


def test_an_image_of_one_colour_leaves_an_autoencoder_nothing_to_guess_but_zero() -> None:
    network = made(AUTOENCODER)
    torch.nn.init.zeros_(network.decoder.prediction.weight)
    answer = network(torch.full((3, 3, 16, 16), 0.3))
    assert answer[:, 0].tolist() == pytest.approx([0.0] * 3, abs=1e-9)


@pytest.mark.parametrize("kind", ALL)
def test_loss_is_counted_over_hidden_patches_alone(kind) -> None:
    """Patches that are seen are no exercise: their labels may be anything."""
    network = made(ALL[kind])
    seen_and_hidden = torch.randn(4, 3, 16, 16)
    torch.manual_seed(1)
    first = network(seen_and_hidden)
    torch.manual_seed(1)
    assert torch.equal(network(seen_and_hidden), first)
    torch.manual_seed(2)
    assert not torch.equal(network(torch.randn(4, 3, 16, 16)), first)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("pool", ["token", "mean"])
def test_every_weight_learns(kind, pool) -> None:
    network = made(ALL[kind], replace(NETWORK, pool=pool, position="learned_1d"))
    if hasattr(network, "prediction"):
        # A zero kernel would hide the rest from the first gradient.
        torch.nn.init.normal_(network.prediction.weight)
    network(torch.randn(4, 3, 16, 16))[:, 0].sum().backward()
    still = [name for name, weight in network.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert still == []


@pytest.mark.parametrize("kind", ALL)
def test_what_is_kept_is_a_plain_vision_transformer(kind) -> None:
    network, images = made(ALL[kind]), torch.randn(2, 3, 16, 16)
    plain = VisionTransformer(NETWORK)
    kept = {name: value for name, value in network.state_dict().items() if name in network.encoder_names}
    plain.load_state_dict(kept)
    assert torch.equal(plain(images), network.features(images))


def test_the_encoder_of_an_autoencoder_sees_a_quarter_of_the_patches() -> None:
    network, seen = made(AUTOENCODER, replace(NETWORK, pool="token")), []
    network.blocks[0].register_forward_hook(lambda _module, inputs, _output: seen.append(inputs[0].shape))
    network(torch.randn(2, 3, 16, 16))
    # The class token and 4 of 16 patches.
    assert seen == [(2, 5, 64)]


@pytest.mark.parametrize("kind", ALL)
def test_pictures_for_the_eye(kind) -> None:
    network, images = made(ALL[kind]), torch.rand(2, 3, 16, 16) * 2 - 1
    seen = network.see(images)
    assert torch.allclose(seen.original, (images + 1) / 2, atol=1e-6)
    for picture in (seen.corrupted, seen.predicted):
        assert picture.shape == images.shape
        assert picture.min() >= 0 and picture.max() <= 1
    assert not torch.equal(seen.corrupted, seen.original)
    assert not torch.equal(seen.predicted, seen.original)


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        ("colour", 400),
        pytest.param("small_patch", 400, marks=pytest.mark.slow),
        pytest.param("pixels", 2_000, marks=pytest.mark.slow),
        pytest.param("autoencoder", 1_500, marks=pytest.mark.slow),
    ],
)
def test_eight_images_can_be_learnt_by_heart(kind, steps) -> None:
    network = made(ALL[kind])
    # Patches of one colour each, whose middle is far from the edge of a bin.
    generator = torch.Generator().manual_seed(0)
    levels = torch.randint(0, 8, (8, 3, 4, 4), generator=generator)
    images = ((levels + 0.5) / 8 * 2 - 1).repeat_interleave(4, 2).repeat_interleave(4, 3)
    if kind == "autoencoder":
        # Relative to its own mean a patch of one colour has nothing to learn.
        images = images + 0.3 * torch.randn(8, 3, 16, 16, generator=generator)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=0.0)
    first = network(images)[:, 0].mean().item()
    torch.manual_seed(0)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, 2 * (1 - step / steps))
        optimizer.zero_grad()
        network(images)[:, 0].mean().backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    loss, guessed = torch.stack([network(images).mean(dim=0) for _ in range(4)]).mean(dim=0).tolist()
    assert loss < 0.03 * first
    assert guessed > 0.97


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_classes": 3}, "the network has a head"),
        ({"pool": "map"}, "the pool is map"),
        ({"patch_size": (16, 16)}, "the image is one patch"),
    ],
)
def test_networks_that_cannot_learn_this_way(changes, words) -> None:
    with pytest.raises(UsageError, match=words):
        build_masked(replace(NETWORK, **changes), MaskingConfig(), GOOGLE)


@pytest.mark.parametrize("changes", [{"position": "relative"}, {"position_at": "every_layer"}])
def test_an_autoencoder_needs_positions_that_are_added_once(changes) -> None:
    config = replace(NETWORK, **changes)
    build_masked(config, MaskingConfig(), GOOGLE)(torch.randn(1, 3, 16, 16))
    with pytest.raises(UsageError, match="position"):
        build_masked(config, AUTOENCODER, GOOGLE)
