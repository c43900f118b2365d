"""Begin a run, or go on with one."""

import json
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from vitrail.config import DataConfig, RunConfig, VitConfig, from_json, to_json
from vitrail.errors import UsageError, VitrailError, setting
from vitrail.models import Classifier, build
from vitrail.models.empty import empty
from vitrail.models.masked import build_masked
from vitrail.runtime.processes import ALONE, Processes
from vitrail.runtime.purposes import Purpose
from vitrail.runtime.threads import own_threads
from vitrail.training import checkpoint as checkpoints
from vitrail.training.events import ProcessesChanged, ThreadsChanged
from vitrail.training.folder import (
    FORMAT,
    RunFolder,
    RunRecord,
    beside,
    differences,
    read_run,
    versions,
    write_record,
)
from vitrail.training.held_out import list_held_out
from vitrail.training.memory import first_micro_batch, smallest_piece
from vitrail.training.newest import newest_of_all
from vitrail.training.objective import Objective
from vitrail.training.progress import Progress
from vitrail.training.schedule import micro_batch, total_steps
from vitrail.training.session import Session, word
from vitrail.training.sources import Checking, RunData, open_run_data
from vitrail.training.spread import Placement
from vitrail.weights.adapt import adapt, with_classes
from vitrail.weights.checkpoint import Checkpoint, to_model
from vitrail.weights.fingerprint import fingerprint
from vitrail.weights.folder import sidecar
from vitrail.weights.load import read_checkpoint


