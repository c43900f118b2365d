"""Training on a CUDA device: graphs compute what the plain loop does, resume is exact, and memory may run out."""

import gc
import math
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.training.tiny_run import PLAIN, config, events, quietly

from vitrail.config import AugmentConfig, DataConfig, MaskingConfig, Preprocessing, RunConfig, ScheduleConfig, VitConfig
from vitrail.runtime.processes import joined
from vitrail.training import checkpoint as checkpoints
from vitrail.training.folder import RunFolder
from vitrail.training.run import run
from vitrail.training.session import Session
from vitrail.training.sources import open_run_data
from vitrail.training.spread import Placement
from vitrail.training.start import begin
from vitrail.training.step import GraphedStep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CUDA = torch.device("cuda", 0)
DIGITS = replace(PLAIN, width=64, num_heads=4, mlp_width=128, patch_size=(2, 2), channels=1, num_classes=10)


@pytest.fixture(autouse=True)
def _as_it_was():
    yield
    torch.use_deterministic_algorithms(False)
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()


def settings(
    model: VitConfig = DIGITS, augment: AugmentConfig | None = None, optim: dict | None = None, **train
) -> RunConfig:
    """The digits, which live on the device."""
    train = {"batch_size": 64, "steps": 30, "label_smoothing": 0.1, "average": 0.9, **train}
    return replace(
        config(Path("digits"), model=model, augment=augment, optim=optim, **train),
        data=DataConfig(data="digits", held_out=0.1, test=False),
        preprocessing=Preprocessing(mean=(0.5,), std=(0.5,), interpolation="bilinear"),
        schedule=ScheduleConfig(decay="cosine", warmup_steps=5),
    )


def session_of(asked: RunConfig, folder: Path, objective=None) -> Session:
    return begin(asked, open_run_data(asked.data, CUDA, quietly), RunFolder(folder), CUDA, objective)


def advance(session: Session, steps: int) -> list:
    """So many updates as the loop makes them, read one by one."""
    seen, batches = [], session.batches()
    for _ in range(steps):
        for micro in range(session.accumulation):
            batch = next(batches)
            session.seed_dropout(micro)
            session.step.accumulate(batch.images, batch.targets)
        session.set_numbers()
        session.step.update()
        session.progress = replace(session.progress, step=session.progress.step + 1)
        seen += session.engine.read(1)
    batches.close()
    return seen


def copied(session: Session) -> dict[str, torch.Tensor]:
    groups = session.tensors()
    return {
        f"{group}/{name}": value.detach().cpu().clone() for group in groups for name, value in groups[group].items()
    }


def save(session: Session, folder: Path) -> checkpoints.Checkpoint:
    state = {"progress": session.progress.to_json()}
    return checkpoints.read(checkpoints.save(folder, session.progress.step, session.tensors(), state))


@pytest.mark.parametrize("micro_batch", [64, 16], ids=["whole", "accumulated"])
def test_compiled_graphs_give_the_curve_of_the_plain_loop(micro_batch, tmp_path) -> None:
    plain = session_of(settings(micro_batch=micro_batch), tmp_path / "plain")
    graphed = session_of(settings(micro_batch=micro_batch, compile=True), tmp_path / "graphed")
    assert isinstance(graphed.step, GraphedStep)
    assert graphed.accumulation == 64 // micro_batch
    wanted, found = advance(plain, 30), advance(graphed, 30)
    torch.testing.assert_close(
        torch.tensor([happened.loss for happened in found]),
        torch.tensor([happened.loss for happened in wanted]),
        rtol=0,
        atol=5e-3,
    )
    assert found[-1].loss < found[0].loss - 0.3


@pytest.mark.parametrize("micro_batch", [64, 32])
@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "graphs"])
def test_a_deterministic_run_is_bit_equal_after_a_resume(compiled, micro_batch, tmp_path) -> None:
    """With dropout, stochastic depth and mixup; the graphs of the second half are captured anew."""
    model = replace(DIGITS, dropout=0.1, stochastic_depth=0.1)
    asked = settings(
        model,
        AugmentConfig(crop="pad", pad=1, mixup=0.2),
        micro_batch=micro_batch,
        compile=compiled,
        deterministic=True,
    )
    whole = session_of(asked, tmp_path / "whole")
    wanted = advance(whole, 30)
    first = session_of(asked, tmp_path / "first")
    found = advance(first, 15)
    saved = save(first, tmp_path / "checkpoints")
    torch.manual_seed(123)
    second = session_of(asked, tmp_path / "second")
    second.load(saved)
    found += advance(second, 15)
    assert [happened.loss for happened in found] == [happened.loss for happened in wanted]
    came, kept = copied(second), copied(whole)
    assert [name for name in kept if not torch.equal(came[name], kept[name])] == []


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "muon"])
@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "graphs"])
def test_a_step_that_is_not_finite_is_skipped_on_the_device(compiled, optimizer, tmp_path) -> None:
    session = session_of(settings(compile=compiled, optim={"optimizer": optimizer}), tmp_path / "run")
    advance(session, 6)
    before = copied(session)
    batch = next(session.batches())
    session.step.accumulate(torch.full_like(batch.images, torch.nan), batch.targets)
    session.set_numbers()
    session.step.update()
    assert [happened.was_finite for happened in session.engine.read(1)] == [False]
    after = copied(session)
    # The average of what stays as it is moves towards it; whether it should is another test's.
    moved = [name for name in before if not torch.equal(after[name], before[name]) and not name.startswith("average/")]
    assert moved == []
    (happened,) = advance(session, 1)
    assert happened.was_finite
    assert any(not torch.equal(value, after[name]) for name, value in copied(session).items())


