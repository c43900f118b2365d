"""What people type: words become an ask, and what does not fit is told in a sentence."""

import inspect
import json
import math
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, get_origin

import tyro

from vitrail.cli.words import is_option
from vitrail.config import (
    AugmentConfig,
    DataConfig,
    MaskingConfig,
    ModelConfig,
    Names,
    OptimConfig,
    ScheduleConfig,
    TrainConfig,
    read_texts,
)
from vitrail.config.settings import can_be, most_texts
from vitrail.config.spelling import SHORT
from vitrail.config.training import Parallel
from vitrail.errors import UsageError
from vitrail.experiments.ask import Ask, Resume, checked, names_of

if TYPE_CHECKING:
    from vitrail.experiments.audience import Audience
    from vitrail.recipes import Recipe

Model = TypeVar("Model")

Texts = dict[str, list[str] | bool]
"""What was typed behind each option, by its full name; of a switch, whether it is on."""


class Each:
    """Says what may be typed for one data set alone, as NAME=VALUE; here nothing."""

    def takes(self, option: str) -> bool:
        """Whether an option may."""
        return False

    def separate(self, texts: Texts) -> tuple[Texts, Mapping[str, Texts]]:
        """What is for all, and what is for one, by its name."""
        return texts, {}


_NOTHING = Each()


def read_ask(verb: str, words: Sequence[str], each: Each = _NOTHING) -> Ask:
    """What was typed, as an ask; names and values are checked against the settings there are."""
    names = names_of(verb, is_resume=is_resume(words))
    subjects, typed = parsed(words, names, each)
    texts, own = each.separate(typed)
    return checked(
        Ask(
            verb=verb,
            subjects=tuple(subjects),
            given=read_texts(texts, names),
            each={name: read_texts(one, names) for name, one in own.items()},
            command=command_line(),
        )
    )


def is_resume(words: Sequence[str]) -> bool:
    """Whether a run is to go on, and none begun."""
    return any(word == "--resume" or word.startswith("--resume=") for word in words)


def is_help(words: Sequence[str]) -> bool:
    """Whether someone asks what there is."""
    return bool({"-h", "--help"} & set(words))


def command_line() -> str:
    """What was typed, so that it can be typed again."""
    program = Path(sys.argv[0]).name
    return shlex.join(["vitrail" if program in ("__main__.py", "vitrail") else program, *sys.argv[1:]])


def parsed(words: Sequence[str], names: Names, each: Each = _NOTHING) -> tuple[list[str], Texts]:
    """The words that belong to no option, and what was typed behind each option; of one typed twice the last counts.

    Options may stand anywhere: their types say how many words each takes. Behind a bare -- there are none. What can be
    said for one data set alone takes any number of NAME=VALUE, which leave what was typed for the others before.
    """
    free: list[str] = []
    texts: Texts = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            return free + waiting, texts
        if not is_option(word):
            free.append(word)
            continue
        if not word.startswith("--"):
            raise UsageError(f"there is no option {word!r}", fix="Options begin with two hyphens; behind -- none do.")
        written, equals, value = word.partition("=")
        name, is_on = _switch(written.removeprefix("--"), names)
        if not is_on and equals:
            raise UsageError(f"{written} is {value!r}", wanted="no value")
        if names.is_switch(name) and not equals:
            texts[name] = is_on
            continue
        takes_each = each.takes(name)
        values = [value] if equals else list(_values(waiting, names.hints(name), takes_each))
        if takes_each and values and all("=" in one for one in values):
            before = texts.get(name, [])
            values = [*(before if isinstance(before, list) else []), *values]
        texts[name] = values
    return free, texts


def _switch(written: str, names: Names) -> tuple[str, bool]:
    """The full name of an option, and whether a switch of that name is put on: --no-compile puts it off."""
    group, dot, last = written.replace("-", "_").rpartition(".")
    if last.startswith("no_"):
        try:
            if names.is_switch(name := names.full(f"{group}{dot}{last.removeprefix('no_')}")):
                return name, False
        except UsageError:
            pass
    return names.full(written), True


