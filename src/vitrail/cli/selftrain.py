"""`vitrail selftrain`: a teacher labels images that nobody labelled, and a noised student learns from all of them."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Generic, TypeVar

import tyro

from vitrail.cli.finetuning import kept_warmup, tuned_network
from vitrail.cli.progress import progress
from vitrail.cli.selftrain_words import say_result, say_round, say_rounds, tell_fall
from vitrail.cli.trackers import ensure_tracker
from vitrail.cli.train import chosen_recipe, defaults, ensure_buildable, fitted
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
    train_and_report,
)
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
    ModelConfig,
    OptimConfig,
    RunConfig,
    ScheduleConfig,
    TrainConfig,
    peer_name,
)
from vitrail.errors import UsageError
from vitrail.experiments.selftrain_choosing import Choice
from vitrail.experiments.selftrain_plan import Plan, Unlabelled, noised_images, noised_network
from vitrail.recipes import RECIPES, Recipe, folder_recipe, masked_recipe

if TYPE_CHECKING:
    import torch

    from vitrail.experiments.finetune_start import Start
    from vitrail.experiments.selftrain_folder import SelftrainFolder
    from vitrail.experiments.selftrain_sets import Sets
    from vitrail.training.finish import Outcome
    from vitrail.training.folder import RunFolder
    from vitrail.training.session import Session
    from vitrail.training.start import Allowed

Model = TypeVar("Model")

_SHORT = {
    "--dropout": "--model.dropout",
    "--stochastic-depth": "--model.stochastic-depth",
    "--randaugment-layers": "--augment.randaugment-layers",
    "--randaugment-magnitude": "--augment.randaugment-magnitude",
}


@dataclass(frozen=True, kw_only=True)
class Resume:
    """Go on with a self-training wherever it stopped: labelling, training, or between two rounds."""

    resume: Path
    """Its folder."""
    micro_batch: int | None = None
    """Another number of images at a time; the batch stays the same."""
    workers: int | None = None
    """Another number of processes that read images."""
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
    """TEACHER labels images that nobody labelled; a student learns from them and from labelled ones, against noise.

    TEACHER is a run, a model folder, a file, or a name with weights; its classes are those of --data. The options of
    `vitrail train` are the student's. Each round is a run in the folder of the whole.
    """

    data: Annotated[DataConfig, tyro.conf.arg(name="")]
    unlabelled: str
    """A folder of images, nested or not, or anything that --data takes; its labels are never looked at."""
    unlabelled_split: str = "train"
    """The part of it to label, such as train[10%:]."""
    unlabelled_root: str | None = None
    """Where its files are, where it is a known data set; --root if not said."""
    student: str | None = None
    """A recipe, timm:NAME, or a model to start from; if not said, the recipe that suits the data."""
    rounds: int = 1
    """The student of a round teaches the next one; --steps, --epochs and --time-limit are those of each."""
    choice: Annotated[Choice, tyro.conf.arg(name="")] = field(default_factory=Choice)
    name: str | None = None
    """Of the folder; selftrain and a number if not said."""
    out: Path = Path("runs")
    """The folder that holds the folders of runs."""
    device: str = "auto"
    """cpu, cuda, cuda:1 or mps; auto takes a CUDA GPU where there is one."""
    image_size: int | None = None
    """Side of the student's input in pixels, where it is not the recipe's."""
    preprocessing: str | None = None
    """google, augreg or imagenet, where a file of weights does not say how its images were prepared."""
    track: Track = None
    """Also tell TensorBoard or Weights & Biases, round by round."""
    model: Model
    optim: OptimConfig
    schedule: ScheduleConfig
    train: TrainConfig
    augment: AugmentConfig = field(default_factory=AugmentConfig)


def run_words(words: Sequence[str]) -> None:
    """Run `vitrail selftrain TEACHER --data D --unlabelled IMAGES ...`, or `vitrail selftrain --resume FOLDER`."""
    if is_resume(words):
        refuse_changes(words, in_processes=False)
        _resume(tyro.cli(Resume, args=list(words), prog="vitrail selftrain"))
        return
    teacher, rest = positional(Options, words)
    rest = [_SHORT.get(word, word) for word in with_short_names(rest)]
    refuse_derived(rest)
    if {"-h", "--help"} & set(rest):
        _parse(rest, _recipe(rest))
    if teacher is None:
        raise UsageError(
            "there is no teacher",
            wanted="vitrail selftrain TEACHER --data LABELLED --unlabelled IMAGES",
            fix="`vitrail train --data LABELLED` makes one; any model with the same classes works as well.",
        )
    _start(teacher, rest)


def _start(teacher: str, words: list[str]) -> None:
    from vitrail.data.outside import ensure_outside
    from vitrail.evaluation.subject import open_subject
    from vitrail.experiments.selftrain_folder import SelftrainFolder, begin_plan, can_replace
    from vitrail.experiments.selftrain_sets import open_sets
    from vitrail.experiments.selftrain_teacher import as_teacher
    from vitrail.runtime.device import find_device
    from vitrail.runtime.processes import ALONE

    start = _model_student(words)
    options = _parse(words, _recipe(words) if start is None else _any_recipe(start), start)
    ensure_plain_name(options.name)
    ensure_tracker(options.track)
    _ensure_labelled(options.data)
    ensure_buildable(options.model, options.image_size)
    device = find_device(options.device)
    labelled = located(options.data)
    images = located(
        DataConfig(
            data=options.unlabelled, split=options.unlabelled_split, root=options.unlabelled_root or labelled.root
        )
    )
    unlabelled = Unlabelled(data=images.data, split=images.split, root=images.root)
    who = str(Path(teacher).resolve()) if Path(teacher).exists() else teacher
    # What is wrong with the teacher is told before any image is read.
    subject = open_subject(who, device=device, preprocessing=options.preprocessing)
    sets = open_sets(labelled, unlabelled, device, checking)
    config = _student(options, start, sets, words, device)
    as_teacher(subject, sets.labelled.train.classes, options.data.data)
    plan = Plan(
        teacher=who,
        teacher_fingerprint=subject.fingerprint,
        preprocessing=options.preprocessing,
        unlabelled=unlabelled,
        choice=options.choice,
        rounds=options.rounds,
        config=config,
    )
    del subject
    ensure_outside([sets.unlabelled], options.out.expanduser() / (options.name or "selftrain"))
    destination = Destination(options.out, options.name or "selftrain", is_exact=bool(options.name))
    with claimed(
        destination,
        sets.labelled,
        ALONE,
        is_spare=lambda path: can_replace(SelftrainFolder(path), plan),
        # What a teacher said is of use to another plan.
        has_begun=lambda target: target.config.exists(),
    ) as target:
        folder = SelftrainFolder(target.path)
        is_again = folder.config.exists()
        begin_plan(folder, plan)
        say_rounds(plan, sets, folder, is_again=is_again)
        _carry_out(plan, folder, device, options.track, sets=sets)


def _resume(options: Resume) -> None:
    from vitrail.experiments.selftrain_folder import SelftrainFolder, read_plan
    from vitrail.runtime.device import find_device
    from vitrail.training.start import Allowed

    ensure_tracker(options.track)
    folder = SelftrainFolder(options.resume)
    allowed = Allowed(
        changed=options.allow_changed, workers=options.workers, root=options.root, micro_batch=options.micro_batch
    )
    _carry_out(read_plan(folder), folder, find_device(options.device), options.track, allowed)


def _carry_out(
    plan: Plan,
    folder: "SelftrainFolder",
    device: "torch.device",
    track: Track,
    allowed: "Allowed | None" = None,
    sets: "Sets | None" = None,
) -> None:
    """Every round that is not done yet, with a view of it, and a table of all."""
    from vitrail.experiments.selftrain_page import teaching_section
    from vitrail.experiments.selftrain_result import read_result
    from vitrail.experiments.selftrain_rounds import SelfTraining
    from vitrail.reports import write_report

    outcomes: dict[Path, Outcome] = {}

    def train(session: "Session", run: "RunFolder") -> None:
        say_plan(session, run)
        outcomes[run.path] = train_and_report(session, run, track=track, is_quiet=True, reports=False)

    def ended(number: int) -> None:
        """The page waits for the end of a round, when the labels that were taught have been compared with the truth."""
        run = folder.round(number)
        tell_fall(read_result(folder.result), number, folder)
        first, outcome = teaching_section(folder, number, shown=number), outcomes.pop(run.path, None)
        if outcome is None:
            write_report(run, first=first)
        else:
            write_report(run, outcome.source, outcome.predictions, first=first)

    result = SelfTraining(
        plan,
        folder,
        device,
        checking=checking,
        watch=progress,
        tell=lambda number, taught: say_round(plan, number, taught),
        train=train,
        ended=ended,
        allowed=allowed,
        sets=sets,
    ).run()
    say_result(plan, result, folder)


def _student(
    options: Options, start: "Start | None", sets: "Sets", words: list[str], device: "torch.device"
) -> RunConfig:
    """Everything that decides the run of a student, but for what it is taught."""
    train = sets.labelled.train
    if start is None:
        chosen = _recipe(words)
        preprocessing = chosen.preprocessing
    else:
        preprocessing = start.preprocessing(options.preprocessing)
        images = len(train) + len(sets.unlabelled)
        size = options.image_size or max(start.image_size)
        if start.knows_classes:
            chosen = folder_recipe(images, len(train.classes), size, on_cpu=device.type == "cpu")
        else:
            chosen = masked_recipe(images, size, on_cpu=device.type == "cpu")
        sides = (size, size) if options.image_size else start.image_size
        options = _parse(words, chosen, start, tuned_network(start, train.classes, sides, chosen))
    config = fitted(
        RunConfig(
            recipe=chosen.name,
            model=options.model,
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
            start=None if start is None else start.source,
            start_fingerprint=None if start is None else start.fingerprint,
        ),
        num_classes=len(train.classes),
        image_size=options.image_size,
        keeps_resize=is_given("--augment.resize", words),
    )
    # How many of them will be taught is not known yet.
    config = batch_that_fits(config, len(train) + len(sets.unlabelled), words)
    return for_data(config, sets.unlabelled, words)


def _recipe(words: list[str]) -> Recipe:
    """The recipe of a student from scratch."""
    if typed_value("--data", words) is None and not {"-h", "--help"} & set(words):
        raise UsageError(
            "there are no labelled images", wanted="vitrail selftrain TEACHER --data LABELLED --unlabelled IMAGES"
        )
    chosen = chosen_recipe(typed_value("--student", words), words)
    if chosen.model is None or chosen.masking is not None:
        verb = "fine-tuning" if chosen.model is None else "learning without labels"
        raise UsageError(
            f"{chosen.name} is a recipe for {verb}",
            wanted="one that trains a classifier, or a model to start from",
            fix="`vitrail list recipes` shows all; --student RUN starts from the model of a run.",
        )
    return chosen


def _model_student(words: list[str]) -> "Start | None":
    """The model that students start from, where it is no recipe that they follow."""
    name = typed_value("--student", words)
    peer = None if name is None else peer_name(name)
    # Of a network of another package, a tag names weights; without one it starts from scratch.
    if name is None or name in RECIPES or (peer is not None and peer.tag is None):
        return None
    from vitrail.experiments.finetune_start import read_start

    return read_start(name)


def _any_recipe(start: "Start") -> Recipe:
    """A stand-in for what cannot be chosen before the data is known, so that a typing error need not wait for it."""
    return folder_recipe(1000, 10, max(start.image_size))


def _parse(
    words: list[str], chosen: Recipe, start: "Start | None" = None, network: ModelConfig | None = None
) -> Options:
    """What was typed, where the recipe with noise in it is the default."""
    model = chosen.model if start is None else network or start.checkpoint.config
    assert model is not None
    known = defaults(chosen, words)
    # Of a sweep that is not made, the rate in the middle.
    optim = replace(known.optim, lr=chosen.learning_rates[len(chosen.learning_rates) // 2])
    return tyro.cli(
        Options[type(model)],
        args=words,
        prog="vitrail selftrain TEACHER",
        description=f"{inspect.getdoc(Options)}\n\n{SHORT_NAMES} Also {', '.join(_SHORT)}. "
        "`vitrail selftrain --resume FOLDER` goes on with one.",
        default=Options(
            data=replace(known.data, data=tyro.MISSING),
            unlabelled=tyro.MISSING,
            model=noised_network(model),
            optim=optim,
            schedule=kept_warmup(known.schedule, chosen.train, words),
            train=known.train,
            augment=noised_images(known.augment, model.image_size),
        ),
        config=(tyro.conf.AvoidSubcommands,),
    )


def _ensure_labelled(data: DataConfig) -> None:
    if not data.labelled:
        raise UsageError("--no-labelled is given", wanted="labelled images in --data, and others in --unlabelled")
