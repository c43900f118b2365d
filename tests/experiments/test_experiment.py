"""What every kind of experiment has for nothing, seen in a made-up one of a few lines."""

import json
import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.experiments.conftest import TrainingAs, config
from tests.reports.reader import Reader
from tests.training.tiny_run import CPU

from vitrail.config import RunConfig
from vitrail.errors import DataError, DiskError, UsageError, VitrailError
from vitrail.experiments.audience import Audience
from vitrail.experiments.driver import Driver, How
from vitrail.experiments.experiment import (
    Ended,
    Experiment,
    ExperimentFolder,
    Part,
    Run,
    Steps,
    Work,
    read_plan,
    rehearsed,
    write_found,
)
from vitrail.training.divergence import Diverged
from vitrail.training.finish import Outcome
from vitrail.training.folder import RunFolder
from vitrail.training.run import run
from vitrail.training.session import Session
from vitrail.training.stopping import Stopped

HEARD: list[Ended] = []
"""What the steps were answered, in every life of an experiment."""


@pytest.fixture(autouse=True)
def _nothing_heard() -> None:
    HEARD.clear()


@dataclass(frozen=True, kw_only=True)
class Choosing(Experiment[str]):
    """One run that looks, and then one of two."""

    verb: ClassVar[str] = "choose"
    config: RunConfig
    rates: tuple[float, ...] = (0.01,)
    """Of what looks: a run each."""
    bound: float = 0.0
    """An accuracy; from it on the run on the left is next."""
    is_kept: bool = True

    def steps(self, folder: ExperimentFolder) -> Steps[str]:
        best = 0.0
        for rate in self.rates:
            looking = replace(self.config, optim=replace(self.config.optim, lr=rate))
            ended = yield Run(
                folder=f"look/{rate!r}", title="", config=looking, forgives=(Diverged,), is_kept=self.is_kept
            )
            HEARD.append(ended)
            best = max(best, ended.metrics["accuracy"] if ended.metrics else 0.0)
        way = "left" if best >= self.bound else "right"
        HEARD.append((yield Run(folder=way, title=way, config=self.config)))
        return way

    def finish(self, folder: ExperimentFolder, result: str, driver: Driver) -> None:
        write_found(self, folder, result)


@dataclass(frozen=True, kw_only=True)
class Several(Experiment[list[Any]]):
    """Experiments, one after the other, and a piece of work."""

    verb: ClassVar[str] = "several"
    parts: dict[str, Choosing]
    forgives: tuple[type[VitrailError], ...] = (VitrailError,)
    problems: dict[str, VitrailError] = field(default_factory=dict)
    after: Callable[[Driver, Experiment, Any], None] | None = None

    def has_begun(self, folder: ExperimentFolder) -> bool:
        return any(folder.path.glob("*/config.json"))

    def steps(self, folder: ExperimentFolder) -> Steps[list[Any]]:
        found = []
        for name, part in self.parts.items():
            ended = yield Part(
                folder=name,
                title=f"part {name}",
                make=lambda _driver, part=part: part,
                forgives=self.forgives,
                problem=self.problems.get(name),
                after=self.after,
            )
            found.append(ended)
        return [*found, (yield Work(title="counting", do=lambda _driver: len(found), alike="so many"))]


class Counting:
    """Trains, and notes what; may do something else at one of them."""

    def __init__(self, at: str = "", instead: Callable[[], None] = lambda: None) -> None:
        self.trained: list[str] = []
        self._at, self._instead = at, instead

    def __call__(self, session: Session, folder: RunFolder, step: Run) -> Outcome:
        self.trained.append(step.folder)
        if step.folder == self._at:
            self._instead()
        return run(session, folder, lambda _event: None)


