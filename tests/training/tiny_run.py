"""Runs of a few seconds: their images, their config, and processes that train them and may be killed."""

import hashlib
import json
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from vitrail.config import (
    AugmentConfig,
    DataConfig,
    OptimConfig,
    Preprocessing,
    RunConfig,
    ScheduleConfig,
    TrainConfig,
    VitConfig,
)
from vitrail.data import Batch, Source
from vitrail.errors import UsageError, VitrailError
from vitrail.runtime.lock import only_one
from vitrail.training import checkpoint as checkpoints
from vitrail.training.folder import RunFolder
from vitrail.training.log import Watcher, read_log
from vitrail.training.objective import Objective
from vitrail.training.run import run
from vitrail.training.session import Session
from vitrail.training.sources import open_run_data
from vitrail.training.start import Allowed, begin, resume

CPU = torch.device("cpu")
CLASSES = ("ant", "bee", "cow", "dog")
HELD_OUT = 0.1

# A server that has imported torch and forks a fresh process for every run, because a kill should cost no seconds.
PROCESSES = multiprocessing.get_context("forkserver")


def start_own_forkserver() -> None:
    """A server that other tests left has not loaded what training needs, and keeps to what it has."""
    needed = ["vitrail.training.run", "vitrail.training.start", "vitrail.weights.load", "scipy.stats"]
    if forkserver._forkserver._preload_modules != needed:
        forkserver._forkserver._stop()
        PROCESSES.set_forkserver_preload(needed)


