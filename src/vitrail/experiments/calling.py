"""A call from Python: what comes back from it, and what it leaves as it was."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitrail.config import RunConfig, Settings, read_values
from vitrail.config.spelling import KEYWORDS, SHORT
from vitrail.errors import UsageError, VitrailError, notice, setting
from vitrail.experiments.ask import Ask, Resume, checked, names_of
from vitrail.experiments.notebook import finished_html, progress_of_runs
from vitrail.experiments.work import ANSWER, EVENTS, FAILURE, failure_of
from vitrail.runtime.main_guard import end_if_run_again
from vitrail.runtime.progress import showing
from vitrail.training.events import OnEvent, from_record, told_from
from vitrail.training.folder import IN_MEMORY, verb_of
from vitrail.training.log import read_log

if TYPE_CHECKING:
    from vitrail.models import Classifier

_SECONDS_BETWEEN_LOOKS = 0.1
_IN_MEMORY = ("data", "unlabelled")


@dataclass(frozen=True, repr=False)
class Finished:
    """What came of an experiment; everything of it lies in its folder, and is read when it is asked for."""

    verb: str
    folder: Path
    result: Any = field(default=None, repr=False)
    """What was found, as values; none where it has not come to its end."""

    @property
    def accuracy(self) -> float | None:
        """The share of images that it is right about, on test images where there are some; none for a table."""
        return getattr(self.result, "accuracy", None)

    @cached_property
    def model(self) -> "Classifier":
        """The network that was kept, with its weights, labels and preprocessing."""
        from vitrail.weights import load_model

        return load_model(self.folder)

    @property
    def report(self) -> Path | None:
        """The page of it, or of the newest of its runs where the whole has none; none before there is one."""
        pages = [self.folder / "report.html", *sorted(self.folder.glob("*/report.html"), reverse=True)]
        return next((page for page in pages if page.is_file()), None)

    @property
    def history(self) -> Any:
        """What happened, in typed events: a list for a single run, else a list for each run by its folder."""
        runs = {
            str(log.parent.relative_to(self.folder)): [
                event for record in read_log(log) if (event := from_record(record))
            ]
            for log in sorted(self.folder.rglob("log.jsonl"))
        }
        return runs["."] if list(runs) == ["."] else runs

    def __fspath__(self) -> str:
        """A run can stand wherever a model can."""
        return str(self.folder)

    def __repr__(self) -> str:
        state = (
            "not at its end" if self.result is None else f"accuracy={self.accuracy:.4f}" if self.accuracy else "done"
        )
        return f"Finished({str(self.folder)!r}, {self.verb}, {state})"

    def _repr_html_(self) -> str:
        return finished_html(self)

    def resume(self, *, on_event: OnEvent | None = None, **options: Any) -> "Finished":
        """Go on where it stopped; one that has come to its end is given back as it is."""
        return call(self.verb, (), {"resume": str(self.folder), **options}, None, on_event)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What an experiment will take, as far as it can be told before."""

    images: int
    """Seen in training, every time counted."""
    flops: int
    """Of training: six for each multiply-add of the forward pass, as the paper counts (4.4)."""
    seconds: float | None
    """About, of training alone, on this device; none where it could not be tried."""
    memory: int | None
    """Bytes of the largest run on a GPU at its fullest moment; none where that cannot be told."""


@dataclass(frozen=True)
class Planned:
    """An experiment that is decided and not begun; nothing was written."""

    verb: str
    runs: tuple[tuple[str, RunConfig], ...] = field(repr=False)
    """Its runs by folder, as if all of them came out alike."""
    cost: Cost
    _begin: Callable[..., Finished] = field(repr=False)

    @property
    def config(self) -> RunConfig:
        """Of the first run."""
        return self.runs[0][1]

    def start(self, *, on_event: OnEvent | None = None) -> Finished:
        """Begin it."""
        return self._begin(on_event)


def call(
    verb: str,
    subjects: Sequence[Any],
    options: Mapping[str, Any],
    settings: Mapping[str, Any] | None,
    on_event: OnEvent | None,
) -> Finished:
    """Do what a verb does; errors name what was given by its keyword."""
    end_if_run_again()
    with _spelled():
        if on_event is not None and not callable(on_event):
            raise UsageError(f"{setting('on_event')} is {on_event!r}", wanted="a function that takes an event")
        rest = {name: value for name, value in options.items() if name != "progress"}
        ask, memory = _asked(verb, subjects, rest, settings)
        with showing(options.get("progress")), progress_of_runs(on_event) as heard:
            if ask.options(_kind_of(ask)).processes is not None:
                return _in_processes(ask, memory, heard)
            return _here(ask, memory, heard)


