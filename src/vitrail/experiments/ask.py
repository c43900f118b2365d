"""What someone asks for, whoever asks: a verb, what it is about, and the settings that were given.

Words of a command line and a call from Python both become an `Ask`; several processes of one experiment read the same
one from a file. It decides nothing: `vitrail.experiments.resolve` does.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from vitrail.config import Names, Settings, read_values
from vitrail.config.training import Parallel
from vitrail.errors import UsageError, choose, command, setting
from vitrail.experiments.trackers import Tracker

Options = TypeVar("Options")

KINDS = {
    "train": "vitrail.experiments.train",
    "finetune": "vitrail.experiments.finetune",
    "transfer": "vitrail.experiments.transfer",
    "vtab": "vitrail.experiments.vtab",
    "selftrain": "vitrail.experiments.selftrain",
}
"""Each verb and the module that says what it does: `Options`, `plan`, and `KIND` or its own `begin` and `go_on`."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """What every kind takes: where it is kept, and what computes it."""

    name: str | None = None
    """Of the folder; the recipe and a number if not said."""
    out: str = "runs"
    """The folder that holds the folders of runs."""
    device: str = "auto"
    """cpu, cuda, cuda:1 or mps; auto takes a CUDA GPU where there is one."""
    processes: int | None = None
    """Train in so many processes on this machine, each with its own GPU where there are GPUs; torchrun does as well."""
    parallel: Parallel = "auto"
    """A copy of the network in each process (ddp), a part of it in each (fsdp), or the one that suits its size."""
    or_resume: bool = False
    """Go on with the one of this name if it is there, so that a job can be queued again with the same command."""
    track: Tracker | None = None
    """Also tell TensorBoard or Weights & Biases, run by run."""


@dataclass(frozen=True, kw_only=True)
class Resume:
    """Go on where it stopped."""

    resume: str
    """The folder."""
    processes: int | None = None
    """Go on in so many processes on this machine, each with its own GPU where there are GPUs."""
    parallel: Parallel = "auto"
    """A copy of the network in each process (ddp), or a part of it in each (fsdp)."""
    device: str = "auto"
    """cpu, cuda, cuda:1 or mps."""
    track: Tracker | None = None
    """Tell TensorBoard or Weights & Biases from here on."""
    allow_changed: bool = False
    """Go on even though the config or the data is not what it was."""


_OF_A_RESUME = ("train.micro_batch", "data.workers", "data.root")
"""Settings that may change in a run that goes on, and leave it the same run."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One experiment, asked for."""

    verb: str
    subjects: tuple[str, ...] = ()
    """What it is about: a recipe, a model or several, a teacher."""
    given: Settings = field(default_factory=Settings)
    each: Mapping[str, Settings] = field(default_factory=dict)
    """What was given for one data set alone, by its name."""
    command: str = ""
    """How it was asked, for people: it is kept beside what comes of it."""

    @property
    def kind(self) -> ModuleType:
        """The module of the verb."""
        return kind_module(self.verb)

    @property
    def resumed(self) -> Path | None:
        """The folder to go on with; none for something new."""
        return Path(self.given["resume"]).expanduser() if "resume" in self.given else None

    def options(self, kind: type[Options]) -> Options:
        """What the verb takes besides settings of runs."""
        return self.given.filled(kind)

    @property
    def settings(self) -> Settings:
        """Those of runs."""
        return self.given.of_runs()

    def json(self) -> dict[str, Any]:
        """For a file."""
        each = {name: settings.json() for name, settings in self.each.items()}
        return {
            "verb": self.verb,
            "subjects": list(self.subjects),
            "given": self.given.json(),
            "each": each,
            "command": self.command,
        }


def from_ask_json(values: Mapping[str, Any]) -> Ask:
    """Read an ask back."""
    names = names_of(values["verb"], is_resume="resume" in values["given"])
    return Ask(
        verb=values["verb"],
        subjects=tuple(values["subjects"]),
        given=read_values(values["given"], names),
        each={name: read_values(settings, names) for name, settings in values["each"].items()},
        command=values["command"],
    )


def kind_module(verb: str) -> ModuleType:
    """The module of a verb; an unknown one is an error that suggests another."""
    return importlib.import_module(KINDS[choose("experiment", verb, KINDS)])


def names_of(verb: str, *, is_resume: bool = False) -> Names:
    """The names that a verb takes; of what goes on those that cannot change too, which are not called unknown."""
    module = kind_module(verb)
    return Names(_resumed(module.Options) if is_resume else module.Options, getattr(module, "SHORT", {}))


@cache
def _resumed(kind: type) -> type:
    return make_dataclass("Resumed", (), bases=(Resume, kind), frozen=True, kw_only=True)


def checked(ask: Ask) -> Ask:
    """The ask, unless it holds what this verb does not take, or what cannot change in a run that goes on."""
    if ask.resumed is not None:
        _refuse_changes(ask)
        return ask
    if len(ask.subjects) > 1 and not getattr(ask.kind, "TAKES_SEVERAL", False):
        first, second = ask.subjects[:2]
        name, equals, value = second.partition("=")
        hint = f"Did you mean {setting(name, value)}?" if equals else ""
        raise UsageError(f"both {first!r} and {second!r} are given", wanted="one of them", fix=hint)
    allowed = getattr(ask.kind, "EACH", ())
    for name in (name for given in ask.each.values() for name in given):
        if name == "data.data" or ("." not in name and name not in allowed):
            raise UsageError(f"{setting(name)} is given for one data set alone", wanted="one value for all of them")
    for name, reason in getattr(ask.kind, "NOT_HERE", {}).items():
        if name in ask.given:
            raise UsageError(f"{setting(name)} cannot be set for {ask.verb}: {reason}")
    return ask


def _refuse_changes(ask: Ask) -> None:
    """A run that goes on keeps its config: say so, instead of calling its settings unknown."""
    if ask.subjects:
        raise UsageError(
            f"{ask.subjects[0]!r} came with {setting('resume')}", wanted="the folder alone, which knows what it is"
        )
    alone = "processes" in getattr(ask.kind, "NOT_HERE", {})
    names = [name for name in Names(Resume).plain if not (alone and name in ("processes", "parallel"))]
    known = [*names, *_OF_A_RESUME]
    for name in ask.given:
        if alone and name in ("processes", "parallel"):
            raise UsageError(f"{setting(name)} is given, and this runs in one process", fix="Leave it out.")
        if name not in known:
            beside = ", ".join(setting(one) for one in known if one != "resume")
            raise UsageError(
                f"{setting(name)} cannot change a run that goes on",
                wanted=f"one of {beside} beside {setting('resume')}",
                fix=f"Begin another from its weights with `{command('finetune', 'RUN')}`, or edit its config.json and "
                f"add {setting('allow_changed', True)}.",
            )
