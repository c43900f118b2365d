"""`vitrail train`: pre-training and training from scratch, and going on with any run."""

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import tyro

from vitrail.cli.known_data import kind_of
from vitrail.cli.launch import folder_of_this_launch, launch, mark_launch, split_processes
from vitrail.cli.trackers import ensure_tracker
from vitrail.cli.training import (
    Destination,
    Track,
    batch_that_fits,
    checking,
    claimed,
    for_data,
    for_device,
    located,
    say_plan,
    tell_parallel,
    train_and_report,
)
from vitrail.cli.without_labels import refuse_idle
from vitrail.cli.words import (
    SHORT_NAMES,
    ensure_plain_name,
    is_given,
    is_resume,
    positional,
    refuse_changes,
    refuse_derived,
    typed_value,
    with_short_names,
)
from vitrail.config import (
    AugmentConfig,
    DataConfig,
    MaskingConfig,
    ModelConfig,
    OptimConfig,
    PeerConfig,
    RunConfig,
    ScheduleConfig,
    TrainConfig,
    peer_name,
)
from vitrail.config.training import Parallel
from vitrail.config.values import replace
from vitrail.data.sources.files import user_path
from vitrail.errors import UsageError
from vitrail.recipes import RECIPES, Recipe, recipe, with_peer

if TYPE_CHECKING:
    import torch

    from vitrail.data.sources.source import Source
    from vitrail.training.sources import RunData
    from vitrail.training.spreading import Placement

Model = TypeVar("Model")

_BY_DATA = {"digits": "vit-digits", "mnist": "vit-mnist", "cifar10": "vit-cifar10", "cifar100": "vit-cifar100"}
_OWN_DATA: dict[str, str] = {name: row.data for name, row in RECIPES.items() if row.data in _BY_DATA}
_FOLDER = "vit-folder"
# Images up to which a network from scratch is not likely the best.
_FEW = 10_000


@dataclass(frozen=True, kw_only=True)
class Resume:
    """Go on with a run where it stopped."""

    resume: Path
    """The folder of the run."""
    processes: int | None = None
    """Go on in so many processes on this machine, each with its own GPU where there are GPUs."""
    parallel: Parallel = "auto"
    """A copy of the network in each process (ddp), or a part of it in each (fsdp)."""
    micro_batch: int | None = None
    """Another number of images at a time in each process; the batch stays the same."""
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
    processes: int | None = None
    """Train in so many processes on this machine, each with its own GPU where there are GPUs; torchrun does as well."""
    parallel: Parallel = "auto"
    """A copy of the network in each process (ddp), a part of it in each (fsdp), or the one that suits its size."""
    or_resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """With --name: go on with the run of that name if it is there, so that a job can be queued again as it is."""
    image_size: int | None = None
    """Side of the input in pixels, where it is not the recipe's."""
    track: Track = None
    """Also tell TensorBoard or Weights & Biases."""
    model: Model
    optim: OptimConfig
    schedule: ScheduleConfig
    train: TrainConfig
    augment: AugmentConfig = field(default_factory=AugmentConfig)


@dataclass(frozen=True, kw_only=True)
class MaskedOptions(Options[Model]):
    """Teach a network without labels: part of each image is hidden, and predicted from the rest."""

    masking: MaskingConfig


def run_words(words: Sequence[str]) -> None:
    """Run `vitrail train RECIPE --data D ...`, the same with timm:NAME for RECIPE, or `vitrail train --resume RUN`."""
    processes, words = split_processes(words)
    if processes is not None and not {"-h", "--help"} & set(words):
        launch("train", words, processes)
        return
    if is_resume(words):
        name, _ = positional(Options, words)
        if name is not None:
            raise UsageError(f"{name!r} came with --resume", wanted="the run alone, which knows its recipe")
        refuse_changes(words)
        _resume(tyro.cli(Resume, args=list(words), prog="vitrail train"))
        return
    name, rest = positional(Options, words)
    rest = with_short_names(rest)
    _ensure_recipe(name)
    refuse_derived(rest)
    chosen = chosen_recipe(name, rest)
    if chosen.model is None:
        raise UsageError(
            f"{chosen.name} is a recipe for fine-tuning",
            fix=f"`vitrail finetune SOURCE --recipe {chosen.name}` uses it.",
        )
    kind: Any = Options if chosen.masking is None else MaskedOptions
    known = defaults(chosen, rest)
    options = tyro.cli(
        kind[type(chosen.model)],
        args=rest,
        prog=f"vitrail train {name or '[RECIPE]'}",
        description=f"{kind.__doc__} {SHORT_NAMES} `vitrail train --resume RUN` goes on with a run, and with "
        "--help behind it lists what may then differ.",
        default=known,
        config=(tyro.conf.AvoidSubcommands,),
    )
    if isinstance(options, MaskedOptions):
        refuse_idle(options, known)
    ensure_buildable(options.model, options.image_size)
    start(options, chosen, rest)


