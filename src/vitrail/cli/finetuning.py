"""One fine-tuning, whichever verb asked for it: the options, the plan they make, and carrying it out."""

import inspect
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import tyro

from vitrail.cli.finetune_words import say_result, say_run
from vitrail.cli.launch import mark_launch
from vitrail.cli.trackers import ensure_tracker
from vitrail.cli.training import Track, checking, for_data, for_device, located, train_and_report
from vitrail.cli.words import SHORT_NAMES, ensure_plain_name, is_given
from vitrail.config import (
    AugmentConfig,
    DataConfig,
    ModelConfig,
    OptimConfig,
    PeerConfig,
    RunConfig,
    ScheduleConfig,
    TrainConfig,
    VitConfig,
)
from vitrail.config.training import Parallel
from vitrail.errors import UsageError
from vitrail.recipes import Recipe, folder_recipe

if TYPE_CHECKING:
    import torch

    from vitrail.experiments.finetune_folder import FinetuneFolder
    from vitrail.experiments.finetune_plan import Plan, PlannedRun
    from vitrail.experiments.finetune_result import Result
    from vitrail.experiments.finetune_start import Start
    from vitrail.experiments.transfer_look import Look
    from vitrail.training.finish import Outcome
    from vitrail.training.folder import RunFolder
    from vitrail.training.session import Session
    from vitrail.training.spreading import Placement
    from vitrail.training.start import Allowed

Model = TypeVar("Model")

_SEEDS_OF_THE_PAPER = 3
_SHORTER = ("--train.steps", "--train.epochs", "--train.time-limit")


