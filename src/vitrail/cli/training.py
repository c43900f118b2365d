"""What training, fine-tuning and the demo share: the plan before, the view during, the report and next steps after."""

import math
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.markup import escape

from vitrail.cli.progress import duration, progress
from vitrail.cli.terminal import console, printable, short_count
from vitrail.cli.words import is_given
from vitrail.config import DataConfig, ModelConfig, PeerConfig, RunConfig, TrainConfig, VitConfig, times, to_json
from vitrail.data.outside import ensure_outside
from vitrail.data.sources.files import user_path
from vitrail.data.sources.source import Source
from vitrail.errors import UsageError, VitrailError, notice
from vitrail.recipes import recipe_title
from vitrail.training.folder import RunFolder, is_vacant
from vitrail.training.length import epoch_of, total_steps

if TYPE_CHECKING:
    import torch

    from vitrail.runtime.processes import Processes
    from vitrail.training.finish import Outcome
    from vitrail.training.log import Watcher
    from vitrail.training.session import Session
    from vitrail.training.sources import RunData

Track = Literal["tensorboard", "wandb"] | None

_SHORT_WARMUP = 0.1
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


@contextmanager
def checking(source: Source) -> Iterator[Callable[[int], None]]:
    """Show how far the reading of a source has come."""
    with progress(f"reading {source.name}, {source.split}", len(source)) as advance:
        yield advance


def located(data: DataConfig) -> DataConfig:
    """The data with absolute paths, so that a run goes on from whatever folder that is asked for in."""
    return replace(
        data,
        data=_located(data.data),
        root=_absolute(data.root),
        few_shot=None if data.few_shot is None else _located(data.few_shot),
        few_shot_root=_absolute(data.few_shot_root),
    )


def _located(name: str) -> str:
    kind, colon, rest = name.partition(":")
    if kind == "vtab" and "=" in rest:
        task, _, source = rest.partition("=")
        return f"{kind}{colon}{task}={_located(source)}"
    if (kind == "wds" and colon and "://" not in name) or (kind == "taught" and rest):
        return f"{kind}:{_absolute(rest)}"
    path = user_path(name)
    return str(path.resolve()) if path.exists() else name


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).expanduser().absolute())


@dataclass(frozen=True)
class Destination:
    """Where a run goes: a folder of runs and a name, with a number behind it unless the name was asked for."""

    out: Path
    name: str
    is_exact: bool


def next_folder(
    destination: Destination, data: "RunData", is_spare: Callable[[Path], bool] = lambda _path: False
) -> RunFolder:
    """The folder of a new run, which is made here, so that of two processes only one gets it; never inside the data.

    A folder of the name that was asked for is taken where nothing in it would be lost: `is_spare` says so.
    """
    out = destination.out.expanduser()
    if out.is_symlink() and not out.exists():
        raise UsageError("is a link that leads nowhere", where=str(out), fix="Choose another --out.")
    scored = () if data.few_shot is None else (data.few_shot.learn, data.few_shot.test)
    sources = [source for source in (data.train, data.held_out, data.test, *scored) if source is not None]
    number = 1
    while True:
        path = out / (destination.name if destination.is_exact else f"{destination.name}-{number}")
        ensure_outside(sources, path)
        try:
            path.mkdir(parents=True)
            return RunFolder(path)
        except FileExistsError:
            if destination.is_exact:
                _ensure_free(path, is_spare)
                return RunFolder(path)
            number += 1


@contextmanager
def claimed(
    destination: Destination,
    data: "RunData",
    processes: "Processes",
    is_spare: Callable[[Path], bool] = lambda _path: False,
    has_begun: Callable[[RunFolder], bool] | None = None,
) -> Iterator[RunFolder]:
    """The folder of a new run, whose lock is held before anything is written into it.

    What comes to an end before it `has_begun` leaves nothing behind; if not said, that is before its first checkpoint.
    """
    from vitrail.training.whole import held

    folder = RunFolder(Path(processes.first_says(lambda: str(next_folder(destination, data, is_spare).path))))
    with held(folder, processes):
        with processes.together():
            if processes.is_first:
                # Again: another command may have held it in between, and begun.
                _ensure_free(folder.path, is_spare)
        with beginning(folder, processes, has_begun or _has_begun):
            yield folder


def _ensure_free(path: Path, is_spare: Callable[[Path], bool]) -> None:
    """The folder of a name that someone asked for and that is there: only an empty one will do, or a spare one."""
    if is_spare(path):
        return
    folder = RunFolder(path)
    if folder.config.is_file():
        begins = folder.config.read_text(encoding="utf-8", errors="replace")[:200]
        verb = next((verb for verb in ("finetune", "selftrain") if f"vitrail-{verb}/" in begins), "train")
        command = folder.resume_command.replace("train", verb, 1)
        raise UsageError(
            "there is a run already", where=str(path), fix=f"Go on with it ({command}), or choose another --name."
        )
    if not is_vacant(path):
        raise UsageError("is there already and holds something else", where=str(path), fix="Choose another --name.")


