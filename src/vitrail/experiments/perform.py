"""Carry out what was asked for, in this process or as one of those that torchrun started."""

import hashlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from vitrail.errors import UsageError, notice, setting
from vitrail.experiments.ask import Ask, Resume, checked
from vitrail.experiments.audience import Audience
from vitrail.experiments.driver import Driver, How
from vitrail.experiments.experiment import Experiment, ExperimentFolder, read_plan
from vitrail.experiments.folders import Destination, begun_by_this_launch, claimed, ensure_plain_name, mark_launch
from vitrail.experiments.trackers import ensure_tracker
from vitrail.runtime.device import find_device
from vitrail.runtime.processes import joined, own_device
from vitrail.training.events import OnEvent
from vitrail.training.spread import Placement
from vitrail.training.start import Allowed


def perform(ask: Ask, audience: Audience, on_event: OnEvent | None = None) -> tuple[Any, Any]:
    """The folder of the experiment and its result; raises `Stopped` when a signal came, with everything saved."""
    ask = checked(ask)
    resumed = ask.resumed
    options = ask.options(ask.kind.Options if resumed is None else Resume)
    ensure_asked(options)
    _ensure_alone(ask)
    device = own_device(find_device(options.device))
    given = ask.given
    allowed = Allowed()
    if resumed is not None:
        allowed = Allowed(
            changed=options.allow_changed,
            workers=given.get("data.workers"),
            root=given.get("data.root"),
            micro_batch=given.get("train.micro_batch"),
        )
    with joined(device) as processes:
        if options.parallel != "auto" and processes.control is None:
            notice(
                f"{setting('parallel')} is for several processes: add {setting('processes', 2)} or more, or start with "
                "torchrun."
            )
        driver = Driver(
            How(
                device=device,
                placement=Placement(processes=processes, parallel=options.parallel),
                audience=audience,
                on_event=on_event,
                allowed=allowed,
                track=options.track,
                command=ask.command,
                asked=_known_again(ask),
            )
        )
        kind = ask.kind
        if resumed is not None:
            return kind.go_on(resumed, driver) if hasattr(kind, "go_on") else go_on(resumed, driver, kind.KIND)
        return kind.begin(ask, driver) if hasattr(kind, "begin") else begin(ask, driver)


_TIMES: Counter[str] = Counter()


def _known_again(ask: Ask) -> str:
    """The same for the same ask after a restart, and another for the second time in one process."""
    digest = hashlib.sha256(json.dumps({**ask.json(), "command": ""}, sort_keys=True).encode()).hexdigest()[:16]
    _TIMES[digest] += 1
    return f"{digest}-{_TIMES[digest]}"


def begin(ask: Ask, driver: Driver) -> tuple[Any, Any]:
    """A new folder for what a kind plans; kinds whose folders grow or are replaced have a way of their own."""
    options = ask.options(ask.kind.Options)
    before = driver.processes.first_says(lambda: begun_by_this_launch(options.out, driver.how.asked))
    if before is not None:
        return go_on(Path(before), driver, ask.kind.KIND)
    experiment = ask.kind.plan(ask, driver)
    destination = Destination(Path(options.out), options.name or ask.verb, is_exact=bool(options.name))
    with claimed(destination, driver.sources(*driver.opened), driver.processes) as target:
        if driver.processes.is_first:
            mark_launch(target.path, driver.how.asked)
        folder = experiment.at(target.path)
        driver.audience.planned(experiment, folder)
        return folder, driver.drive(experiment, folder)


def go_on(path: Path, driver: Driver, kind: type[Experiment]) -> tuple[Any, Any]:
    """Go on with what is planned in a folder."""
    with driver.processes.together():
        experiment = read_plan(ExperimentFolder(path, kind.verb), kind, f"a {kind.verb}").plan
    return experiment.at(path), driver.drive(experiment, experiment.at(path))


def _ensure_alone(ask: Ask) -> None:
    """Refuse several processes that would all do the same."""
    started = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
    if started > 1 and "processes" in getattr(ask.kind, "NOT_HERE", {}):
        raise UsageError(
            f"{ask.verb} was started in {started} processes", wanted="one", fix="Start it without torchrun."
        )


def ensure_asked(options: Any) -> None:
    """What is wrong with names and numbers is told before anything heavy is done."""
    if options.processes is not None:
        if not 1 <= options.processes <= 1024:
            raise UsageError(f"{setting('processes')} is {options.processes}", wanted="a number from 1 to 1024")
        if "RANK" in os.environ:
            raise UsageError(
                f"{setting('processes')} is given to one of several processes",
                fix="Leave it out: torchrun has its --nproc-per-node.",
            )
    name = getattr(options, "name", None)
    ensure_plain_name(name)
    if getattr(options, "or_resume", False) and not name:
        raise UsageError(
            f"{setting('or_resume')} is given without a name", wanted=f"{setting('name', 'NAME')}, to find it again"
        )
    ensure_tracker(options.track)