def plan(verb: str, *subjects: Any, settings: Mapping[str, Any] | None = None, **options: Any) -> Planned:
    """The same as calling a verb, not started: which runs, with which configs, and what they cost.

    plan = vitrail.plan("finetune", "vit-ti16", data="photos")
    plan.runs, plan.config, plan.cost
    run = plan.start()
    """
    end_if_run_again()
    with _spelled():
        ask, memory = _asked(verb, subjects, options, settings)
        if memory:
            raise UsageError("a plan is asked for with images or a network in memory", wanted="files, or names")
        if ask.resumed is not None:
            raise UsageError(f"a plan is asked for with {setting('resume')}", fix="Its folder has the plan.")
        runs, cost = _undisturbed(lambda: _rehearsed(ask))
    return Planned(verb, runs, cost, lambda heard: call(verb, subjects, options, settings, heard))


# From values to an ask.


def _asked(
    verb: str, subjects: Sequence[Any], options: Mapping[str, Any], settings: Mapping[str, Any] | None
) -> tuple[Ask, dict[str, Any]]:
    """What was asked for, and what of it is in memory."""
    from vitrail.experiments.in_memory import is_in_memory

    if not isinstance(settings or {}, Mapping) or not all(isinstance(name, str) for name in settings or {}):
        raise UsageError(f"settings is {settings!r}"[:200], wanted="a dictionary of names and values")
    given = {name: value for name, value in options.items() if not (value is None and name in _UNSAID)}
    if twice := next((name for name in settings or {} if name in given), None):
        raise UsageError(f"{setting(names_of(verb).full(twice))} is given twice", wanted="one value")
    given |= settings or {}
    names = names_of(verb, is_resume="resume" in given)
    full = [names.full(name) for name in given]
    if twice := next((name for name in full if full.count(name) > 1), None):
        raise UsageError(f"{setting(twice)} is given twice", wanted="one value")
    memory: dict[str, Any] = {}
    for name in _IN_MEMORY:
        # The data sets of a transfer are a list of names.
        if name in given and is_in_memory(given[name]) and verb != "transfer":
            memory[name] = given.pop(name)
    named = []
    if len(subjects) == 1 and isinstance(subjects[0], tuple | list):
        subjects = list(subjects[0])
    for place, subject in enumerate(subjects):
        if is_in_memory(subject):
            memory[f"model-{place}"] = subject
            subject = ""
        named.append(os.fspath(subject))
    if memory and "resume" in given:
        raise UsageError(f"images or a network in memory came with {setting('resume')}", fix="Its folder has them.")
    each: dict[str, dict[str, Any]] = {}
    plain: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, dict) and verb == "transfer":
            for data, one in value.items():
                each.setdefault(str(data), {})[name] = one
        else:
            plain[name] = value
    ask = Ask(
        verb=verb,
        subjects=tuple(named),
        given=read_values(plain, names),
        each={data: read_values(one, names) for data, one in each.items()},
        command=_command(verb, subjects, options, settings),
    )
    return checked(ask), memory


# Keywords that a function has whether something was given or not.
_UNSAID = ("data", "tasks", "unlabelled", "resume")


def _kind_of(ask: Ask) -> type:
    return Resume if ask.resumed is not None else ask.kind.Options


def _command(verb: str, subjects: Sequence[Any], options: Mapping[str, Any], settings: Mapping[str, Any] | None) -> str:
    """The call as it could be written again; what is in memory is named by its kind."""
    said = {name: value for name, value in options.items() if not (value is None and name in _UNSAID)}
    parts = [*map(_written, subjects), *(f"{name}={_written(value)}" for name, value in said.items())]
    if settings:
        parts.append(f"settings={dict(settings)!r}")
    return f"vitrail.{verb}({', '.join(parts)})"


def _written(value: Any) -> str:
    if isinstance(value, os.PathLike):
        return repr(os.fspath(value))
    if isinstance(value, str | int | float | bool | None):
        return repr(value)
    if isinstance(value, tuple | list | dict) and all(
        isinstance(one, str | int | float | bool | None) for one in value
    ):
        return repr(value)
    return f"<{type(value).__name__}>"


# What is in memory is stored first: a run is a function of files.