def pressed() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def failing(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@pytest.fixture(scope="session")
def small(source: Path, data: Path) -> RunConfig:
    return config(source, data, log_every=1)


def drive(experiment: Experiment, path: Path, train: Counting, **how: Any) -> Any:
    return TrainingAs(train, How(device=CPU, **how)).drive(experiment, experiment.at(path))


@pytest.mark.parametrize(("bound", "way", "other"), [(0.0, "left", "right"), (1.1, "right", "left")])
def test_what_a_run_was_measured_to_be_decides_on_the_next(small: RunConfig, tmp_path: Path, bound, way, other):
    train = Counting()
    assert drive(Choosing(config=small, bound=bound), tmp_path / "x", train) == way
    assert train.trained == ["look/0.01", way]
    assert not (tmp_path / "x" / other).exists()
    first = HEARD[0]
    assert first.done is not None and first.metrics is not None and first.failure is None
    assert (first.folder, first.metrics["images"], first.done["split"]) == ("look/0.01", 12, "test")
    assert first.seconds == first.done["seconds"] > 0
    assert json.loads((tmp_path / "x/result.json").read_text()) == way
    # All runs beside each other.
    page = Reader((tmp_path / "x/report.html").read_text(encoding="utf-8"))
    shown = ("left", "0.01") if way == "left" else ("0.01", "right")
    assert re.search(rf"A\s+{shown[0]}B\s+{shown[1]}run", page.words)


def test_after_a_stop_the_steps_are_asked_again_and_answered_from_disk(small: RunConfig, tmp_path: Path):
    folder, plan = ExperimentFolder(tmp_path / "x", "choose"), Choosing(config=small, bound=1.1)
    with pytest.raises(Stopped) as stopped:
        drive(plan, folder.path, Counting("right", pressed), command="vitrail choose mine")
    assert str(stopped.value).endswith(f"To go on: vitrail choose --resume {folder.path}.")
    assert stopped.value.folder == folder.path
    assert not folder.result.exists()
    before = HEARD.copy()
    assert [ended.folder for ended in before] == ["look/0.01"]
    record = read_plan(folder, Choosing, "a choice")
    assert (record.plan, record.command, record.format) == (plan, "vitrail choose mine", "vitrail-choose/1")
    HEARD.clear()
    train = Counting()
    assert drive(record.plan, folder.path, train, command="vitrail choose --resume x") == "right"
    # The first is not done again, and its answer is the very same.
    assert train.trained == ["right"]
    assert HEARD[0] == before[0]
    assert read_plan(folder, Choosing, "a choice").command == "vitrail choose mine"
    HEARD.clear()
    train = Counting()
    assert drive(record.plan, folder.path, train) == "right"
    assert train.trained == [] and [ended.folder for ended in HEARD] == ["look/0.01", "right"]


def test_a_signal_between_two_runs_is_heard(small: RunConfig, tmp_path: Path):
    class Pressing(Audience):
        def ended(self, *_anything: object) -> None:
            pressed()

    train = Counting()
    with pytest.raises(Stopped, match=r"between two runs.*vitrail choose --resume"):
        drive(Choosing(config=small), tmp_path / "x", train, audience=Pressing())
    assert train.trained == ["look/0.01"] and not (tmp_path / "x/left").exists()


def test_a_forgiven_failure_is_an_answer_and_stays_one(small: RunConfig, tmp_path: Path):
    plan = Choosing(config=small, rates=(1e38, 0.01), is_kept=False)
    assert drive(plan, tmp_path / "x", Counting()) == "left"
    lost, good, last = HEARD
    assert isinstance(lost.failure, Diverged)
    assert (lost.done, lost.metrics) == (None, None)
    assert good.failure is None and last.failure is None
    # What was only to choose by cannot go on, and what was not can.
    assert not list((tmp_path / "x/look").glob("*/checkpoints")) and (tmp_path / "x/left/checkpoints").is_dir()
    HEARD.clear()
    train = Counting()
    assert drive(plan, tmp_path / "x", train) == "left"
    assert train.trained == []
    assert isinstance(HEARD[0].failure, Diverged) and HEARD[1:] == [good, last]


def test_what_is_not_forgiven_ends_it_and_keeps_what_was_done(small: RunConfig, tmp_path: Path):
    with pytest.raises(DataError, match="a bad image") as found:
        drive(Choosing(config=small), tmp_path / "x", Counting("look/0.01", failing(DataError("a bad image"))))
    assert found.value.folder == tmp_path / "x"
    # It had begun: the plan is there.
    train = Counting()
    assert drive(Choosing(config=small), tmp_path / "x", train) == "left"
    assert train.trained == ["look/0.01", "left"]


def unable(small: RunConfig) -> RunConfig:
    return replace(small, optim=replace(small.optim, freeze=99))


def test_a_plan_that_cannot_begin_leaves_no_folder(small: RunConfig, tmp_path: Path):
    train = Counting()
    with pytest.raises(UsageError, match="freeze is 99"):
        drive(Choosing(config=unable(small)), tmp_path / "runs/x", train)
    assert train.trained == []
    assert not (tmp_path / "runs/x").exists()
    several = Several(parts={"a": Choosing(config=unable(small))}, forgives=())
    with pytest.raises(UsageError, match="freeze is 99"):
        drive(several, tmp_path / "runs/y", train)
    assert not (tmp_path / "runs/y").exists()


def test_what_others_put_there_is_left(small: RunConfig, tmp_path: Path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x/notes.txt").touch()
    with pytest.raises(UsageError, match="freeze is 99"):
        drive(Choosing(config=unable(small)), tmp_path / "x", Counting())
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["notes.txt"]


def test_a_rehearsal_lists_the_runs_and_does_nothing(small: RunConfig, tmp_path: Path):
    train = Counting()
    driver = TrainingAs(train, How(device=CPU))
    plan = Choosing(config=small, rates=(0.01, 0.1), bound=0.5)
    runs, result = rehearsed(plan, plan.at(tmp_path / "x"), driver)
    # As if every run came out alike, with nothing right.
    assert [name for name, _ in runs] == ["look/0.01", "look/0.1", "right"]
    assert [config.optim.lr for _, config in runs] == [0.01, 0.1, small.optim.lr]
    assert result == "right"
    several = Several(parts={"a": plan, "b": replace(plan, rates=(0.1,), bound=0.0)})
    runs, result = rehearsed(several, several.at(tmp_path / "y"), driver)
    assert [name for name, _ in runs] == ["a/look/0.01", "a/look/0.1", "a/right", "b/look/0.1", "b/left"]
    assert [ended.result for ended in result[:-1]] == ["right", "left"] and result[-1] == "so many"
    assert train.trained == [] and list(tmp_path.iterdir()) == []


class Failures(Audience):
    """Notes which parts came to nothing, and how often a whole has ended."""

    def __init__(self) -> None:
        self.failures: list[tuple[str, str]] = []
        self.results: list[str] = []

    def failed(self, _experiment: Experiment, part: Part | Run, error: VitrailError) -> None:
        self.failures.append((part.title, str(error)))

    def result(self, experiment: Experiment, _result: Any, _folder: object) -> None:
        self.results.append(experiment.verb)


def test_a_part_that_fails_does_not_take_the_others_with_it(small: RunConfig, tmp_path: Path):
    good = Choosing(config=small)
    several = Several(
        parts={"a": Choosing(config=unable(small)), "b": good, "c": good}, problems={"c": DataError("not there")}
    )
    heard, train = Failures(), Counting()
    first, second, third, count = drive(several, tmp_path / "x", train, audience=heard)
    assert isinstance(first.failure, UsageError) and first.result is None
    assert (second.failure, second.result, second.experiment, second.is_old) == (None, "left", good, False)
    assert isinstance(third.failure, DataError)
    assert count == 3
    assert [title for title, _ in heard.failures] == ["part a", "part c"]
    assert heard.results == ["choose", "several"]
    assert sorted(path.name for path in (tmp_path / "x").iterdir() if path.is_dir()) == ["b"]
    # Again: nothing of what is done.
    train = Counting()
    assert [ended.is_old for ended in drive(several, tmp_path / "x", train)[:-1]] == [False, True, False]
    assert train.trained == []


@pytest.mark.parametrize("error", [DiskError("no space"), Stopped("stopped")])
def test_a_full_disk_and_a_stop_are_never_forgiven(small: RunConfig, tmp_path: Path, error: VitrailError):
    plan = Choosing(config=small)
    train = Counting("look/0.01", failing(error))
    with pytest.raises(type(error)) as found:
        drive(Several(parts={"a": plan, "b": plan}), tmp_path / "x", train)
    assert train.trained == ["look/0.01"] and not (tmp_path / "x/b").exists()
    # Who wants to go on wants to go on with the whole.
    assert found.value.folder == tmp_path / "x"


def test_a_part_that_is_stopped_names_the_whole(small: RunConfig, tmp_path: Path):
    with pytest.raises(Stopped, match=rf"vitrail several --resume {tmp_path / 'x'}\.$"):
        drive(Several(parts={"a": Choosing(config=small)}), tmp_path / "x", Counting("left", pressed))


def test_what_comes_after_a_part_may_fail_with_it(small: RunConfig, tmp_path: Path):
    def refuse(_driver: Driver, part: Experiment, result: Any) -> None:
        assert part.verb == "choose"
        raise DataError(f"{result} cannot be counted")

    [ended, _] = drive(Several(parts={"a": Choosing(config=small)}, after=refuse), tmp_path / "x", Counting())
    assert str(ended.failure) == "left cannot be counted."
