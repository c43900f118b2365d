"""Scalars of a run for TensorBoard or Weights & Biases, where they are asked for."""

import importlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

from vitrail.errors import UsageError, choose, notice
from vitrail.training.events import Done, Evaluated, Event, FewShotScored, RolledBack, Trained
from vitrail.training.log import Watcher

Tracker = Literal["tensorboard", "wandb"]

_LIBRARIES: dict[Tracker, str] = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb"}


@contextmanager
def tracking(kind: Tracker | None, folder: Path, config: dict[str, Any], *, step: int = 0) -> Iterator[Watcher]:
    """Send the scalars of a run to a tracker, which keeps its files in the run's folder.

    A run that goes on says from which `step`: what was tracked after it is about to be done again.
    """
    if kind is None:
        yield several()
        return
    opened: dict[Tracker, Callable[..., AbstractContextManager[Watcher]]] = {
        "tensorboard": _tensorboard,
        "wandb": _wandb,
    }
    choose("tracker", kind, get_args(Tracker))
    with opened[kind](folder, config, step) as watcher:
        yield _Harmless(kind, watcher)


def ensure_tracker(kind: Tracker | None) -> None:
    """A library that is missing is told before there is a folder, or any image is read."""
    if kind is not None:
        _library(_LIBRARIES[kind])


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise _missing(name.rpartition(".")[2]) from error


def several(*watchers: Watcher) -> Watcher:
    """One watcher that tells all."""

    def tell(event: Event) -> None:
        for watcher in watchers:
            watcher(event)

    return tell


def scalars(event: Event) -> dict[str, float]:
    """The numbers of an event by the names they are tracked under; most events have none."""
    match event:
        case Trained():
            return {
                "train/loss": event.loss,
                "train/accuracy": event.accuracy,
                "train/learning_rate": event.learning_rate,
                "speed/images_per_second": event.images_per_second,
                "speed/data_wait": event.data_wait,
            }
        case Evaluated():
            return {"held_out/accuracy": event.accuracy, "held_out/loss": event.loss}
        case FewShotScored():
            return {f"few_shot/{event.shots}_shot_accuracy": event.accuracy}
        case Done(split="test", metrics=dict(metrics)):
            return {"test/accuracy": metrics["accuracy"]}
    return {}


class _Harmless:
    """A watcher whose failure is told once and does not end the run."""

    def __init__(self, kind: Tracker, watcher: Watcher) -> None:
        self._kind, self._watcher = kind, watcher

    def __call__(self, event: Event) -> None:
        try:
            self._watcher(event)
        except Exception as error:
            self._watcher = several()
            notice(f"{self._kind} failed ({error}), so nothing more is tracked; the run and its log.jsonl go on")


@contextmanager
def _tensorboard(folder: Path, config: dict[str, Any], step: int) -> Iterator[Watcher]:
    library = _library(_LIBRARIES["tensorboard"])

    def opened(after: int) -> Any:
        # Steps that are done again hide what was written of them before.
        return library.SummaryWriter(str(folder), purge_step=after + 1 if after else None)

    writer = opened(step)
    if not step:
        writer.add_text("config", f"```\n{json.dumps(config, indent=2)}\n```")

    def hear(event: Event) -> None:
        nonlocal writer
        for name, value in scalars(event).items():
            writer.add_scalar(name, value, event.step)
        if isinstance(event, RolledBack):
            writer.close()
            writer = opened(event.step)

    try:
        yield hear
    finally:
        writer.close()


@contextmanager
def _wandb(folder: Path, config: dict[str, Any], _step: int) -> Iterator[Watcher]:
    wandb = _library(_LIBRARIES["wandb"])
    # Nothing leaves the machine unless the user set W&B up for it; its copying of the terminal would break our view.
    is_set_up = os.environ.keys() & {"WANDB_MODE", "WANDB_API_KEY"}
    try:
        run = wandb.init(
            project="vitrail",
            group=folder.name,
            dir=str(folder),
            config=config,
            mode=None if is_set_up else "offline",
            settings=wandb.Settings(console="off"),
        )
    except Exception as error:
        raise UsageError(
            f"wandb could not start ({error})", fix="Set WANDB_MODE=offline, or track without it"
        ) from error
    with run:
        # Its own count of steps cannot go back, as a run does after losses that were not finite.
        run.define_metric("*", step_metric="step")

        def hear(event: Event) -> None:
            if found := scalars(event):
                run.log({"step": event.step, **found})

        yield hear


def _missing(library: str) -> UsageError:
    return UsageError(f"tracking with {library} needs a library that is missing", fix="pip install 'vitrail[track]'")
