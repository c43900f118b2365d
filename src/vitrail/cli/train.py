"""`vitrail train`: pre-training and training from scratch, and going on with any run."""

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import tyro

from vitrail.cli.training import (
    Destination,
    Track,
    beginning,
    checking,
    for_data,
    for_device,
    located,
    next_folder,
    say_plan,
    settle_threads,
    train_and_report,
)
from vitrail.cli.words import (
    SHORT_NAMES,
    is_given,
    is_resume,
    positional,
    refuse_changes,
    refuse_derived,
    with_short_names,
)
from vitrail.config import AugmentConfig, DataConfig, OptimConfig, RunConfig, ScheduleConfig, TrainConfig
from vitrail.config.values import replace
from vitrail.data.sources.files import user_path
from vitrail.errors import UsageError
from vitrail.recipes import RECIPES, Recipe, recipe

Model = TypeVar("Model")

_BY_DATA = {"digits": "vit-digits", "mnist": "vit-mnist", "cifar10": "vit-cifar10", "cifar100": "vit-cifar100"}
_OWN_DATA: dict[str, str] = {recipe: data for data, recipe in _BY_DATA.items()}
_FOLDER = "vit-folder"


@dataclass(frozen=True, kw_only=True)
class Resume:
    """Go on with a run where it stopped."""

    resume: Path
    """The folder of the run."""
    workers: int | None = None
    """Another number of processes that read images; the run stays the same."""
    root: str | None = None
    """Another place of the files of a known data set."""
    device: str = "auto"
    """cpu, cuda, cuda:1 or mps."""
    track: Track = None
    """Tell TensorBoard or Weights & Biases from here on."""
    allow_changed: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Go on even though the config or the data is not what it was."""


@dataclass(frozen=True, kw_only=True)
class Options(Generic[Model]):
    """Train a network on images: from scratch, by a recipe whose every value can be changed."""

    data: Annotated[DataConfig, tyro.conf.arg(name="")]
    name: str | None = None
    """Of the run; the recipe and a number if not said."""
    out: Path = Path("runs")
    """The folder that holds the folders of runs."""
    device: str = "auto"
    """cpu, cuda, cuda:1 or mps; auto takes a CUDA GPU where there is one."""
    image_size: int | None = None
    """Side of the input in pixels, where it is not the recipe's."""
    track: Track = None
    """Also tell TensorBoard or Weights & Biases."""
    model: Model
    optim: OptimConfig
    schedule: ScheduleConfig
    train: TrainConfig
    augment: AugmentConfig = field(default_factory=AugmentConfig)


def run_words(words: Sequence[str]) -> None:
    """Run `vitrail train RECIPE --data D ...`, or `vitrail train --resume RUN`."""
    if is_resume(words):
        refuse_changes(with_short_names(words))
        _resume(tyro.cli(Resume, args=list(words), prog="vitrail train"))
        return
    name, rest = positional(words)
    rest = with_short_names(rest)
    _ensure_recipe(name)
    refuse_derived(rest)
    chosen = recipe(name or _recipe_for(rest))
    if chosen.model is None:
        raise UsageError(
            f"{chosen.name} is a recipe for fine-tuning",
            fix=f"`vitrail finetune SOURCE --recipe {chosen.name}` uses it.",
        )
    options = tyro.cli(
        Options[type(chosen.model)],
        args=rest,
        prog=f"vitrail train {name or '[RECIPE]'}",
        description=f"{Options.__doc__} {SHORT_NAMES} `vitrail train --resume RUN` goes on with a run.",
        default=_defaults(chosen, rest),
        config=(tyro.conf.AvoidSubcommands,),
    )
    start(options, chosen, rest)


def _ensure_recipe(name: str | None) -> None:
    """Data in the place of the recipe is a slip that deserves its own hint."""
    if name is not None and name not in RECIPES and (user_path(name).exists() or name in _BY_DATA):
        raise UsageError(
            f"{name!r} is data and no recipe", fix=f"`vitrail train --data {shlex.quote(name)}` trains on it."
        )