def make_images(folder: Path, per_class: int = 12, classes: tuple[str, ...] = CLASSES, first: int = 0) -> Path:
    """Class folders of small PNGs; each class has its own colours, so that it can be learnt, and a number its image."""
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for index in range(first, first + per_class):
            generator = np.random.default_rng([number, index])
            colour = np.array([60 * number, 200 - 50 * number, 128])
            pixels = np.clip(colour + generator.normal(0, 40, (12, 12, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{index:03}.png")
    return folder


def twice(folder: Path, per_class: int = 12) -> Path:
    """The same class folders with every image there a second time, under another name."""
    make_images(folder, per_class)
    for file in sorted(folder.rglob("*.png")):
        shutil.copy(file, file.with_name(f"again-{99 - int(file.stem):03}.png"))
    return folder


PLAIN = VitConfig(
    width=32, depth=2, num_heads=2, mlp_width=64, patch_size=(4, 4), image_size=(8, 8), num_classes=4, pool="mean"
)
RANDOM = replace(PLAIN, dropout=0.1, attention_dropout=0.1, stochastic_depth=0.1)
STRONG = AugmentConfig(min_area=0.3, randaugment_layers=2, mixup=0.2)


def config(
    data: Path,
    model: VitConfig = PLAIN,
    augment: AugmentConfig | None = None,
    optim: dict[str, Any] | None = None,
    workers: int = 0,
    skip_bad: bool = False,
    **train: Any,
) -> RunConfig:
    """A run of 43 images, batches of 8, everything random switched off unless asked for."""
    length = {} if "steps" in train or "epochs" in train else {"epochs": 2}
    return RunConfig(
        recipe="tiny",
        model=model,
        preprocessing=Preprocessing(mean=(0.5,) * 3, std=(0.5,) * 3, interpolation="bilinear"),
        data=DataConfig(data=str(data), held_out=HELD_OUT, workers=workers, skip_bad=skip_bad),
        augment=augment or AugmentConfig(crop="whole", flip=False),
        optim=OptimConfig(**{"optimizer": "adam", "lr": 3e-3, "weight_decay": 0.05, "clip": 1.0, **(optim or {})}),
        schedule=ScheduleConfig(decay="cosine", warmup_steps=5),
        train=TrainConfig(
            **{"batch_size": 8, "loss": "softmax", "evaluate_every": 1, "log_every": 1, **length, **train}
        ),
    )


@contextmanager
def quietly(_source: Source) -> Iterator[Callable[[int], None]]:
    """Shows nothing of the reading of a source."""
    yield lambda _count: None


def started(settings: RunConfig, folder: Path, objective: Objective | None = None) -> Session:
    """A new run before its first step."""
    data = open_run_data(settings.data, CPU, quietly)
    return begin(settings, data, RunFolder(folder), CPU, objective)


def resumed(folder: Path, objective: Objective | None = None, **allowed: Any) -> Session:
    """A run that goes on."""
    return resume(RunFolder(folder), CPU, quietly, Allowed(**allowed), objective)


def trained(session: Session, folder: Path, watcher: Watcher = lambda _event: None) -> Session:
    """To its end, in this process."""
    run(session, RunFolder(folder), watcher)
    return session


def fingerprint(folder: Path) -> dict[str, str]:
    """Hashes of weights, moments and average in the newest checkpoint, and how far it is."""
    found = checkpoints.newest(folder / "checkpoints")
    hashes = {
        f"{group}/{name}": hashlib.sha256(tensor.numpy().tobytes()).hexdigest()
        for group, tensors in found.tensors.items()
        for name, tensor in tensors.items()
    }
    return {"step": str(found.state["progress"]["step"]), **hashes}


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    """The records of one kind in the log."""
    return [record for record in read_log(folder / "log.jsonl") if record["event"] == kind]


def losses(folder: Path) -> list[tuple[int, float]]:
    """What the log says of every step."""
    return [(record["step"], record["loss"]) for record in events(folder, "train")]


def assert_same_run(came: Path, wanted: Path) -> None:
    """Two finished runs that are equal to the last bit: tensors, losses and evaluations."""
    assert fingerprint(came) == fingerprint(wanted)
    assert losses(came) == losses(wanted)
    assert events(came, "evaluated") == events(wanted, "evaluated")
    assert events(came, "done")[0]["metrics"] == events(wanted, "done")[0]["metrics"]
    assert (came / "model/model.safetensors").read_bytes() == (wanted / "model/model.safetensors").read_bytes()


def record_batches(session: Session, path: Path) -> None:
    """Write down what the loop is really given, a line per micro-batch; a kill cuts no line."""
    batches = session.batches
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def recorded() -> Iterator[Batch]:
        for batch in batches():
            line = {"piece": batch.step, "ids": batch.ids.tolist(), "epochs": batch.epochs.tolist()}
            os.write(handle, (json.dumps(line) + "\n").encode())
            yield batch

    session.batches = recorded  # type: ignore[method-assign]


def fed(path: Path) -> dict[int, tuple[list[int], list[int]]]:
    """Ids and epochs of each micro-batch; one that was fed again after a kill must have been the same."""
    pieces: dict[int, tuple[list[int], list[int]]] = {}
    for line in map(json.loads, path.read_text().splitlines()):
        assert pieces.setdefault(line["piece"], (line["ids"], line["epochs"])) == (line["ids"], line["epochs"])
    return pieces


def assert_every_sample_once(path: Path, images: int) -> int:
    """Every whole epoch holds every image once; says how many there were."""
    pieces = fed(path)
    assert sorted(pieces) == list(range(len(pieces)))
    seen: dict[int, list[int]] = {}
    for ids, epochs in pieces.values():
        for image, epoch in zip(ids, epochs, strict=True):
            seen.setdefault(epoch, []).append(image)
    whole = [ids for ids in seen.values() if len(ids) == images]
    assert all(len(set(ids)) == images for ids in seen.values() if len(ids) >= images)
    assert all(set(ids) == set(whole[0]) for ids in whole)
    return len(whole)


Setup = Callable[[Session, Connection], Watcher]
"""Prepares a run in its own process: may patch what it likes, and talks to the test through the connection."""


def in_process(
    folder: Path, settings: RunConfig | None, setup: Setup | None = None, **allowed: Any
) -> tuple[BaseProcess, Connection]:
    """Train in a process of its own: a new run with settings, else the one in the folder; its last word is how it went.

    The exit code is that of the error, as at the command line.
    """
    here, there = PROCESSES.Pipe()
    process = PROCESSES.Process(target=_work, args=(there, folder, settings, setup, allowed))
    process.start()
    there.close()
    return process, here


def _work(
    connection: Connection, folder: Path, settings: RunConfig | None, setup: Setup | None, allowed: dict[str, Any]
) -> None:
    torch.set_num_threads(1)
    # Else data workers would be started as this process was.
    multiprocessing.set_start_method(None, force=True)
    try:
        session = resumed(folder, **allowed) if settings is None else started(settings, folder)
        watcher = setup(session, connection) if setup else lambda _event: None
        trained(session, folder, watcher)
        connection.send(("ended", ""))
    except VitrailError as error:
        connection.send((type(error).__name__, str(error)))
        raise SystemExit(error.exit_code) from None


def when_free(folder: Path, seconds: float = 20) -> None:
    """Wait until no process holds the lock of a run: workers that outlive their parent hold it for a while."""
    for _ in range(int(seconds / 0.05)):
        try:
            with only_one(folder / ".lock", busy="not yet"):
                return
        except UsageError:
            time.sleep(0.05)


def last_word(process: BaseProcess, connection: Connection, timeout: float = 60) -> tuple[str, str]:
    """Wait for a process and hear how it ended."""
    word = ("", "")
    try:
        while connection.poll(timeout):
            word = connection.recv()
    except EOFError:
        pass
    process.join(timeout)
    return word