@dataclass(frozen=True, kw_only=True)
class Options(Generic[Model]):
    """Fine-tune SOURCE: learning rates tried on held-out training images, the best on all of them, once per seed.

    SOURCE is a run, a model folder, a checkpoint file, hf-hub:owner/name, a name with published weights, or a network
    of another package with its weights: timm:NAME, torchvision:NAME.
    """

    data: Annotated[DataConfig, tyro.conf.arg(name="")]
    recipe: str | None = None
    """A row of Table 4 or a rule; if not said, the row of a known data set, else finetune-folder; finetune-masked for a
    network that learnt without labels."""
    rates: tuple[float, ...]
    """Learning rates to try; --lr takes one without trying."""
    seeds: int = 1
    """Final runs, which give mean and standard deviation."""
    name: str | None = None
    """Of the folder; the recipe and a number if not said."""
    out: Path = Path("runs")
    """The folder that holds the folders of runs."""
    device: str = "auto"
    """cpu, cuda, cuda:1 or mps; auto takes a CUDA GPU where there is one."""
    processes: int | None = None
    """Train in so many processes on this machine, each with its own GPU where there are GPUs; torchrun does as well."""
    parallel: Parallel = "auto"
    """A copy of the network in each process (ddp), a part of it in each (fsdp), or the one that suits its size."""
    or_resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Go on with the one of this --name if it is there, so that a job can be queued again with the same command."""
    image_size: int | None = None
    """Side of the input in pixels; if not said the recipe's, for finetune-folder the source's."""
    preprocessing: str | None = None
    """google, augreg or imagenet, where the source does not say or says it wrong."""
    track: Track = None
    """Also tell TensorBoard or Weights & Biases, run by run."""
    model: Model
    optim: OptimConfig
    schedule: ScheduleConfig
    train: TrainConfig
    augment: AugmentConfig = field(default_factory=AugmentConfig)


def plan_finetuning(start: "Start", words: list[str]) -> tuple[Options, "Plan"]:
    """Look at the data, choose the recipe, and let the words change what they like."""
    from vitrail.experiments.finetune_plan import make_plan
    from vitrail.experiments.transfer_look import look_at, recipe_for, recipe_name
    from vitrail.models import tell_dropped_pixels
    from vitrail.models.peer import ensure_takes_size
    from vitrail.runtime.device import find_device

    # A first time with any recipe, for what does not depend on it: a typing error should not wait for the data.
    options = parse(words, start.checkpoint.config, folder_recipe(1000, 10, max(start.image_size)))
    preprocessing = start.preprocessing(options.preprocessing)
    name = recipe_name(options.recipe, options.data.data, knows_classes=start.knows_classes)
    device = find_device(options.device)
    look = look_at(located(options.data))
    size = options.image_size or max(start.image_size)
    chosen = recipe_for(name, look.train, size, on_cpu=device.type == "cpu")
    model = _network(start, look, chosen, options.image_size)
    options = parse(words, model, _sized(chosen, options.image_size))
    if is_given("--optim.lr", words) and is_given("--rates", words):
        raise UsageError("both --lr and --rates are given", wanted="one of them")
    config = RunConfig(
        recipe=chosen.name,
        model=replace(options.model, num_classes=model.num_classes),
        preprocessing=preprocessing,
        data=located(options.data),
        augment=options.augment,
        optim=options.optim,
        schedule=options.schedule,
        train=for_device(
            options.train,
            device,
            precision_given=is_given("--train.precision", words),
            compile_given=is_given("--train.compile", words),
        ),
        start=start.source,
        start_fingerprint=start.fingerprint,
    )
    tell_dropped_pixels(config.model)
    if isinstance(config.model, PeerConfig):
        ensure_takes_size(config.model)
    config = for_data(config, look.train, words)
    rates = (options.optim.lr,) if is_given("--optim.lr", words) else options.rates
    return options, make_plan(config, rates=rates, seeds=options.seeds, splits=look.splits)


def _network(start: "Start", look: "Look", chosen: Recipe, image_size: int | None) -> ModelConfig:
    from vitrail.experiments.transfer_look import FOLDER, MASKED

    sides = (image_size, image_size) if image_size else (chosen.image_size, chosen.image_size)
    own = image_size is None and chosen.name in (FOLDER, MASKED)
    return tuned_network(start, look.train.classes, start.image_size if own else sides, chosen)


def tuned_network(start: "Start", classes: tuple[str, ...], image_size: tuple[int, int], chosen: Recipe) -> ModelConfig:
    """The network that starts from a model, with the stochastic depth that its recipe asks for."""
    network = start.network(classes, image_size)
    if chosen.stochastic_depth is None or not isinstance(network, VitConfig):
        return network
    return replace(network, stochastic_depth=chosen.stochastic_depth)


def _sized(chosen: Recipe, image_size: int | None) -> Recipe:
    """The recipe at another image size: a crop out of a larger square grows with it."""
    if image_size is None or chosen.augment.crop != "resize":
        return chosen
    resize = chosen.augment.resize * image_size // chosen.image_size
    return replace(chosen, augment=replace(chosen.augment, resize=resize))


def parse(words: list[str], model: ModelConfig, chosen: Recipe) -> Options:
    """What was typed, where the recipe is the default; a mistake in it is told before any image is read."""
    options = tyro.cli(
        Options[type(model)],
        args=words,
        prog="vitrail finetune SOURCE",
        description=f"{inspect.getdoc(Options)}\n\n{SHORT_NAMES}",
        default=_defaults(words, model, chosen),
        config=(tyro.conf.AvoidSubcommands,),
    )
    ensure_plain_name(options.name)
    ensure_tracker(options.track)
    return options


def _defaults(words: list[str], model: ModelConfig, chosen: Recipe) -> Options:
    train, schedule = chosen.train, kept_warmup(chosen.schedule, chosen.train, words)
    if "--train.epochs" in words and "--train.steps" not in words:
        train = replace(train, steps=None, epochs=1)
    return Options(
        data=DataConfig(data=tyro.MISSING, held_out=chosen.held_out),
        rates=chosen.learning_rates,
        seeds=_SEEDS_OF_THE_PAPER if chosen.source == "Table 4" else 1,
        model=model,
        optim=chosen.optim,
        schedule=schedule,
        train=train,
        augment=chosen.augment,
    )


def kept_warmup(schedule: ScheduleConfig, train: TrainConfig, words: list[str]) -> ScheduleConfig:
    """A shorter run keeps its share of warm-up, else it may end before the rate is reached."""
    is_shorter = any(word in words for word in _SHORTER) and "--schedule.warmup-steps" not in words
    if not (is_shorter and train.steps and schedule.warmup_steps):
        return schedule
    return replace(schedule, warmup_steps=0, warmup_share=schedule.warmup_steps / train.steps)


def refuse_other(folder: "FinetuneFolder", plan: "Plan", words: Sequence[str]) -> None:
    """Refuse to go on with a fine-tuning that is there when it is another one than this plan, made of these words."""
    from vitrail.config import to_json
    from vitrail.experiments.finetune_folder import read_plan
    from vitrail.training.folder import differences
    from vitrail.training.start import as_begun
    from vitrail.weights.folder import sidecar

    found = read_plan(folder)
    before, stored = found.config.data, sidecar(folder.path)["plan"]["config"]["data"]
    # Where images are read from, by how many workers and how many at a time, makes no other run.
    data = replace(plan.config.data, workers=before.workers, root=before.root)
    data = as_begun(data, before, stored, copies_given=is_given("--copies", words))
    train = replace(plan.config.train, micro_batch=found.config.train.micro_batch)
    known = found.config.start_fingerprint and plan.config.start_fingerprint
    wanted = replace(plan, config=replace(plan.config, data=data, train=train, start_fingerprint=known))
    if changes := differences(to_json(found), to_json(wanted)):
        raise UsageError(
            f"the fine-tuning of this name is another one: {'; '.join(changes)}",
            where=str(folder.path),
            fix="Give the command that began it, or choose another --name.",
        )


def carry_out(
    plan: "Plan",
    folder: "FinetuneFolder",
    device: "torch.device",
    track: Track,
    allowed: "Allowed | None" = None,
    *,
    placement: "Placement",
) -> "Result":
    """Train every run that is not done yet, with a view of each, and say what came of the whole."""
    from vitrail.experiments.finetune import Finetuning
    from vitrail.experiments.finetune_folder import write_page

    begun: list[int] = []
    outcomes: dict[int, Outcome] = {}

    def train(session: "Session", run_folder: "RunFolder", run: "PlannedRun") -> "Outcome":
        say_run(plan, run, session, is_first=not begun)
        if not begun and placement.processes.is_first:
            mark_launch(folder.path)
        begun.append(run.number)
        # The page of the whole looks into the network that is kept; that of each run need not.
        outcome = train_and_report(session, run_folder, track=track, is_quiet=True, look_inside=False)
        if run.number == plan.runs - len(plan.seeds) + 1:
            # The first seed, which the page of the whole shows.
            outcomes[run.config.train.seed] = outcome
        return outcome

    result = Finetuning(plan, folder, device, checking, train, allowed, placement).run()
    if placement.processes.is_first:
        write_page(folder, result, outcomes.get(plan.seeds[0]))
    say_result(plan, result)
    return result


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