@contextmanager
def _stored(ask: Ask, memory: Mapping[str, Any]) -> Iterator[Ask]:
    """The ask with everything that is in memory stored in the folder of its run."""
    if not memory:
        yield ask
        return
    if "RANK" in os.environ:
        raise UsageError(
            "images or a network in memory are given to one of several processes",
            wanted=f"files, which all of them read, or {setting('processes')} in place of torchrun",
        )
    from vitrail.experiments.folders import Destination, ensure_plain_name, next_folder
    from vitrail.experiments.in_memory import store_images, store_network

    options = ask.options(ask.kind.Options)
    ensure_plain_name(options.name)
    name, out = options.name or f"{ask.verb}-in-memory", Path(options.out)
    folder = out.expanduser() / name
    may_grow = options.or_resume or getattr(ask.kind, "GROWS", False)
    if not (may_grow and (folder / "config.json").is_file()):
        folder = next_folder(Destination(out, name, is_exact=bool(options.name)), []).path
    subjects, given = list(ask.subjects), {**ask.given, "name": folder.name}
    made: list[Path] = []
    try:
        for name, value in memory.items():
            target = folder.absolute() / IN_MEMORY / name
            made += [] if target.exists() else [target]
            if name.startswith("model-") and ask.verb == "train":
                # Its place is that of a recipe, which the data chooses.
                subjects, given["start"] = [], store_network(value, target)
            elif name.startswith("model-"):
                subjects[int(name.removeprefix("model-"))] = store_network(value, target)
            else:
                given[SHORT.get(name, name)] = store_images(value, target)
        yield replace(ask, subjects=tuple(subjects), given=Settings(given))
    finally:
        # One that can go on needs what it was begun with; of what has not begun, nothing of ours is left.
        if not (folder / "config.json").is_file():
            for target in made:
                shutil.rmtree(target, ignore_errors=True)
            for emptied in (folder / IN_MEMORY, folder):
                with suppress(OSError):
                    emptied.rmdir()


# In this process.


def _here(ask: Ask, memory: Mapping[str, Any], on_event: OnEvent | None) -> Finished:
    from vitrail.experiments.audience import Audience

    def performed() -> Finished:
        from vitrail.experiments.perform import perform

        with _stored(ask, memory) as stored:
            folder, result = perform(stored, Audience(), on_event)
        return Finished(ask.verb, folder.path.absolute(), result)

    return _undisturbed(performed)


def _undisturbed(do: Callable[[], Any]) -> Any:
    """Do it, and leave the process as it was: generators, flags, threads, handlers, warnings, and memory."""
    # Dropout draws from the generator of the process: of two threads that train, one waits.
    with _ONE_AT_A_TIME:
        return _restored(do)


_ONE_AT_A_TIME = threading.RLock()


def _restored(do: Callable[[], Any]) -> Any:
    import torch

    from vitrail.training.whole import nothing_held

    before = _State.now()
    is_main = threading.current_thread() is threading.main_thread()
    try:
        # Libraries that are loaded on the way add filters of their own. There is one list of them for all threads.
        with warnings.catch_warnings() if is_main else nullcontext(), nothing_held():
            return do()
    except VitrailError as error:
        # Frames of what failed would hold the network, and the memory of the GPU with it.
        traceback.clear_frames(error.__traceback__)
        raise
    finally:
        before.restore()
        if torch.cuda.is_initialized():
            from vitrail.runtime.out_of_memory import release_memory

            release_memory()


@dataclass(frozen=True)
class _State:
    """What a training changes in a process, or what its libraries may."""

    python: Any
    torch: Any
    cuda: list[Any]
    numpy: Any
    threads: int
    deterministic: tuple[bool, bool]
    workspace: str | None
    handlers: dict[int, Any]

    @classmethod
    def now(cls) -> "_State":
        """As it is."""
        import numpy as np
        import torch

        is_main = threading.current_thread() is threading.main_thread()
        return cls(
            python=random.getstate(),
            torch=torch.get_rng_state(),
            cuda=torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
            numpy=np.random.get_state(),
            threads=torch.get_num_threads(),
            deterministic=(
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
            ),
            workspace=os.environ.get(_WORKSPACE),
            handlers={one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)} if is_main else {},
        )

    def restore(self) -> None:
        """As it was."""
        import numpy as np
        import torch

        random.setstate(self.python)
        torch.set_rng_state(self.torch)
        if self.cuda:
            torch.cuda.set_rng_state_all(self.cuda)
        np.random.set_state(self.numpy)
        torch.set_num_threads(self.threads)
        torch.use_deterministic_algorithms(self.deterministic[0], warn_only=self.deterministic[1])
        if self.workspace is None:
            os.environ.pop(_WORKSPACE, None)
        else:
            os.environ[_WORKSPACE] = self.workspace
        for one, handler in self.handlers.items():
            with suppress(TypeError):
                signal.signal(one, handler)


_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


@contextmanager
def _spelled() -> Iterator[None]:
    """Errors that leave here name settings by their keywords, and carry the run that can go on."""
    try:
        yield
    except VitrailError as error:
        error.spell(KEYWORDS)
        if error.folder is not None and (Path(error.folder) / "config.json").is_file():
            from vitrail.experiments.kinds import format_of

            folder = Path(error.folder).absolute()
            error.run = Finished(verb_of(format_of(folder)), folder)
        raise


# In several processes.