@contextmanager
def beginning(folder: RunFolder, processes: "Processes", has_begun: Callable[[RunFolder], bool]) -> Iterator[None]:
    """What cannot even begin leaves nothing behind: the folder was empty when it was taken."""
    from vitrail.training.whole import ensure_in_place

    refused = True
    try:
        yield
        refused = False
    finally:
        with suppress(VitrailError):
            if refused and processes.is_first and folder.path.is_dir() and not has_begun(folder):
                # Of a folder that was moved away, nothing is known any more.
                ensure_in_place(folder)
                shutil.rmtree(folder.path, ignore_errors=True)


def _has_begun(folder: RunFolder) -> bool:
    """Whether a run in it, or one of those that it is made of, has computed something."""
    return any(next(folder.path.rglob(pattern), None) for pattern in ("log.jsonl", "checkpoints/step-*"))


def for_device(
    train: TrainConfig, device: "torch.device", *, precision_given: bool, compile_given: bool
) -> TrainConfig:
    """The config with the arithmetic that suits the device, where nobody said otherwise: bf16 and graphs on a GPU."""
    import torch

    on_gpu = device.type == "cuda"
    if not precision_given:
        can = on_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
        train = replace(train, precision="bfloat16" if can else "float32")
    if not compile_given:
        train = replace(train, compile=on_gpu)
    return train


def for_data(config: RunConfig, source: Source, words: Sequence[str]) -> RunConfig:
    """The config with what the data calls for, where nobody said otherwise; each change is told."""
    if source.labels.is_multi and config.train.loss == "softmax":
        if is_given("--train.loss", words):
            raise UsageError("the images have several classes each", wanted="--train.loss sigmoid", where=source.name)
        notice("The images have several classes each, so the loss is sigmoid cross-entropy.")
        config = replace(config, train=replace(config.train, loss="sigmoid"))
    steps, warmup = total_steps(config.train, len(source)), config.schedule.warmup_steps
    if not config.schedule.warmup_share and warmup >= steps and not is_given("--schedule.warmup-steps", words):
        notice(
            f"The warm-up of the recipe, {warmup:,} steps, is longer than this run of {steps:,}: "
            f"it becomes {_SHORT_WARMUP:.0%} of the run."
        )
        config = replace(config, schedule=replace(config.schedule, warmup_share=_SHORT_WARMUP))
    return config


def batch_that_fits(config: RunConfig, images: int, words: Sequence[str]) -> RunConfig:
    """The config with a batch of no more images than there are, where nobody said otherwise; that is told.

    The rate goes with the root of the batch, as suits Adam and Muon, whose steps are as long whatever the gradient.
    """
    batch = config.train.batch_size
    if batch <= images or is_given("--train.batch-size", words):
        return config
    # Two at least: one image cannot be mixed with another.
    fits = max(1 << (images.bit_length() - 1), 2)
    if batch <= fits:
        return config
    told = (
        f"The batch of the recipe, {batch:,} images, is larger than the {images:,} to learn from: it becomes {fits:,}"
    )
    if not is_given("--optim.lr", words):
        rate = float(f"{config.optim.lr * math.sqrt(fits / batch):.3g}")
        config = replace(config, optim=replace(config.optim, lr=rate))
        told += f", and the learning rate {rate:g}"
    notice(f"{told} (others: --batch-size, --lr).")
    return replace(config, train=replace(config.train, batch_size=fits))


def tell_parallel(parallel: str, session: "Session") -> None:
    """An option that means nothing in one process is not passed over in silence."""
    if parallel != "auto" and session.processes.control is None:
        notice("--parallel is for several processes: add --processes 2 or more, or start with torchrun.")


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


def train_and_report(
    session: "Session",
    folder: RunFolder,
    *,
    track: Track,
    is_quiet: bool = False,
    look_inside: bool = True,
    reports: bool = True,
) -> "Outcome":
    """Train with a view of it, write the report, say how good it is and what to type next."""
    from vitrail.cli.trackers import several, tracking
    from vitrail.reports import write_report
    from vitrail.training.run import run
    from vitrail.training.whole import ensure_in_place

    step, is_first = session.progress.step, session.processes.is_first
    with (
        tracking(track if is_first else None, folder.path, to_json(session.config), step=step) as tracker,
        _view(session, folder) as view,
    ):
        outcome = run(session, folder, several(view, tracker))
    if is_first and reports:
        ensure_in_place(folder)
        write_report(folder, outcome.source, outcome.predictions, look_inside=look_inside)
    if not is_quiet:
        say_result(outcome, folder, _watched(session.config))
        say_next(
            folder,
            session.config.model,
            is_labelled=session.config.masking is None,
            data=session.config.data if outcome.metrics is not None else None,
        )
    return outcome


def _watched(config: RunConfig) -> str:
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
        word=_watched(session.config),
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
