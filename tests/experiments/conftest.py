"""What the tests of experiments share: tiny networks to start from and to be taught by, and tiny images."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.data.conftest import state_of
from tests.experiments.selftrain_small import teacher_folder
from tests.tiny_fixtures import _one_thread as _one_thread
from tests.tiny_fixtures import _own_cache as _own_cache
from tests.training.tiny_run import CPU, make_images

import vitrail
from vitrail.config import (
    AugmentConfig,
    DataConfig,
    ModelConfig,
    OptimConfig,
    RunConfig,
    ScheduleConfig,
    TrainConfig,
    VitConfig,
    preset,
)
from vitrail.experiments.driver import Driver, How
from vitrail.experiments.experiment import Experiment, Run
from vitrail.experiments.finetune import FinetuneFolder, Plan, Result, read_finetuning
from vitrail.experiments.start import read_start
from vitrail.training.events import Event, Stepped
from vitrail.training.finish import Outcome
from vitrail.training.folder import RunFolder
from vitrail.training.run import run
from vitrail.training.session import Session

CLASSES = ("ant", "bee", "cow", "dog")
SMALL = VitConfig(width=32, depth=2, num_heads=2, mlp_width=64, patch_size=(4, 4), image_size=(8, 8), num_classes=7)


def save_network(path: Path, config: ModelConfig = SMALL, labels: tuple[str, ...] | None = None, seed: int = 3) -> Path:
    """A model folder with weights of its own; its head is not zero."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = vitrail.create_model(config)
        torch.nn.init.normal_(model.head.weight, std=0.1)  # type: ignore[union-attr]
    model.labels, model.preprocessing = labels, preset("google")
    vitrail.save_model(model, path)
    return path


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network that knows seven other classes."""
    return save_network(tmp_path_factory.mktemp("source") / "model")


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 images to learn from and 12 to test on."""
    root = tmp_path_factory.mktemp("data")
    make_images(root / "train", per_class=10)
    make_images(root / "test", per_class=3)
    return root


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`labelled` in class folders, `loose` without classes, and a `teacher`."""
    home = tmp_path_factory.mktemp("place")
    make_images(home / "labelled", per_class=6)
    make_images(home / "more", per_class=9, first=100)
    (home / "loose" / "deep").mkdir(parents=True)
    for number, file in enumerate(sorted((home / "more").rglob("*.png"))):
        shutil.copy(file, home / "loose" / ("deep" if number % 2 else ".") / f"{number:02}.png")
    teacher_folder(home / "teacher")
    return home


@pytest.fixture(autouse=True)
def _untouched(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that is given `place` leaves its images as they were."""
    homes = [request.getfixturevalue("place")] if "place" in request.fixturenames else []
    images = [home / name for home in homes for name in ("labelled", "loose", "more")]
    before = [state_of(folder) for folder in images]
    yield
    assert [state_of(folder) for folder in images] == before


def config(source: Path, data: Path, held_out: float | None = 0.2, **train: object) -> RunConfig:
    """A run of five steps."""
    values = {"batch_size": 16, "loss": "softmax", "steps": 5, "keep": "last", "evaluate_every": 99, **train}
    return RunConfig(
        recipe="tiny",
        model=read_start(str(source)).network(CLASSES, (8, 8)),
        preprocessing=preset("google"),
        data=DataConfig(data=str(data), held_out=held_out, workers=0),
        augment=AugmentConfig(crop="whole", flip=True),
        optim=OptimConfig(optimizer="sgd", lr=0.1, clip=1.0),
        schedule=ScheduleConfig(decay="cosine", warmup_share=0.1),
        train=TrainConfig(**values),  # type: ignore[arg-type]
        start=str(source),
    )


Train = Callable[[Session, RunFolder, Run], Outcome]
"""Trains in the place of a driver."""
Watch = Callable[[Run, Event], None]
"""Is told the events of every run."""


class TrainingAs(Driver):
    """A driver that trains as a test says, and writes no pages of runs."""

    def __init__(self, train: Train, how: How | None = None) -> None:
        super().__init__(how or How(device=CPU))
        self._train = train

    def train(self, session: Session, folder: RunFolder, run: Run) -> Outcome:
        return self._train(session, folder, run)


def driven(experiment: Experiment, folder: Path, train: Train) -> Any:
    """Carry an experiment out with a training of one's own."""
    return TrainingAs(train).drive(experiment, experiment.at(folder))


def carried_out(
    plan: Plan | None, folder: Path, watch: Watch | None = None, seen: list[Session] | None = None
) -> Result:
    """Carry a plan out, or go on with the one in the folder."""

    def train(session: Session, run_folder: RunFolder, planned: Run) -> Outcome:
        if seen is not None:
            seen.append(session)
        return run(session, run_folder, lambda event: watch(planned, event) if watch else None)

    return driven(plan or read_finetuning(FinetuneFolder(folder)).plan, folder, train)


def stopping_at(name: str, step: int) -> Watch:
    """Someone presses Ctrl-C in the run of this folder, after this step."""

    def watch(planned: Run, event: Event) -> None:
        if planned.folder == name and event == Stepped(step=step):
            os.kill(os.getpid(), signal.SIGINT)

    return watch