def _in_processes(ask: Ask, memory: Mapping[str, Any], on_event: OnEvent | None) -> Finished:
    """Start `python -m vitrail.experiments.work`, tell what its first process tells, and raise what it raises."""
    from vitrail.experiments.perform import ensure_asked

    options = ask.options(_kind_of(ask))
    ensure_asked(options)
    with _stored(ask, memory) as stored, tempfile.TemporaryDirectory(prefix="vitrail-") as folder:
        place = Path(folder)
        alone = replace(stored, given=stored.given.without("processes"))
        (place / "ask.json").write_text(json.dumps(alone.json()), encoding="utf-8")
        with (place / "said.txt").open("wb") as said:
            child = subprocess.Popen(
                [sys.executable, "-m", "vitrail.experiments.work", folder, str(options.processes), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        is_asked = _followed(child, place / EVENTS, on_event)
        _raise_failure(child.returncode, place, is_asked=is_asked)
        path = Path(json.loads((place / ANSWER).read_text(encoding="utf-8"))["folder"]).absolute()
    # Whatever it found is in its folder, and is only read here.
    if (found := getattr(ask.kind, "found", None)) is not None:
        return Finished(ask.verb, path, found(path))
    again = Ask(verb=ask.verb, given=Settings({"resume": str(path), "device": "cpu"}), command=ask.command)
    return _here(again, {}, None)


def _followed(child: "subprocess.Popen[bytes]", events: Path, on_event: OnEvent | None) -> bool:
    """Until the processes have ended, tell what they tell; returns whether they were asked to stop."""
    read = 0
    try:
        with _handing_on(child) as heard:
            while True:
                has_ended = child.poll() is not None
                read = _tell_new(events, read, on_event)
                if has_ended:
                    return bool(heard)
                time.sleep(_SECONDS_BETWEEN_LOOKS)
    except BaseException:
        # A mistake in `on_event`, or a second Ctrl-C: nobody is left behind.
        child.terminate()
        child.wait()
        raise


@contextmanager
def _handing_on(child: "subprocess.Popen[bytes]") -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM are for the processes, who save and end; a second Ctrl-C is for this one."""
    heard: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield heard
        return

    def hand_on(number: int, _frame: Any) -> None:
        if number == signal.SIGINT and heard:
            raise KeyboardInterrupt
        heard.append(number)
        child.send_signal(number)

    before = {number: signal.signal(number, hand_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            with suppress(TypeError):
                signal.signal(number, handler)


def _tell_new(events: Path, read: int, on_event: OnEvent | None) -> int:
    """Tell the lines that are new and whole; returns how many bytes were read."""
    if not events.is_file():
        return read
    with events.open("rb") as file:
        file.seek(read)
        whole = file.read().rpartition(b"\n")[0]
    if not whole:
        return read
    for line in whole.split(b"\n"):
        values = json.loads(line)
        if "notice" in values:
            notice(values["notice"])
        elif on_event is not None and (event := told_from(values["event"])) is not None:
            on_event(event)
    return read + len(whole) + 1


def _raise_failure(code: int, place: Path, *, is_asked: bool) -> None:
    """What the process that failed first said; one that is only gone has left that to another."""
    if not code:
        return
    found = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(place.glob(FAILURE.format(rank="*")))]
    ours = sorted((one for one in found if "came" in one), key=lambda one: one["kind"] in _LEFT_BEHIND)
    faults = [one["traceback"] for one in found if "traceback" in one]
    if faults and (not ours or ours[0]["kind"] in _LEFT_BEHIND):
        raise RuntimeError(f"one of the processes failed:\n{faults[0]}")
    if ours:
        raise failure_of(ours[0])
    if is_asked:
        # Before there was anything to save.
        raise KeyboardInterrupt
    printed = (place / "said.txt").read_text(encoding="utf-8", errors="replace").strip()
    raise RuntimeError(
        f"the processes ended with {code} and said nothing of ours; the last they printed:\n{printed[-3000:]}"
    )


_LEFT_BEHIND = ("LostProcess", "Standstill")


# What a plan costs.


def _rehearsed(ask: Ask) -> tuple[tuple[tuple[str, RunConfig], ...], Cost]:
    from vitrail.experiments.cost import cost_of
    from vitrail.experiments.driver import Driver, How
    from vitrail.experiments.experiment import rehearsed
    from vitrail.experiments.perform import ensure_asked
    from vitrail.runtime.device import find_device

    options = ask.options(ask.kind.Options)
    ensure_asked(options)
    driver = Driver(How(device=find_device(options.device), command=ask.command))
    driver.is_rehearsing = True
    experiment = ask.kind.plan(ask, driver)
    folder = experiment.at(Path(options.out).expanduser() / (options.name or ask.verb))
    runs, _ = rehearsed(experiment, folder, driver)
    return tuple(runs), cost_of(runs, driver)
