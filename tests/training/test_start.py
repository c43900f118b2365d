"""Beginning a run: first weights as a function of the seed, other weights to start from, what is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.training.tiny_run import CLASSES, CPU, PLAIN, config, quietly, resumed, started, trained
from torch import nn

import vitrail
from vitrail.config import DataConfig, RunConfig
from vitrail.data import Source
from vitrail.errors import DataError, DiskError, UsageError
from vitrail.training import checkpoint as checkpoints
from vitrail.training.events import Evaluated, Event, Saved
from vitrail.training.folder import RunFolder, read_run
from vitrail.training.sources import open_run_data
from vitrail.training.start import begin, first_model, set_determinism
from vitrail.weights.fingerprint import fingerprint
from vitrail.weights.load import read_checkpoint


def weights(settings: RunConfig, classes: tuple[str, ...] = CLASSES) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in first_model(settings, classes).state_dict().items()}


def differing(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> set[str]:
    assert set(first) == set(second)
    return {name for name in first if not torch.equal(first[name], second[name])}


def seeded(images: Path, seed: int) -> RunConfig:
    return config(images, seed=seed)


@pytest.fixture(autouse=True)
def _no_determinism_left_behind():
    yield
    torch.use_deterministic_algorithms(False)


def test_the_same_seed_gives_the_same_weights_whatever_happened_before(images) -> None:
    first = weights(seeded(images, 3))
    torch.manual_seed(99)
    torch.randn(1000)
    before = torch.random.get_rng_state()
    assert differing(weights(seeded(images, 3)), first) == set()
    # And the generator of others is left where it was.
    assert torch.equal(torch.random.get_rng_state(), before)


def test_another_seed_gives_other_weights(images) -> None:
    changed = differing(weights(seeded(images, 3)), weights(seeded(images, 4)))
    # Biases, norms and the head begin at constants.
    kernels = {name for name, value in weights(seeded(images, 3)).items() if value.ndim > 1 and "head" not in name}
    assert changed >= kernels


def test_a_run_is_described_before_its_first_step(images, tmp_path) -> None:
    session = started(config(images, epochs=2, batch_size=8), tmp_path / "run")
    record = read_run(RunFolder(tmp_path / "run"))
    assert record.config == session.config
    assert record.classes == CLASSES
    assert record.counts == {"train": len(session.data.train), "held-out": len(session.data.held_out)}
    assert record.digest == session.digest
    steps = -(-2 * len(session.data.train) // 8)
    assert (session.progress.step, session.progress.steps, session.progress.micro_batch) == (0, steps, 8)
    assert session.model.training


def test_an_existing_run_is_refused_and_untouched(images, tmp_path) -> None:
    folder = tmp_path / "run"
    started(config(images), folder)
    before = (folder / "config.json").read_bytes()
    with pytest.raises(UsageError, match="there is a run already") as caught:
        started(config(images, seed=5), folder)
    assert f"vitrail train --resume {folder}" in str(caught.value)
    assert (folder / "config.json").read_bytes() == before


def test_a_disk_without_room_is_told_before_anything_is_written(images, tmp_path, monkeypatch) -> None:
    asked = []

    def full(folder: Path, needed: int) -> None:
        asked.append(needed)
        raise DiskError("no room", where=str(folder))

    monkeypatch.setattr(checkpoints, "ensure_space", full)
    with pytest.raises(DiskError):
        started(config(images, average=0.9), tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()
    numbers = sum(parameter.numel() for parameter in first_model(config(images), CLASSES).parameters())
    # Weights, two moments and the average, twice.
    assert asked[0] >= 2 * 4 * 4 * numbers


@pytest.fixture
def saved(tmp_path) -> Path:
    """A model folder whose every weight is told apart, with class names."""
    torch.manual_seed(8)
    model = vitrail.models.build(PLAIN)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.1)
    model.labels = CLASSES
    vitrail.save_model(model, tmp_path / "saved")
    return tmp_path / "saved"


def from_saved(images: Path, saved: Path, **changes) -> RunConfig:
    return replace(config(images, model=replace(PLAIN, **changes)), start=str(saved))


def test_the_same_classes_keep_the_head(images, saved) -> None:
    found = weights(from_saved(images, saved))
    assert differing(found, vitrail.load_model(saved).state_dict()) == set()


@pytest.mark.parametrize("labels", [("ant", "bee", "cow", "elk"), ("bee", "ant", "cow", "dog")], ids=["other", "order"])
def test_as_many_but_other_classes_drop_the_head(labels, images, saved) -> None:
    found = weights(from_saved(images, saved), labels)
    assert differing(found, vitrail.load_model(saved).state_dict()) == {"head.weight", "head.bias"}
    assert not found["head.weight"].any()
    assert not found["head.bias"].any()


def test_a_head_without_names_is_dropped(images, tmp_path) -> None:
    model = vitrail.models.build(PLAIN)
    nn.init.ones_(model.head.weight)
    vitrail.save_model(model, tmp_path / "nameless")
    assert not weights(from_saved(images, tmp_path / "nameless"))["head.weight"].any()


def test_more_classes_and_another_image_size(images, saved) -> None:
    classes = (*CLASSES, "elk", "fox")
    found = weights(from_saved(images, saved, num_classes=6, image_size=(16, 12)), classes)
    before = vitrail.load_model(saved).state_dict()
    assert found["head.weight"].shape == (6, 32)
    assert not found["head.weight"].any()
    (name,) = [name for name in found if name.startswith("positions")]
    wanted = vitrail.weights.resize_positions(before[name], (2, 2), (4, 3), prefix=0, mode="google")
    torch.testing.assert_close(found[name], wanted)
    others = {name for name in before if not name.startswith(("head", "positions"))}
    assert [name for name in others if not torch.equal(found[name], before[name])] == []


def test_dropout_of_the_recipe_is_taken_over(images, saved) -> None:
    model = first_model(from_saved(images, saved, dropout=0.25), CLASSES)
    assert {module.p for module in model.modules() if isinstance(module, nn.Dropout)} == {0.25}


def test_another_network_than_the_config_says_is_named(images, saved) -> None:
    with pytest.raises(DataError, match=r"blocks\.2") as caught:
        weights(from_saved(images, saved, depth=3))
    assert str(saved) in str(caught.value)


def test_weights_that_are_not_there(images, tmp_path) -> None:
    with pytest.raises(DataError, match="no such file"):
        weights(from_saved(images, tmp_path / "nothing"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_start_in_half_precision_is_trained_in_float32(dtype, images, saved) -> None:
    model = vitrail.load_model(saved).to(dtype)
    vitrail.save_model(model, saved.parent / "half")
    assert {value.dtype for value in weights(from_saved(images, saved.parent / "half")).values()} == {torch.float32}


@pytest.mark.parametrize("freeze", [-1, 1, 2])
def test_what_is_frozen_is_the_same_after_a_run(freeze, images, saved, tmp_path) -> None:
    settings = from_saved(images, saved)
    settings = replace(settings, optim=replace(settings.optim, freeze=freeze))
    settings = replace(settings, train=replace(settings.train, epochs=None, steps=3))
    session = started(settings, tmp_path / "run")
    before = {name: value.clone() for name, value in session.model.state_dict().items()}
    trained(session, tmp_path / "run")
    above = ("norm.", *(f"blocks.{number}." for number in range(freeze, 2))) if freeze >= 0 else ()
    wanted = {name for name in before if name.startswith(("head.", *above))}
    assert differing(dict(session.model.state_dict()), before) == wanted
    assert {name.partition("/")[2] for name in session.tensors()["optimizer"]} == wanted


@pytest.mark.parametrize("asked", [True, False])
def test_determinism_is_what_the_run_asks_for(asked, images, monkeypatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    torch.use_deterministic_algorithms(not asked)
    set_determinism(config(images, deterministic=asked))
    assert torch.are_deterministic_algorithms_enabled() == asked


def test_the_test_split_is_never_looked_at_before_the_end(tmp_path) -> None:
    settings = replace(
        config(tmp_path, model=replace(PLAIN, channels=1, num_classes=10, image_size=(8, 8)), steps=3),
        data=DataConfig(data="digits", split="train[:200]"),
        preprocessing=vitrail.config.Preprocessing(mean=(0.5,), std=(0.5,), interpolation="bilinear"),
    )
    data = open_run_data(settings.data, CPU, quietly)
    read: list[str] = []

    class Watched(type(data.test)):
        def read(self, index: int):
            read.append("test")
            return super().read(index)

    test = data.test
    assert isinstance(test, Source)
    watched = Watched(test.name, test.split, test.classes, test.labels, test.pixels)
    session = begin(settings, replace(data, test=watched), RunFolder(tmp_path / "run"), CPU)
    seen_at: dict[type[Event], int] = {}

    def watcher(event: Event) -> None:
        seen_at.setdefault(type(event), len(read))

    trained(session, tmp_path / "run", watcher)
    assert seen_at[Evaluated] == seen_at[Saved] == 0
    assert len(read) == len(test) == 359


def test_the_order_of_the_images_is_a_function_of_the_seed(images, tmp_path) -> None:
    orders = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        np.random.seed(len(orders))
        batches = started(config(images, seed=seed, steps=3), tmp_path / name).batches()
        orders.append([batch.ids.tolist() for batch in batches])
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]


def test_other_weights_in_the_place_of_the_start_are_refused(images, saved) -> None:
    settings = from_saved(images, saved)
    with pytest.raises(UsageError, match="no longer those that this was planned with"):
        first_model(replace(settings, start_fingerprint="0" * 64), CLASSES)
    stored = read_checkpoint(settings.start)
    known = fingerprint(stored.config, stored.state)
    assert first_model(replace(settings, start_fingerprint=known), CLASSES).labels is not None


def test_a_run_of_an_older_version_goes_on(images, tmp_path, monkeypatch) -> None:
    """Its checkpoint knows nothing of what has come since, and that has a default."""
    save = checkpoints.save

    def older(folder, step, tensors, state):
        del state["config"]["data"]["few_shot_shots"], state["config"]["model"]["attention_start"]
        return save(folder, step, tensors, state)

    monkeypatch.setattr(checkpoints, "save", older)
    session = started(config(images), tmp_path / "run")
    trained(session, tmp_path / "run")
    assert resumed(tmp_path / "run").config == session.config
