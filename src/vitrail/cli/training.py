"""What all verbs that train show: the plan before, the view during, the result and next steps after."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from vitrail.cli.terminal import console, printable, short_count
from vitrail.config import DataConfig, ModelConfig, PeerConfig, RunConfig, VitConfig, times
from vitrail.config.spelling import as_typed
from vitrail.data.sources.source import Source
from vitrail.errors import VitrailError, notice
from vitrail.experiments.audience import Audience
from vitrail.recipes import recipe_title
from vitrail.runtime.progress import duration, progress
from vitrail.training.folder import NamedFolder, RunFolder
from vitrail.training.schedule import epoch_of

if TYPE_CHECKING:
    from vitrail.experiments.experiment import Experiment, Part, Run
    from vitrail.training.finish import Outcome
    from vitrail.training.log import Watcher
    from vitrail.training.session import Session

# As many as a ViT-H/14 sees at 896 px.
_MANY_PATCHES = 4096
# Seconds after which people want to know how to wait less.
_LONG = 600
_SHORTER = " (less: --time-limit MINUTES, --epochs or --steps)"
_NEXT = {
    "predict": ("IMAGES", "what it says about images"),
    "serve": ("", "the same in a browser"),
    "evaluate": ("--data FOLDER", "how good it is on others"),
    "inspect": ("IMAGES", "what it has learnt"),
    "finetune": ("--data FOLDER", "start another from it"),
}
_NEXT_WITHOUT_LABELS = {
    "finetune": ("--data FOLDER", "teach it your classes"),
    "fewshot": ("--data FOLDER", "how good its features are"),
    "inspect": ("IMAGES", "what it has learnt"),
}


class Terminal(Audience):
    """Tells a person at a terminal; each verb says what is its own."""

    def reading(self, source: Source) -> AbstractContextManager[Callable[[int], None]]:
        """Show how far it is."""
        return checking(source)

    def working(self, title: str, images: int) -> AbstractContextManager[Callable[[int], None]]:
        """Show how far it is."""
        return progress(title, images)

    def watching(self, session: "Session", folder: RunFolder) -> AbstractContextManager["Watcher"]:
        """Show the run as it goes."""
        return _view(session, folder)

    def begins(self, experiment: "Experiment", run: "Run", session: "Session", folder: RunFolder, number: int) -> None:
        """Say what the run is; with the first also the rest of it."""
        if number == 1:
            say_plan(session, folder)
        else:
            console().print(f"\n[bold]{escape(printable(run.title))}[/]")

    def failed(self, experiment: "Experiment", part: "Part | Run", error: VitrailError) -> None:
        """Say why."""
        console().print(f"{printable(part.title)} failed: {as_typed(error)}", markup=False, soft_wrap=True)

    def result(self, experiment: "Experiment", result: Any, folder: NamedFolder) -> None:
        """Say what was found, and where it is."""
        out = console()
        if (accuracy := getattr(result, "accuracy", None)) is not None:
            out.print(f"[bold]accuracy {100 * accuracy:.2f} %[/]")
        for path, what in ((folder.model, "the model that is kept"), (folder.report, "the page: open it")):
            if path.exists():
                out.print(f"{escape(printable(str(path)))}  {what}", soft_wrap=True)


@contextmanager
def checking(source: Source) -> Iterator[Callable[[int], None]]:
    """Show how far the reading of a source has come."""
    with progress(f"reading {source.name}, {source.split}", len(source)) as advance:
        yield advance


def tell_many_patches(model: ModelConfig) -> None:
    """Say what makes a step take so long, before the first try of one is waited for."""
    if isinstance(model, VitConfig) and (patches := model.grid[0] * model.grid[1]) > _MANY_PATCHES:
        notice(
            f"An image of {times(model.image_size)} px is {patches:,} patches of {times(model.pixels_per_patch)} px, "
            "and the work grows with their square. How long one takes is tried now; a smaller --image-size takes far "
            "less."
        )


def say_plan(session: "Session", folder: RunFolder) -> None:
    """What will happen, on what, for about how long: before it happens."""
    from vitrail.training.estimate import seconds_left
    from vitrail.training.start import device_name

    config, data, step = session.config, session.data, session.progress.step
    out = console()
    counts = [f"{len(data.train):,} images to learn from"]
    if data.held_out is not None:
        counts.append(f"{len(data.held_out):,} held out ({data.held_out.split})")
    if data.test is not None:
        counts.append(f"{len(data.test):,} to test on")
    tell_many_patches(config.model)
    parameters = sum(parameter.numel() for parameter in session.model.parameters())
    optim, train, steps = config.optim, config.train, session.progress.steps
    epochs = epoch_of(steps, train.batch_size, len(data.train))
    at_a_time = f", {session.progress.micro_batch} at a time" if session.accumulation > 1 else ""
    length = f"{steps:,} steps ({epochs:,.4g} epochs)"
    if train.time_limit is not None:
        length = f"as many of {length} as fit into {train.time_limit:g} minutes"
    left = seconds_left(session)
    lines = [
        f"[bold]{escape(recipe_title(config.recipe, config.model))}[/] on "
        f"[bold]{escape(printable(config.data.data))}[/]: {', '.join(counts)}; "
        f"{'no labels' if config.masking else f'{len(data.train.classes):,} classes'}",
        *map(escape, data.copies),
        f"{_network(config)}, {short_count(parameters)} parameters"
        + (f", from {escape(config.start)}" if config.start else ""),
        f"{optim.optimizer}, learning rate {optim.lr:g}, batch {train.batch_size}{at_a_time}, {length}, "
        f"seed {train.seed}",
        f"{_places(session)}{device_name(session.device, session.model, session.progress.threads)}, {train.precision}"
        f"{', compiled' if train.compile else ''}; "
        f"{_about(left)}{_SHORTER if (left or 0) > _LONG and not step else ''}",
        f"{f'going on after step {step:,} in' if step else 'writes'} {escape(printable(str(folder.path)))}",
    ]
    out.print("\n".join(lines) + "\n")


def watched(config: RunConfig) -> str:
    """What the share beside the loss is called."""
    return "accuracy" if config.masking is None else config.masking.guessed


def _view(session: "Session", folder: RunFolder) -> AbstractContextManager["Watcher"]:
    from vitrail.cli.live import watching
    from vitrail.training.log import read_log

    data, progress, train = session.data, session.progress, session.config.train
    return watching(
        f"{recipe_title(session.config.recipe, session.config.model)} on {printable(session.config.data.data)}",
        progress.steps,
        epoch_of(progress.steps, train.batch_size, len(data.train)),
        start=progress.step,
        seconds=progress.seconds,
        held_out=len(data.held_out) if data.held_out is not None else 0,
        test=len(data.test) if data.test is not None else 0,
        history=list(read_log(folder.log, needs_numbers=True)) if progress.step and folder.log.exists() else (),
        word=watched(session.config),
    )


def say_result(outcome: "Outcome", folder: RunFolder, word: str = "accuracy") -> None:
    """How good the model is, with what was counted."""
    out = console()
    if outcome.metrics is None:
        out.print("No images were held out and there is no test split, so nothing was measured.")
    else:
        metrics = outcome.metrics
        right = f"{round(metrics.accuracy * metrics.images):,} of " if word == "accuracy" else ""
        out.print(
            f"[bold]{outcome.split.replace('_', '-')} {word} {100 * metrics.accuracy:.2f} %[/] "
            f"({right}{metrics.images:,} images), loss {metrics.loss:.4f}"
        )
    model, page = (escape(printable(str(path))) for path in (folder.model, folder.report))
    out.print(f"{model}  the model\n{page}  the page of this run: open it")


def say_next(
    folder: RunFolder, network: ModelConfig, *, is_labelled: bool = True, data: DataConfig | None = None
) -> None:
    """The next command to type; `data` is that of the run, where some of it was not learnt from."""
    model = printable(shlex.quote(str(folder.path)))
    words = dict(_NEXT if is_labelled else _NEXT_WITHOUT_LABELS)
    if isinstance(network, VitConfig) and is_labelled:
        words["serve"] = ("", "the same in a browser, with where it looks")
    if is_labelled and data is not None:
        words["evaluate"] = (printable(_measured_on(data)), "how good it is, class by class; or on a folder of others")
    commands = {f"vitrail {verb} {model} {rest}".rstrip(): why for verb, (rest, why) in words.items()}
    width = max(map(len, commands))
    console().print("Next")
    for command, why in commands.items():
        console().print(f"  [bold]{escape(command.ljust(width))}[/]  {why}", soft_wrap=True)


def _measured_on(data: DataConfig) -> str:
    """The options by which `vitrail evaluate` finds the images that a run was measured on, and reads them as it did."""
    root = ["--root", data.root] if data.root else []
    flags = [flag for flag, is_on in (("--skip-bad", data.skip_bad), ("--allow-empty", data.allow_empty)) if is_on]
    return shlex.join(["--data", data.data, *root, *flags])


def _network(config: RunConfig) -> str:
    model = config.model
    size = f"{times(model.image_size)} px"
    if isinstance(model, PeerConfig):
        return f"{model.name} of {model.package}, {size}"
    if not isinstance(model, VitConfig):
        return f"BiT ResNet with {sum(model.blocks)} units, {size}"
    stem = "" if model.backbone is None else " behind convolutions"
    return (
        f"ViT with {model.depth} blocks of width {model.width}, {times(model.grid)} patches of "
        f"{times(model.pixels_per_patch)} px{stem}, {size}"
    )


def _places(session: "Session") -> str:
    """How many processes, and how the network is spread over them."""
    if session.processes.control is None:
        return ""
    ranks = session.processes.ranks
    has = "a copy" if session.spread.has_all else "a part"
    return f"{ranks} process{'es' if ranks > 1 else ''} with {has} of the network each, "


def _about(seconds: float | None) -> str:
    if seconds is None:
        return "for how long is seen after the first steps"
    if seconds >= 60:
        return f"about {duration(seconds)}"
    whole = max(round(seconds), 1)
    return f"about {whole} second{'s' if whole > 1 else ''}"