def chosen_recipe(name: str | None, words: list[str]) -> Recipe:
    """The recipe of this name; without one that of the data, with the network that the name says in place of ours."""
    peer = None if name is None else peer_name(name)
    if peer is None:
        return recipe(name or recipe_for(words))
    if peer.tag is not None:
        raise UsageError(
            f"{peer.tag!r} names weights, and training starts with fresh ones",
            fix=f"`vitrail finetune {name}` uses them; leave .{peer.tag} away to train from scratch.",
        )
    return with_peer(recipe(recipe_for(words)), peer)


def ensure_buildable(model: ModelConfig, image_size: int | None) -> None:
    """A name or a size that another package does not take is told before any image is read."""
    if isinstance(model, PeerConfig):
        from vitrail.models.peer import ensure_takes_size

        ensure_takes_size(replace(model, {"image_size": image_size} if image_size else {}, kind="model"))


def _ensure_recipe(name: str | None) -> None:
    """Data, or a model, in the place of the recipe is a slip that deserves its own hint."""
    if name is not None and name not in RECIPES and kind_of(user_path(name)):
        raise UsageError(
            f"{name!r} is trained and no recipe",
            fix=f"`vitrail finetune {shlex.quote(name)} --data FOLDER` starts from it; "
            f"`vitrail train --resume {shlex.quote(name)}` goes on with a run.",
        )
    if name is not None and name not in RECIPES and (user_path(name).exists() or name in _BY_DATA):
        raise UsageError(
            f"{name!r} is data and no recipe", fix=f"`vitrail train --data {shlex.quote(name)}` trains on it."
        )


def start(options: Options, chosen: Recipe, words: Sequence[str] = ()) -> None:
    """Open the data, say what will happen, and train."""
    from vitrail.runtime.device import find_device
    from vitrail.runtime.processes import joined, own_device
    from vitrail.training.folder import RunFolder
    from vitrail.training.sources import open_run_data
    from vitrail.training.spreading import Placement
    from vitrail.training.start import refuse_other

    device = own_device(find_device(options.device))
    ensure_plain_name(options.name)
    ensure_tracker(options.track)
    if options.or_resume and not options.name:
        raise UsageError("--or-resume is given without a name", wanted="--name NAME, to find the run again")
    with joined(device) as processes:
        placement = Placement(processes=processes, parallel=options.parallel)
        before, is_restarted = processes.first_says(lambda: _begun(options))
        if before is not None and is_restarted:
            _go_on(Resume(resume=Path(before)), placement, device, track=options.track)
            return
        where = located(options.data)
        data = processes.in_turn(lambda: open_run_data(where, device, checking, processes.local_ranks))
        with processes.together():
            config = _config(dataclasses.replace(options, data=where), chosen, words, data.train, device)
            if before is not None:
                refuse_other(RunFolder(Path(before)), config, copies_given=is_given("--copies", words))
        if before is not None:
            there = Resume(
                resume=Path(before), workers=where.workers, root=where.root, micro_batch=config.train.micro_batch
            )
            _go_on(there, placement, device, track=options.track)
        else:
            _begin(options, config, data, placement, device)


def _begun(options: Options) -> tuple[str | None, bool]:
    """The run to go on with in place of beginning one, and whether it is this very launch that began it."""
    restarted = folder_of_this_launch(options.out)
    before = options.out.expanduser() / str(options.name) if restarted is None and options.or_resume else restarted
    is_there = before is not None and (before / "config.json").is_file()
    return str(before) if is_there else None, restarted is not None