def _values(waiting: list[str], hints: Sequence[Any], takes_each: bool) -> Iterator[str]:
    """The words behind an option that are its own."""
    most, is_first = most_texts(hints), True
    while waiting and not is_option(waiting[0]):
        is_for_one = takes_each and "=" in waiting[0]
        if most < 1 and not is_for_one:
            return
        # The first is its own whatever it is, so that it is told what is wrong with it.
        if math.isinf(most) and not is_for_one and not is_first and not can_be(hints, waiting[0]):
            return
        is_first = False
        yield waiting.pop(0)
        most -= 0 if is_for_one else 1


@contextmanager
def told_once() -> Iterator[None]:
    """The same data is opened for every run; what is odd about it is told once."""
    show: Any = warnings.showwarning
    told: set[str] = set()

    def show_new(message: Warning | str, *rest: Any, **more: Any) -> None:
        if str(message) not in told:
            told.add(str(message))
            show(message, *rest, **more)

    warnings.showwarning = show_new
    try:
        yield
    finally:
        warnings.showwarning = show


def carry_out(ask: Ask, audience: "Callable[[], Audience]") -> None:
    """Do what was asked, in this process or in as many as were asked for, with someone who tells of it."""
    options = ask.options(Resume if ask.resumed is not None else ask.kind.Options)
    if options.processes is None:
        from vitrail.experiments.perform import perform

        with told_once():
            perform(ask, audience())
        return
    from vitrail.experiments.perform import ensure_asked
    from vitrail.runtime.launch import launch

    ensure_asked(options)
    with TemporaryDirectory(prefix="vitrail-") as folder:
        # All of them read the same bytes.
        alone = replace(ask, given=ask.given.without("processes"))
        Path(folder, "ask.json").write_text(json.dumps(alone.json()), encoding="utf-8")
        launch("vitrail.cli.work", [folder], options.processes)


# Help. What is typed is read above; here tyro only writes down what there is.


@dataclass(frozen=True, kw_only=True)
class Settable(Generic[Model]):
    """The settings of a run, with the values that they have where nothing is said."""

    data: Annotated[DataConfig, tyro.conf.arg(name="")]
    model: Model
    optim: OptimConfig
    schedule: ScheduleConfig
    train: TrainConfig
    augment: AugmentConfig = field(default_factory=AugmentConfig)


@dataclass(frozen=True, kw_only=True)
class MaskedSettable(Settable[Model]):
    """The same of a run that learns without labels."""

    masking: MaskingConfig


@dataclass(frozen=True, kw_only=True)
class ResumeHelp(Resume):
    """Go on where it stopped: everything is as it was, but for these."""

    micro_batch: int | None = None
    """Another number of images at a time in each process; the batch stays the same."""
    workers: int | None = None
    """Another number of processes that read images; the run stays the same."""
    root: str | None = None
    """Another place of the files of a known data set."""


@dataclass(frozen=True, kw_only=True)
class ResumeAloneHelp(ResumeHelp):
    """Go on where it stopped: everything is as it was, but for these."""

    processes: Annotated[int | None, tyro.conf.Suppress] = None
    parallel: Annotated[Parallel, tyro.conf.Suppress] = "auto"


def settable(
    chosen: "Recipe", network: ModelConfig, *, data: str | None = None, held_out: float | None = None
) -> dict[str, Any]:
    """The settings of a run by a recipe, as help shows them."""
    known: dict[str, Any] = {
        "data": DataConfig(data=data or tyro.MISSING, held_out=held_out, labelled=chosen.masking is None),
        "model": network,
        "optim": chosen.optim,
        "schedule": chosen.schedule,
        "train": chosen.train,
        "augment": chosen.augment,
    }
    return known if chosen.masking is None else {**known, "masking": chosen.masking}


def show_help(kind: Any, prog: str, about: str, default: Any = None, short: Mapping[str, str] = SHORT) -> None:
    """Print what may be typed, and end."""
    # Help shows the settings of data by their short names anyway.
    pairs = {one: name.removeprefix("data.") for one, name in short.items()}
    names = [f"--{one} for --{name}".replace("_", "-") for one, name in pairs.items() if one != name]
    shorts = f"Short names: {', '.join(names)}. " if names else ""
    tyro.cli(
        kind,
        args=["--help"],
        prog=prog,
        description=f"{inspect.cleandoc((get_origin(kind) or kind).__doc__ or '')}\n\n{shorts}{about}",
        default=default,
        config=(tyro.conf.AvoidSubcommands,),
    )