def begin(
    config: RunConfig,
    data: RunData,
    folder: RunFolder,
    device: torch.device,
    objective: Objective | None = None,
    placement: Placement | None = None,
    command: str = "",
) -> Session:
    """A new run in a new folder; `command` is how it was asked for."""
    processes = _processes(placement)
    with processes.together():
        fits = -(-_first_progress(config, data, device, processes).micro_batch // processes.ranks)
    # What fits into each of them: one may have less memory left than another.
    pieces = -int(processes.agree(-fits)[0])
    with processes.together():
        # Found here once and written down: mixing and BatchNorm look at the images of one piece.
        config = replace(config, train=replace(config.train, micro_batch=pieces))
        progress = _first_progress(config, data, device, processes)
        if processes.is_first:
            _ensure_new(folder)
        set_determinism(config)
        model = first_model(config, data.train.classes)
    session = Session(config, model, data, progress, device, objective, placement)
    with processes.together():
        if processes.is_first:
            _write_beginning(session, folder, command)
    ensure_same(session, folder)
    return session


def _ensure_new(folder: RunFolder) -> None:
    if folder.config.exists():
        raise UsageError(
            "there is a run already",
            where=str(folder.path),
            fix=f"Go on with it ({folder.resume_command}), or choose another {setting('name')}.",
        )


def _write_beginning(session: Session, folder: RunFolder, command: str) -> None:
    held, weights = session.bytes_to_save()
    checkpoints.ensure_space(folder.checkpoints, (checkpoints.KEPT + 1) * held + 2 * weights)
    write_record(
        folder,
        RunRecord(
            format=FORMAT,
            config=session.config,
            classes=session.data.train.classes,
            digest=session.digest,
            counts=counts(session.data),
            command=command,
            versions=versions(session.config.model),
            device=device_name(session.device, session.model),
            notes=_notes(session.data),
        ),
    )


def write_images(session: Session, folder: RunFolder) -> None:
    """Write down which images the run has now, and which are held out; the lock is held.

    They are others where a run goes on with --allow-changed, or was killed before its first checkpoint.
    """
    record, data = read_run(folder), session.data
    is_begun = session.resumed_from is not None
    list_held_out(folder, data, is_begun=is_begun, is_same=session.digest == record.digest)
    now = replace(record, classes=data.train.classes, digest=session.digest, counts=counts(data), notes=_notes(data))
    if now != record:
        write_record(folder, now)


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """What may differ from the run that is resumed."""

    changed: bool = False
    workers: int | None = None
    root: str | None = None
    micro_batch: int | None = None
    """Images at a time in each process."""


def resume(
    folder: RunFolder,
    device: torch.device,
    checking: Checking,
    allowed: Allowed | None = None,
    objective: Objective | None = None,
    placement: Placement | None = None,
) -> Session:
    """Go on where the newest whole checkpoint ends; a config or data that changed since is refused."""
    allowed = allowed or Allowed()
    processes = _processes(placement)
    with processes.together():
        record = read_run(folder)
        config = record.config
    place = {"workers": allowed.workers, "root": allowed.root}
    where = {name: value for name, value in place.items() if value is not None}
    data = processes.in_turn(
        lambda: open_run_data(replace(config.data, **where), device, checking, processes.local_ranks)
    )
    with processes.together():
        _ensure_classes(record, data)
    there = tuple(checkpoints.listed(folder.checkpoints))
    found = newest_of_all(folder, processes)
    with processes.together():
        # Killed before its first checkpoint: the config is all there is, and all that is needed.
        model = first_model(config, data.train.classes) if found is None else _unstarted(config)
        progress = _first_progress(config, data, device, processes)
        set_determinism(config)
    session = Session(config, model, data, progress, device, objective, placement)
    with processes.together():
        if found is not None:
            _take_over(session, found, record, allowed)
            session.resumed_from, session.checkpoints = found.path, there
    ensure_same(session, folder)
    return session


def refuse_other(folder: RunFolder, config: RunConfig, *, copies_given: bool = False) -> None:
    """Refuse to go on with a run under this name when another one is asked for."""
    found = read_run(folder).config
    stored = sidecar(folder.path)["config"]["data"]
    # Where images are read from, by how many workers and how many at a time, makes no other run.
    data = replace(config.data, workers=found.data.workers, root=found.data.root)
    data = as_begun(data, found.data, stored, copies_given=copies_given)
    train = replace(config.train, micro_batch=found.train.micro_batch)
    if changes := differences(to_json(found), to_json(replace(config, data=data, train=train))):
        raise UsageError(
            f"the run of this name is another one: {'; '.join(changes)}",
            where=str(folder.path),
            fix=f"Give the command that began it, or choose another {setting('name')}.",
        )


def as_begun(asked: DataConfig, found: DataConfig, stored: dict[str, Any], *, copies_given: bool) -> DataConfig:
    """What is asked for; a run from before copies were looked for keeps them as it did, unless that was typed."""
    return asked if copies_given or "copies" in stored else replace(asked, copies=found.copies)


def ensure_same(session: Session, folder: RunFolder) -> None:
    """Refuse processes that would not train the same run: another network, config or data, or another folder."""
    processes = session.processes
    mine = [session.digest, json.dumps(to_json(session.config), sort_keys=True), type(session.spread).__name__]
    wanted = processes.told(mine)
    with processes.together():
        if mine != wanted:
            names = ("the data", "the config", "how the network is spread")
            other = [name for name, one, first in zip(names, mine, wanted, strict=True) if one != first]
            raise UsageError(
                f"{' and '.join(other)} of process {processes.rank} is not what the first process has",
                wanted="the same files and machines alike",
                where=session.config.data.data,
            )
        if not folder.config.is_file():
            raise UsageError(
                "this process does not see the folder of the run",
                wanted="one that all machines share",
                where=str(folder.path),
                fix=f"Choose one with {setting('out')}.",
            )


def _ensure_classes(record: RunRecord, data: RunData) -> None:
    config = record.config
    if config.masking is None and len(data.train.classes) != config.model.num_classes:
        raise UsageError(
            f"the data has {len(data.train.classes)} classes",
            wanted=f"the {config.model.num_classes} of the run: {', '.join(record.classes[:5])}, ...",
            where=config.data.data,
            fix="Put the data back as it was, or begin a new run.",
        )


def _take_over(session: Session, found: checkpoints.Checkpoint, record: RunRecord, allowed: Allowed) -> None:
    """The tensors and the progress of a checkpoint, for the processes there are now."""
    config, data, first = session.config, session.data, session.progress
    folder = found.path.parent.parent
    changes = differences(_filled(found.state.get("config"), folder), to_json(config))
    if session.digest != found.state.get("data"):
        changes += differences(list(record.classes), list(data.train.classes), "classes")
        then, now = _counted(record.counts), _counted(counts(data))
        changes.append(f"data: {then} then, {now} now, not the same")
    if changes and not allowed.changed:
        raise UsageError(
            f"the run has changed since its last checkpoint: {'; '.join(changes)}",
            where=str(folder),
            fix=f"Change it back, or go on with {setting('allow_changed', True)}, no longer exactly.",
        )
    session.load(found)
    _settle_threads(session, found.state.get("processes", 1), may_change=allowed.changed)
    if changes:
        # The length and the pieces are part of the progress, which was computed from what is no longer so.
        if first.steps < session.progress.step:
            raise UsageError(
                f"the run is at step {session.progress.step:,}",
                wanted=f"a length of at least that, not {first.steps:,}",
            )
        session.progress = replace(session.progress, steps=first.steps, micro_batch=first.micro_batch)
        return
    _settle_pieces(session, found.state.get("processes", 1), allowed.micro_batch)


def _filled(stored: Any, folder: Path) -> Any:
    """The config in a checkpoint, with the defaults of what its version did not have yet, and where things are now."""
    with suppress(VitrailError):
        return to_json(beside(from_json(RunConfig, stored, where="a checkpoint"), folder))
    return stored


def _settle_threads(session: Session, processes_then: int, *, may_change: bool) -> None:
    """In as many threads as before, unless other numbers were asked for: other processes come with their own."""
    progress, now = session.progress, own_threads(session.model, session.device)
    if progress.threads is None or session.device.type != "cpu":
        return
    if processes_then != session.processes.ranks:
        session.progress = replace(progress, threads=now)
    elif may_change and now != progress.threads:
        event = ThreadsChanged(step=progress.step, before=progress.threads, threads=now)
        session.progress = progress.with_event(event, threads=now)


def _settle_pieces(session: Session, processes_then: int, asked: int | None) -> None:
    """As many images at a time in each process as before, or as asked; the batch stays as it is."""
    now, progress = session.processes.ranks, session.progress
    then = processes_then if isinstance(processes_then, int) and processes_then > 0 else 1
    if now == then and asked is None:
        return
    wanted = asked or progress.each or -(-progress.micro_batch // then)
    size = micro_batch(wanted * now, session.config.train.batch_size, smallest_piece(session.config) * now)
    if (size, now) != (progress.micro_batch, then):
        event = ProcessesChanged(step=progress.step, before=then, processes=now, micro_batch=size)
        session.progress = progress.with_event(event, micro_batch=size, each=wanted)


def _first_progress(config: RunConfig, data: RunData, device: torch.device, processes: Processes) -> Progress:
    size = first_micro_batch(config.model, config.train, device, smallest_piece(config), processes.ranks)
    each = config.train.micro_batch or -(-size // processes.ranks)
    return Progress(steps=total_steps(config.train, len(data.train)), micro_batch=size, each=each)


def _processes(placement: Placement | None) -> Processes:
    return ALONE if placement is None else placement.processes


def counts(data: RunData) -> dict[str, int]:
    """Images per split."""
    splits = {"train": data.train, "held-out": data.held_out, "test": data.test}
    return {name: len(source) for name, source in splits.items() if source is not None}


def _notes(data: RunData) -> tuple[str, ...]:
    """What the sources say of their images, each thing once."""
    sources = [source for source in (data.train, data.held_out, data.test) if source is not None]
    return tuple(dict.fromkeys(note for source in sources for note in source.notes))


def _counted(found: dict[str, Any]) -> str:
    held_out = f" and {found['held-out']:,} held out" if "held-out" in found else ""
    return f"{found.get('train', 0):,} training images{held_out}"


def _unstarted(config: RunConfig) -> Classifier:
    """A network whose weights are about to be replaced, so that none are started."""
    model = empty(lambda: _network(config))
    model = model.to_empty(device="cpu")
    model.fill_fixed_tables()
    return model


def first_model(config: RunConfig, classes: tuple[str, ...]) -> Classifier:
    """Fresh weights as a function of the seed, or those of `config.start` with a zero head (3.2)."""
    if config.start is None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(word(config.train.seed, Purpose.WEIGHTS, 0, 0))
            return _network(config)
    stored = read_checkpoint(config.start)
    if config.start_fingerprint not in (None, fingerprint(stored.config, stored.state)):
        raise UsageError(
            "the weights there are no longer those that this was planned with",
            where=config.start,
            fix=f"Put them back, or begin anew under another {setting('name')}.",
        )
    found = adapted(stored, classes, config.model.image_size)
    return to_model(replace(found, config=config.model), config.start)


def _network(config: RunConfig) -> Classifier:
    if config.masking is None:
        return build(config.model)
    if not isinstance(config.model, VitConfig):
        raise UsageError(
            "the network is no Vision Transformer of ours", wanted="one, or a hybrid, which has patches to hide"
        )
    if config.train.keep != "last":
        raise UsageError(
            "the best model is asked for",
            wanted=f"{setting('train.keep', 'last')}: what predicts hidden patches best need not have the best "
            "features",
        )
    return build_masked(config.model, config.masking, config.preprocessing)


def adapted(found: Checkpoint, classes: tuple[str, ...], image_size: tuple[int, int]) -> Checkpoint:
    """A checkpoint for its next task (3.2): resized positions, and a zero head unless the classes are the very same."""
    if found.labels != classes:
        # Dropped first, because as many classes are not the same classes.
        found = with_classes(with_classes(found, 0), len(classes))
    return adapt(found, num_classes=None, image_size=image_size, resize="google", overrides={})


def set_determinism(config: RunConfig) -> None:
    """Only kernels that give the same bits every time, where the run asks for it."""
    if config.train.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(config.train.deterministic)


def device_name(device: torch.device, network: torch.nn.Module, threads: int | None = None) -> str:
    """What a network is computed on, for people; on a CPU in so many threads, where that is known."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = threads or own_threads(network, device)
    return f"{device.type}, {threads} thread{'s' if threads > 1 else ''}"