def _config(
    options: Options, chosen: Recipe, words: Sequence[str], source: "Source", device: "torch.device"
) -> RunConfig:
    """Everything that decides the run: what was typed, for these images and this device."""
    config = fitted(
        RunConfig(
            recipe=chosen.name,
            model=options.model,
            masking=options.masking if isinstance(options, MaskedOptions) else None,
            preprocessing=chosen.preprocessing,
            data=options.data,
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
        num_classes=0 if chosen.masking else len(source.classes),
        image_size=options.image_size,
        keeps_resize=is_given("--augment.resize", words),
    )
    return for_data(batch_that_fits(config, len(source), words), source, words)


def _begin(
    options: Options, config: RunConfig, data: "RunData", placement: "Placement", device: "torch.device"
) -> None:
    from vitrail.training.start import begin

    processes = placement.processes
    destination = Destination(options.out, options.name or config.recipe, is_exact=bool(options.name))
    with claimed(destination, data, processes) as folder:
        if processes.is_first:
            # Before the config is there: a restart goes on with it from then on.
            mark_launch(folder.path)
        session = begin(config, data, folder, device, placement=placement)
        tell_parallel(options.parallel, session)
        say_plan(session, folder)
        if config.recipe == _FOLDER and len(data.train) < _FEW:
            _advise_finetuning(options.data, len(data.train))
        train_and_report(session, folder, track=options.track)


def _advise_finetuning(data: DataConfig, images: int) -> None:
    """Few images teach a network that has seen none before little; who knows that may still want it from scratch."""
    from vitrail.cli.terminal import console

    # The numbers are those of benchmarks/results/h200-transfer.md.
    console().print(
        f"{images:,} images are few for a network that starts from nothing: a published one, fine-tuned, is likely far "
        "better and sooner done. (On 3,680 photos of pets a ViT-Ti/16 came to 91.5 %, from scratch to 21.2 %.)\n"
        f"  vitrail finetune vit-ti16 --data {shlex.quote(data.data)}{' --skip-bad' * data.skip_bad}\n",
        markup=False,
        soft_wrap=True,
    )


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
    from vitrail.runtime.device import find_device
    from vitrail.runtime.processes import joined, own_device
    from vitrail.training.spreading import Placement

    device = own_device(find_device(options.device))
    ensure_tracker(options.track)
    with joined(device) as processes:
        placement = Placement(processes=processes, parallel=options.parallel)
        _go_on(options, placement, device, track=options.track)


def _go_on(options: Resume, placement: "Placement", device: "torch.device", *, track: Track) -> None:
    from vitrail.cli.terminal import console
    from vitrail.training.folder import RunFolder
    from vitrail.training.log import is_finished
    from vitrail.training.start import Allowed, resume
    from vitrail.training.whole import held

    folder, processes = RunFolder(options.resume), placement.processes
    if processes.first_says(lambda: is_finished(folder)):
        console().print(f"This run is finished: its model is {folder.model}, its page {folder.report}.")
        return
    allowed = Allowed(
        changed=options.allow_changed,
        workers=options.workers,
        root=options.root,
        micro_batch=options.micro_batch,
    )
    session = resume(folder, device, checking, allowed, placement=placement)
    tell_parallel(options.parallel, session)
    say_plan(session, folder)
    # So far it was only read; from here on a tracker writes, too.
    with held(folder, processes, doing="training"):
        train_and_report(session, folder, track=track)


def recipe_for(words: list[str]) -> str:
    """Without a recipe, the data says which."""
    if "--help" in words or "-h" in words:
        return _FOLDER
    data = typed_value("--data", words)
    if data is None:
        raise UsageError(
            "there is neither a recipe nor data",
            wanted="vitrail train RECIPE --data DATA",
            fix="`vitrail train vit-digits` tries it on embedded images; `vitrail list recipes` shows all.",
        )
    return _BY_DATA.get(data, _FOLDER)


def defaults(chosen: Recipe, words: list[str]) -> Options:
    """What a recipe says, with the length as it was typed."""
    train = chosen.train
    if "--train.epochs" in words and "--train.steps" not in words:
        train = dataclasses.replace(train, steps=None, epochs=1)
    if "--train.steps" in words and "--train.epochs" not in words:
        train = dataclasses.replace(train, steps=1, epochs=None)
    schedule = chosen.schedule
    if is_given("--schedule.warmup-steps", words):
        schedule = dataclasses.replace(schedule, warmup_share=0.0)
    known: dict[str, Any] = {
        "data": DataConfig(
            data=_OWN_DATA.get(chosen.name) or tyro.MISSING,
            # What a teacher taught has its own val split, of labelled images alone.
            held_out=None if (typed_value("--data", words) or "").startswith("taught:") else chosen.held_out,
            labelled=chosen.masking is None,
        ),
        "model": chosen.model,
        "optim": chosen.optim,
        "schedule": schedule,
        "train": train,
        "augment": chosen.augment,
    }
    return Options(**known) if chosen.masking is None else MaskedOptions(**known, masking=chosen.masking)
