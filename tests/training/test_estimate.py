"""The time of a run, tried out on the network that is then trained: nothing of it may be left behind."""

from dataclasses import replace

import pytest
import torch
from tests.training.test_faults_memory import ERRORS
from tests.training.test_faults_numbers import BATCH_NORM
from tests.training.tiny_run import RANDOM, assert_same_run, config, fingerprint, started, trained

from vitrail.config import RunConfig
from vitrail.training import checkpoint as checkpoints
from vitrail.training import estimate
from vitrail.training.estimate import seconds_left, seconds_per_image
from vitrail.training.session import Session

MIXED = replace(BATCH_NORM, dropout=0.1, stochastic_depth=0.1)


def frozen(settings: RunConfig, blocks: int) -> RunConfig:
    return replace(settings, optim=replace(settings.optim, freeze=blocks))


def everything(session: Session) -> dict[str, torch.Tensor]:
    return {f"{kind}/{name}": t.clone() for kind, group in session.tensors().items() for name, t in group.items()}


@pytest.mark.parametrize("freeze", [0, 1, -1])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_nothing_is_changed(freeze, precision, images, tmp_path):
    session = started(frozen(config(images, model=MIXED, average=0.9, precision=precision), freeze), tmp_path / "run")
    before, modes = everything(session), {name: module.training for name, module in session.model.named_modules()}
    assert seconds_per_image(session) > 0
    after = everything(session)
    assert [name for name in before if not torch.equal(before[name], after[name])] == []
    assert [name for name, parameter in session.model.named_parameters() if parameter.grad is not None] == []
    assert {name: module.training for name, module in session.model.named_modules()} == modes
    assert float(session.engine._loss) == 0


def test_the_generator_is_left_where_it_was(images, tmp_path):
    session = started(config(images, model=RANDOM), tmp_path / "run")
    before = torch.random.get_rng_state()
    seconds_per_image(session)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("freeze", [0, 1])
def test_a_run_is_the_same_with_and_without_it(freeze, images, tmp_path):
    settings = frozen(config(images, model=MIXED, average=0.9, micro_batch=4), freeze)
    plain, tried = tmp_path / "plain", tmp_path / "tried"
    trained(started(settings, plain), plain)
    session = started(settings, tried)
    seconds_left(session)
    trained(session, tried)
    assert_same_run(tried, plain)


def test_frozen_statistics_stay_as_they_were(images, tmp_path):
    session = started(frozen(config(images, model=BATCH_NORM, steps=3), 1), tmp_path)
    seconds_left(session)
    before = {name: value.clone() for name, value in session.model.named_buffers()}
    trained(session, tmp_path)
    kept = checkpoints.newest(tmp_path / "checkpoints").tensors["model"]
    assert len(before) == 6
    for name, value in before.items():
        assert torch.equal(kept[name], value), name
    # And one that is not frozen moves, so that the test can fail.
    other = tmp_path / "other"
    trained(started(config(images, model=BATCH_NORM, steps=3), other), other)
    assert fingerprint(other) != fingerprint(tmp_path)
    assert (
        int(
            checkpoints.newest(other / "checkpoints").tensors["model"][
                "embedding.backbone.layers.0.norm.num_batches_tracked"
            ]
        )
        == 3
    )


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_memory_that_runs_out_gives_no_time_and_does_no_harm(error, images, tmp_path):
    settings = config(images, model=MIXED)
    wanted, came = tmp_path / "wanted", tmp_path / "came"
    trained(started(settings, wanted), wanted)
    session = started(settings, came)
    forward, calls = session.model.forward, []

    def short(pictures):
        calls.append(len(pictures))
        if len(calls) == 2:
            raise error
        return forward(pictures)

    session.model.forward = short  # type: ignore[method-assign]
    assert seconds_left(session) is None
    assert calls == [1, 8]
    assert session.model.training
    assert all(parameter.grad is None for parameter in session.model.parameters())
    session.model.forward = forward  # type: ignore[method-assign]
    trained(session, came)
    assert_same_run(came, wanted)


def test_another_error_is_not_swallowed(images, tmp_path, monkeypatch):
    session = started(config(images), tmp_path)

    def broken(_images):
        raise RuntimeError("a bug")

    monkeypatch.setattr(session.model, "forward", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        seconds_left(session)
    assert session.model.training


def test_it_is_the_time_of_what_is_left(images, tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "seconds_per_image", lambda _session: 0.5)
    session = started(config(images, steps=100), tmp_path / "run")
    assert seconds_left(session) == 400
    session.progress = replace(session.progress, step=75)
    assert seconds_left(session) == 100
    limited = started(config(images, steps=100, time_limit=1), tmp_path / "limited")
    assert seconds_left(limited) == 60
    assert seconds_left(started(config(images, steps=100, time_limit=9), tmp_path / "far")) == 400


def test_few_images_are_tried_and_never_more_than_fit(images, tmp_path):
    for micro_batch, wanted in ((2, 2), (64, 16)):
        session = started(config(images, batch_size=64, micro_batch=micro_batch), tmp_path / str(micro_batch))
        forward, sizes = session.model.forward, set()

        def counted(pictures, session=session, forward=forward, sizes=sizes):
            sizes.add((len(pictures), session.model.training))
            return forward(pictures)

        session.model.forward = counted  # type: ignore[method-assign]
        seconds_per_image(session)
        # Evaluation mode moves no statistics and draws no dropout.
        assert sizes == {(1, False), (wanted, False)}


@pytest.mark.parametrize(("seconds", "wanted"), [(60.0, [1, 1]), (1.0, [1, 4, 4]), (0.01, [1, 8, 8])])
def test_nobody_waits_long_for_it(seconds, wanted, images, tmp_path, monkeypatch):
    session = started(config(images), tmp_path / "run")
    forward, sizes, now = session.model.forward, [], [0.0]

    def slow(pictures):
        sizes.append(len(pictures))
        now[0] += seconds * len(pictures)
        return forward(pictures)

    monkeypatch.setattr(estimate.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(session.model, "forward", slow)
    assert seconds_per_image(session) == pytest.approx(seconds)
    assert sizes == wanted


def test_what_is_made_only_once_is_no_part_of_every_image(images, tmp_path, monkeypatch):
    session = started(config(images), tmp_path / "run")
    forward, now, waits = session.model.forward, [0.0], [60.0, 0.5]

    def cold(pictures):
        now[0] += waits.pop(0)
        return forward(pictures)

    monkeypatch.setattr(estimate.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(session.model, "forward", cold)
    assert seconds_per_image(session) == pytest.approx(0.5)