def test_memory_that_really_runs_out_halves_the_micro_batch(tmp_path) -> None:
    model = replace(DIGITS, width=512, num_heads=8, mlp_width=2048, depth=8)
    asked = settings(model, batch_size=1024, micro_batch=1024, steps=4, average=0.0)
    session = session_of(asked, tmp_path / "run")
    gc.collect()
    torch.cuda.empty_cache()
    room = torch.cuda.memory_reserved(CUDA) + 600 * 2**20
    torch.cuda.set_per_process_memory_fraction(room / torch.cuda.get_device_properties(CUDA).total_memory, CUDA)
    try:
        run(session, RunFolder(tmp_path / "run"), lambda _event: None)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, CUDA)
    halved = events(tmp_path / "run", "micro_batch")
    assert halved, "memory did not run out"
    assert halved[0]["from"] == 1024
    assert [event["micro_batch"] for event in halved] == [1024 >> number for number in range(1, len(halved) + 1)]
    assert session.progress.step == 4
    assert session.accumulation == 2 ** len(halved)
    assert events(tmp_path / "run", "done")


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "graphs"])
def test_bfloat16_learns_with_float32_masters(compiled, tmp_path) -> None:
    asked = settings(steps=300, precision="bfloat16", compile=compiled, optim={"lr": 3e-3}, log_every=50, average=0.0)
    session = session_of(asked, tmp_path / "run")
    outcome = run(session, RunFolder(tmp_path / "run"), lambda _event: None)
    assert outcome.metrics.accuracy > 0.8
    assert {value.dtype for value in copied(session).values()} == {torch.float32}


def test_recomputed_activations_lower_the_peak_and_change_no_bit(tmp_path) -> None:
    model = replace(DIGITS, depth=12, width=256, mlp_width=1024, dropout=0.1, stochastic_depth=0.1)
    peaks, losses = [], []
    for recomputed in (False, True):
        asked = settings(model, batch_size=512, micro_batch=512, checkpoint_activations=recomputed, deterministic=True)
        session = session_of(asked, tmp_path / str(recomputed))
        advance(session, 1)
        gc.collect()
        torch.cuda.reset_peak_memory_stats(CUDA)
        before = torch.cuda.memory_allocated(CUDA)
        losses.append([happened.loss for happened in advance(session, 2)])
        peaks.append(torch.cuda.max_memory_allocated(CUDA) - before)
        del session
    assert losses[0] == losses[1]
    assert peaks[1] < peaks[0] / 2


def test_a_step_waits_for_nothing(tmp_path) -> None:
    """No copy to the host in a step, else a GPU idles while Python prepares the next one."""
    session = session_of(settings(), tmp_path / "run")
    advance(session, 2)
    batch = next(session.batches())
    session.set_numbers()
    torch.cuda.set_sync_debug_mode("error")
    try:
        session.step.accumulate(batch.images, batch.targets)
        session.step.update()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_another_thread_may_allocate_while_a_graph_is_captured(tmp_path) -> None:
    """As the one that gets batches ready does: each of these is new memory, asked of the driver."""
    asked = settings(compile=True, steps=10)
    session, stopped, kept = session_of(asked, tmp_path / "run"), threading.Event(), []

    def allocate() -> None:
        while not stopped.wait(0.001) and len(kept) < 3_000:
            kept.append(torch.empty(12 * 2**20, dtype=torch.uint8, device=CUDA))

    thread = threading.Thread(target=allocate)
    try:
        advance(session, 3)
        thread.start()
        seen = advance(session, 3)
    finally:
        stopped.set()
        thread.join()
    assert len(kept) > 10
    assert all(math.isfinite(one.loss) for one in seen)


