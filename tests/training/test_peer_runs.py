"""Networks of other packages through our loop: statistics of BatchNorm are part of everything that is kept."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.training.test_faults_memory import shrink
from tests.training.test_resume import Crash, crash_at
from tests.training.tiny_run import CPU, STRONG, assert_same_run, config, events, resumed, started, trained

from vitrail import load_model
from vitrail.config import OptimConfig, PeerConfig, RunConfig
from vitrail.errors import UsageError
from vitrail.models import build
from vitrail.training import checkpoint as checkpoints
from vitrail.training.events import Evaluating, Stepped
from vitrail.training.folder import RunFolder, read_run
from vitrail.training.memory import OutOfMemory, first_micro_batch
from vitrail.training.optimizer import build_optimizer, learning
from vitrail.training.start import first_model

SMALL = PeerConfig(
    package="timm", name="test_efficientnet", image_size=(32, 32), num_classes=4, dropout=0.2, stochastic_depth=0.2
)
RESNET = PeerConfig(package="torchvision", name="resnet18", image_size=(32, 32), num_classes=4)
SWIN = PeerConfig(package="timm", name="swin_tiny_patch4_window7_224", image_size=(32, 32), num_classes=4)


def peer_run(images: Path, model: PeerConfig = SMALL, **train) -> RunConfig:
    return config(images, model=model, augment=STRONG, batch_size=8, micro_batch=4, **train)


@pytest.mark.parametrize(
    "model", [SMALL, pytest.param(RESNET, marks=pytest.mark.slow), pytest.param(SWIN, marks=pytest.mark.slow)]
)
def test_going_on_is_exact(model, images, tmp_path) -> None:
    settings = peer_run(images, model, steps=8, average=0.9)
    unbroken = tmp_path / "unbroken"
    trained(started(settings, unbroken), unbroken)
    folder = tmp_path / "run"
    session = started(settings, folder)
    for moment in ((Stepped, 3), (Evaluating, 6)):
        with pytest.raises(Crash):
            trained(session, folder, crash_at(*moment))
        session = resumed(folder)
    trained(session, folder)
    assert_same_run(folder, unbroken)
    if model is not SWIN:
        found = checkpoints.newest(folder / "checkpoints")
        for group in ("model", "average"):
            counts = [value for name, value in found.tensors[group].items() if name.endswith("num_batches_tracked")]
            # Two pieces of a batch are seen in each step.
            assert counts and all(count == 16 for count in counts)


def test_it_learns_and_the_model_that_is_kept_says_the_same(images, tmp_path) -> None:
    settings = replace(peer_run(images, steps=30, keep="last", optim={"lr": 1e-2}), augment=config(images).augment)
    session = trained(started(settings, tmp_path / "run"), tmp_path / "run")
    found = events(tmp_path / "run", "evaluated")
    assert found[-1]["loss"] < 0.7 * found[0]["loss"]
    kept = load_model(tmp_path / "run")
    assert kept.config == SMALL and kept.labels == ("ant", "bee", "cow", "dog")
    assert torch.equal(kept.body.bn1.running_mean, session.model.body.bn1.running_mean)
    assert kept.body.bn1.running_mean.abs().max() > 0
    session.model.eval()
    pixels = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(kept(pixels), session.model(pixels))
    assert "timm" in read_run(RunFolder(tmp_path / "run")).versions


def test_another_task_starts_from_its_weights_with_a_zero_head(images, tmp_path) -> None:
    trained(started(peer_run(images, steps=2), tmp_path / "run"), tmp_path / "run")
    settings = replace(peer_run(images, replace(SMALL, num_classes=2), steps=2), start=str(tmp_path / "run"))
    again = first_model(settings, ("cat", "dog"))
    kept = load_model(tmp_path / "run")
    assert not again.head.weight.any() and again.head.weight.shape[0] == 2
    assert torch.equal(again.body.conv_stem.weight, kept.body.conv_stem.weight)
    assert torch.equal(again.body.bn1.running_var, kept.body.bn1.running_var)


def test_a_frozen_body_keeps_its_statistics_to_the_last_bit(images, tmp_path) -> None:
    session = started(peer_run(images, steps=2, optim={"freeze": -1}), tmp_path / "run")
    before = {name: value.clone() for name, value in session.model.state_dict().items()}
    trained(session, tmp_path / "run")
    after = session.model.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"head.weight", "head.bias"}


def test_kernels_alone_are_decayed() -> None:
    model = build(PeerConfig(package="timm", name="test_vit", image_size=(32, 32), num_classes=4))
    places = learning(model, OptimConfig(optimizer="adam", lr=0.1))
    kept = {place.name for place in places if not place.is_kernel}
    assert {"body.pos_embed", "body.cls_token", "head.bias", "body.norm.weight"} <= kept
    assert {"head.weight", "body.patch_embed.proj.weight", "body.blocks.0.attn.qkv.weight"}.isdisjoint(kept)
    # A table of one number for each channel is written as a map in some packages.
    convnext = build(PeerConfig(package="torchvision", name="convnext_tiny", num_classes=4))
    assert {place.name for place in learning(convnext, OptimConfig(optimizer="sgd", lr=0.1)) if place.is_kernel} == {
        name for name, part in convnext.named_parameters() if part.ndim in (2, 4) and name.endswith("weight")
    }


def test_what_needs_our_blocks_is_refused(images, tmp_path) -> None:
    model = build(SMALL)
    with pytest.raises(UsageError, match="muon; wanted adam or sgd"):
        build_optimizer(model, OptimConfig(optimizer="muon", lr=0.1))
    with pytest.raises(UsageError, match="freeze is 1"):
        learning(model, OptimConfig(optimizer="sgd", lr=0.1, freeze=1))
    with pytest.raises(UsageError, match="checkpoint_activations"):
        started(peer_run(images, steps=2, checkpoint_activations=True), tmp_path / "run")
    with pytest.raises(UsageError, match="at least 2 for each"):
        started(
            replace(peer_run(images, steps=2), train=replace(peer_run(images).train, batch_size=1)), tmp_path / "one"
        )


def test_memory_that_runs_out_leaves_two_images_for_a_batch_norm(images, tmp_path) -> None:
    """At 32 pixels the last ones see a single cell, of which one image has no variance."""
    with pytest.raises(ValueError, match="more than 1 value"):
        build(SMALL).train()(torch.zeros(1, 3, 32, 32))
    plain = replace(peer_run(images, steps=2), augment=config(images).augment)
    session = started(plain, tmp_path / "run")
    shrink(session, fits=1)
    with pytest.raises(OutOfMemory, match="memory ran out with 2 images at a time"):
        trained(session, tmp_path / "run")
    assert [event["micro_batch"] for event in events(tmp_path / "run", "micro_batch")] == [2]
    session = resumed(tmp_path / "run")
    shrink(session, fits=2)
    trained(session, tmp_path / "run")
    assert [event["step"] for event in events(tmp_path / "run", "train")] == [1, 2]


def test_as_many_images_at_a_time_as_its_activations_leave_room_for(images, monkeypatch) -> None:
    train = replace(peer_run(images).train, batch_size=64, micro_batch=None)
    assert first_micro_batch(SMALL, train, CPU, 2) == 64
    monkeypatch.setattr("vitrail.training.memory._free_bytes", lambda _device: 4e6)
    assert 2 <= first_micro_batch(SMALL, train, CPU, 2) < 16