def start(options: Options, chosen: Recipe, words: Sequence[str] = ()) -> None:
    """Open the data, say what will happen, and train."""
    from vitrail.runtime.device import find_device
    from vitrail.train.sources import open_run_data
    from vitrail.train.start import begin

    device = find_device(options.device)
    where = located(options.data)
    data = open_run_data(where, device, checking)
    config = fitted(
        RunConfig(
            recipe=chosen.name,
            model=options.model,
            preprocessing=chosen.preprocessing,
            data=where,
            augment=options.augment,
            optim=options.optim,
            schedule=options.schedule,
            train=for_device(
                options.train,
                device,
                precision_given=is_given("--train.precision", words),
                compile_given=is_given("--train.compile", words),
            ),
        ),
        num_classes=len(data.train.classes),
        image_size=options.image_size,
        keeps_resize=is_given("--augment.resize", words),
    )
    config = for_data(config, data.train, words)
    folder = next_folder(Destination(options.out, options.name or chosen.name, is_exact=bool(options.name)), data)
    with beginning(folder):
        session = begin(config, data, folder, device)
    settle_threads(session)
    say_plan(session, folder)
    train_and_report(session, folder, track=options.track)


def fitted(config: RunConfig, *, num_classes: int, image_size: int | None, keeps_resize: bool = False) -> RunConfig:
    """The config for this many classes and another image size; a crop out of a larger square grows with it."""
    model, augment = config.model, config.augment
    if image_size is not None and augment.crop == "resize" and not keeps_resize:
        augment = replace(augment, {"resize": augment.resize * image_size // model.image_size[0]}, kind="augment")
    changes: dict[str, Any] = {"num_classes": num_classes}
    if image_size is not None:
        changes["image_size"] = (image_size, image_size)
    return dataclasses.replace(config, model=replace(model, changes, kind="model"), augment=augment)


def _resume(options: Resume) -> None:
    from vitrail.cli.terminal import console
    from vitrail.runtime.device import find_device
    from vitrail.train.folder import RunFolder
    from vitrail.train.log import is_finished
    from vitrail.train.start import Allowed, resume

    folder, device = RunFolder(options.resume), find_device(options.device)
    if is_finished(folder):
        console().print(f"This run is finished: its model is {folder.model}, its page {folder.report}.")
        return
    allowed = Allowed(changed=options.allow_changed, workers=options.workers, root=options.root)
    session = resume(folder, device, checking, allowed)
    settle_threads(session)
    say_plan(session, folder)
    train_and_report(session, folder, track=options.track)


def _recipe_for(words: list[str]) -> str:
    """Without a recipe, the data says which."""
    if "--help" in words or "-h" in words:
        return _FOLDER
    data = words[words.index("--data") + 1] if "--data" in words[:-1] else None
    if data is None:
        raise UsageError(
            "there is neither a recipe nor data",
            wanted="vitrail train RECIPE --data DATA",
            fix="`vitrail train vit-digits` tries it on embedded images; `vitrail list recipes` shows all.",
        )
    return _BY_DATA.get(data, _FOLDER)


def _defaults(chosen: Recipe, words: list[str]) -> Options:
    train = chosen.train
    if "--train.epochs" in words and "--train.steps" not in words:
        train = dataclasses.replace(train, steps=None, epochs=1)
    if "--train.steps" in words and "--train.epochs" not in words:
        train = dataclasses.replace(train, steps=1, epochs=None)
    schedule = chosen.schedule
    if is_given("--schedule.warmup-steps", words):
        schedule = dataclasses.replace(schedule, warmup_share=0.0)
    return Options(
        data=DataConfig(data=_OWN_DATA.get(chosen.name) or tyro.MISSING, held_out=chosen.held_out),
        model=chosen.model,
        optim=chosen.optim,
        schedule=schedule,
        train=train,
        augment=chosen.augment,
    )