def test_gradients_are_added_and_not_replaced_by_graphs(tmp_path) -> None:
    """Two captured micro-batches are one batch of both."""
    whole, halves = (
        session_of(settings(micro_batch=size, compile=True, average=0.0), tmp_path / str(size)) for size in (64, 32)
    )
    wanted, found = advance(whole, 8), advance(halves, 8)
    assert [happened.gradient_norm for happened in found] == pytest.approx(
        [happened.gradient_norm for happened in wanted], rel=0.05
    )


@pytest.fixture
def alone_in_a_group(monkeypatch):
    """One process that is joined to itself by nccl, as torchrun would have it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    names = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in names.items():
        monkeypatch.setenv(name, str(value))
    with joined(CUDA) as processes:
        yield processes


@pytest.mark.parametrize("compile", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_wrapper_around_one_process_changes_nothing(tmp_path, alone_in_a_group, parallel, compile):
    asked = settings(micro_batch=16, compile=compile, precision="float32")
    plain = session_of(replace(asked, train=replace(asked.train, compile=False)), tmp_path / "plain")
    wanted = [happened.loss for happened in advance(plain, 12)]
    placement = Placement(processes=alone_in_a_group, parallel=parallel)
    data = open_run_data(asked.data, CUDA, quietly)
    wrapped = begin(asked, data, RunFolder(tmp_path / "wrapped"), CUDA, placement=placement)
    assert not isinstance(wrapped.step, GraphedStep)
    assert [happened.loss for happened in advance(wrapped, 12)] == pytest.approx(wanted, abs=1e-4)
    before, saved = copied(wrapped), save(wrapped, tmp_path / "saved")
    advance(wrapped, 1)
    wrapped.load(saved)
    assert all(torch.equal(before[name], value) for name, value in copied(wrapped).items())
    assert wrapped.evaluate(wrapped.data.held_out).images == len(wrapped.data.held_out)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_whole_run_in_bfloat16_with_recomputed_activations_and_a_wrapper(tmp_path, alone_in_a_group, parallel):
    asked = settings(precision="bfloat16", compile=True, checkpoint_activations=True, steps=20)
    data = open_run_data(asked.data, CUDA, quietly)
    placement = Placement(processes=alone_in_a_group, parallel=parallel)
    session = begin(asked, data, RunFolder(tmp_path), CUDA, placement=placement)
    outcome = run(session, RunFolder(tmp_path), lambda _event: None)
    assert outcome.metrics.images == len(data.held_out)
    losses = [record["loss"] for record in events(tmp_path, "train")]
    assert losses[-1] < losses[0]


HIDDEN = {
    "patches": MaskingConfig(),
    "autoencoder": MaskingConfig(
        method="autoencoder", target="pixels", share=0.75, decoder_width=32, decoder_depth=1, decoder_heads=2
    ),
}


def masked(kind: str, **more) -> RunConfig:
    asked = settings(replace(DIGITS, num_classes=0), **{"keep": "last", **more})
    return replace(asked, masking=HIDDEN[kind], data=replace(asked.data, labelled=False))


@pytest.mark.parametrize("kind", HIDDEN)
@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "graphs"])
def test_a_run_without_labels_is_bit_equal_after_a_resume(compiled, kind, tmp_path) -> None:
    asked = masked(kind, micro_batch=32, compile=compiled, deterministic=True)
    whole = session_of(asked, tmp_path / "whole")
    first = advance(whole, 5)
    saved = save(whole, tmp_path / "saved")
    rest = advance(whole, 5)
    again = session_of(asked, tmp_path / "again")
    again.load(saved)
    assert [happened.loss for happened in advance(again, 5)] == [happened.loss for happened in rest]
    assert rest[-1].loss < first[0].loss
    wanted, found = copied(whole), copied(again)
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)


@pytest.mark.parametrize("kind", HIDDEN)
@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "graphs"])
def test_other_patches_are_hidden_in_every_step(compiled, kind, tmp_path) -> None:
    """A graph replays the same calls: what they draw has to come from the generator and not from the capture."""
    asked = masked(kind, micro_batch=64, compile=compiled, optim={"lr": 1e-12})
    session = session_of(asked, tmp_path / "run")
    with torch.no_grad():
        # A head of zeros is as wrong about one patch as about another.
        for name, weight in session.model.named_parameters():
            if "prediction" in name:
                weight.normal_(std=0.5)
    batches = session.batches()
    batch = next(batches)
    losses = []
    for seed in (1, 2, 3, 1):
        session._generator.manual_seed(seed)
        session.step.accumulate(batch.images.clone(), batch.targets.clone())
        session.set_numbers()
        session.step.update()
        losses += [happened.loss for happened in session.engine.read(1)]
    batches.close()
    assert len({round(loss, 6) for loss in losses}) == 3
    assert losses[0] == pytest.approx(losses[3], abs=1e-5)
