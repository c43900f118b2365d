"""`vitrail.selftrain`: a teacher labels images that nobody labelled, and a noised student learns from all of them.

That is a round, and its student can be the teacher of the next one (Xie et al., 2020). Labelling and measuring are
pieces of work between the runs; what they find is on disk, so that it is not done again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from vitrail.config import AugmentConfig, DataConfig, ModelConfig, RunConfig, Settings, VitConfig, peer_name
from vitrail.config.checks import positive
from vitrail.data.sources.taught import RECORD
from vitrail.errors import UsageError, VitrailError, command, notice, setting
from vitrail.experiments.ask import Ask, Place
from vitrail.experiments.experiment import (
    Experiment,
    ExperimentFolder,
    Run,
    Steps,
    Work,
    read_plan,
    write_plan,
)
from vitrail.experiments.resolve import (
    Resolved,
    data_config,
    ensure_buildable,
    lay,
    located,
    resolve,
    scratch_recipe,
    with_its_depth,
    with_kept_warmup,
)
from vitrail.experiments.selftrain_choosing import Choice
from vitrail.recipes import RECIPES, Recipe, folder_recipe, masked_recipe
from vitrail.training.folder import PartFolder, RunFolder

if TYPE_CHECKING:
    from vitrail.experiments.calling import Finished
    from vitrail.experiments.driver import Driver
    from vitrail.experiments.selftrain_result import Result
    from vitrail.experiments.selftrain_sets import Sets
    from vitrail.experiments.start import Start
    from vitrail.training.events import OnEvent

# What a teacher has answered so far, before it is a lesson.
PIECES = "answers-*.npz"


@dataclass(frozen=True, kw_only=True)
class Options(Place, Choice):
    """TEACHER labels images that nobody labelled; a student learns from them and from labelled ones, against noise.

    TEACHER is a run, a model folder, a file, or a name with weights; its classes are those of the data. The options of
    `vitrail train` are the student's. Each round is a run in the folder of the whole.
    """

    unlabelled: str | None = None
    """A folder of images, nested or not, or anything that --data takes; its labels are never looked at."""
    unlabelled_split: str = "train"
    """The part of it to label, such as train[10%:]."""
    unlabelled_root: str | None = None
    """Where its files are, where it is a known data set; --root if not said."""
    student: str | None = None
    """A recipe, timm:NAME, or a model to start from; if not said, the recipe that suits the data."""
    rounds: int = 1
    """The student of a round teaches the next one; --steps, --epochs and --time-limit are those of each."""
    image_size: int | None = None
    """Side of the student's input in pixels, where it is not the recipe's."""
    preprocessing: str | None = None
    """google, augreg or imagenet, where a file of weights does not say how its images were prepared."""


SHORT = {
    "dropout": "model.dropout",
    "stochastic_depth": "model.stochastic_depth",
    "randaugment_layers": "augment.randaugment_layers",
    "randaugment_magnitude": "augment.randaugment_magnitude",
}
NOT_HERE = {
    "processes": "it runs in one process",
    "parallel": "it runs in one process",
    "or_resume": "the folder of a self-training is gone on with by its name",
}


# The plan.


@dataclass(frozen=True, kw_only=True)
class Unlabelled:
    """Where the images come from that the teacher labels."""

    data: str
    split: str = "train"
    root: str | None = None


@dataclass(frozen=True, kw_only=True)
class Plan(Experiment["Result"]):
    """A teacher labels, a student learns, and in the next round the student is the teacher."""

    verb: ClassVar[str] = "selftrain"
    between: ClassVar[str] = "pieces of work"

    teacher: str
    """A path is absolute, because a resume may come from elsewhere."""
    teacher_fingerprint: str
    preprocessing: str | None = None
    """A preset, where the file of the teacher does not say how its images were prepared."""
    unlabelled: Unlabelled
    choice: Choice
    rounds: int = 1
    config: RunConfig
    """Of the first student; its data is the labelled data."""

    def __post_init__(self) -> None:
        positive("rounds", self.rounds, at_most=1000)

    def at(self, path: Path, whole: str = "") -> "SelftrainFolder":
        """The folder of it."""
        return SelftrainFolder(path, whole=whole)

    def begun(self, folder: "SelftrainFolder", driver: "Driver") -> None:
        """It was written down before the teacher labelled anything."""

    def has_begun(self, folder: "SelftrainFolder") -> bool:
        """What a teacher said is of use to another plan."""
        return True

    def steps(self, folder: "SelftrainFolder") -> "Steps[Result]":
        """Measure the teacher; then label, train, and begin again."""
        from vitrail.experiments.selftrain_rounds import Rounds

        rounds = Rounds(self, folder)
        result = yield Work(title="measure the teacher", do=rounds.measure_teacher, alike=rounds.alike)
        for number in range(1, self.rounds + 1):
            is_done = number <= len(result.students)
            if not is_done:
                yield Work(title=f"label for round {number}", do=rounds.teaching(number))
                ended = yield Run(
                    folder=f"round-{number}",
                    title=f"round {number}",
                    number=number,
                    config=student(self, number, folder.taught(number)),
                    # When the labels that were taught have been compared with the truth.
                    page="later",
                    is_shown=True,
                )
                result = yield Work(
                    title=f"measure round {number}", do=rounds.ending(number, result, ended), alike=result
                )
            yield Work(title=f"the page of round {number}", do=rounds.showing(number, is_old=is_done))
        return result


@dataclass(frozen=True, kw_only=True)
class Noise:
    """What a student has to learn in spite of, where its recipe has nothing of the kind; never on the teacher.

    Xie et al. (section 3.1) drop half of the inputs of the last layer of a convolutional network. A ViT has its dropout
    in every block, where less does. RandAugment is half as strong as what is usual at 224 pixels. On top of a recipe's
    own noise it would be too much: a small network then learns less than its teacher knew.
    """

    dropout: float = 0.1
    stochastic_depth: float = 0.1
    randaugment_layers: int = 2
    randaugment_magnitude: float = 5.0
    randaugment_from: int = 32
    """Pixels of the shorter side below which an image is too small to be moved and cut without harm."""


NOISE = Noise()


def noised_network(model: ModelConfig) -> ModelConfig:
    """The network with dropout and stochastic depth, where it can have them and has neither."""
    if not isinstance(model, VitConfig) or model.dropout or model.stochastic_depth:
        return model
    return replace(model, dropout=NOISE.dropout, stochastic_depth=NOISE.stochastic_depth)


def noised_images(augment: AugmentConfig, image_size: tuple[int, int]) -> AugmentConfig:
    """The augmentation with RandAugment, where images are large enough and there is none yet."""
    if min(image_size) < NOISE.randaugment_from or augment.randaugment_layers:
        return augment
    return replace(
        augment, randaugment_layers=NOISE.randaugment_layers, randaugment_magnitude=NOISE.randaugment_magnitude
    )


def student(plan: Plan, number: int, taught: Path) -> RunConfig:
    """The run of a round: on what the teacher labelled, with weights and order of its own."""
    config = plan.config
    data = replace(
        config.data,
        data=f"taught:{taught.absolute()}",
        root=None,
        split="train",
        # What is held out was settled when the teacher labelled; here it is the val split.
        held_out=0.0 if config.data.held_out == 0 else None,
        allow_empty=False,
        download=False,
    )
    return replace(config, data=data, train=replace(config.train, seed=config.train.seed + number - 1))


# Its folder.


@dataclass(frozen=True)
class SelftrainFolder(ExperimentFolder):
    """`runs/<name>/` of a self-training."""

    verb: str = "selftrain"

    @property
    def result(self) -> Path:
        """What was found, as far as it has come."""
        return self.path / "selftrain.json"

    def taught(self, number: int) -> Path:
        """What the teacher of a round labelled: `taught:` before it makes a data source."""
        return self.path / f"taught-{number}"

    def round(self, number: int) -> RunFolder:
        """The run of a student."""
        return PartFolder(self.path / f"round-{number}", self.resume_command)


def read_selftraining(folder: SelftrainFolder) -> Plan:
    """Read the plan back."""
    return read_plan(folder, Plan, "a self-training").plan


def can_replace(folder: SelftrainFolder, plan: Plan) -> bool:
    """Whether a plan may take the place of the one there: no student has begun, and what its teacher said stays of use.

    So the same command can be given again after it was refused, with another threshold or other options of the student.
    """
    try:
        before = read_selftraining(folder)
    except VitrailError:
        return False
    if folder.model.exists() or any(folder.path.glob("round-*/config.json")):
        return False
    first = folder.taught(1)
    if (first / RECORD).is_file():
        return _lesson_of(before) == _lesson_of(plan)
    return not any(first.glob(PIECES)) or _answers_of(before) == _answers_of(plan)


def begin_plan(folder: SelftrainFolder, plan: Plan, asked: str = "") -> None:
    """Write a plan, also in the place of another, whose teacher may have been measured on other images."""
    from vitrail.runtime.processes import ALONE
    from vitrail.training.whole import held

    with held(folder, ALONE):
        folder.result.unlink(missing_ok=True)
        write_plan(folder, plan, asked, model=plan.config.model)


def _answers_of(plan: Plan) -> tuple[Any, ...]:
    """Everything that decides what the teacher says."""
    return plan.teacher_fingerprint, plan.preprocessing, plan.unlabelled, plan.choice.labels


def _lesson_of(plan: Plan) -> tuple[Any, ...]:
    """Everything that decides what the student is taught."""
    return *_answers_of(plan), plan.choice, replace(plan.config.data, workers=None)


# From what was asked for to a plan, and through it.


def plan(ask: Ask, driver: "Driver") -> Plan:
    """Open the teacher and all images, and decide the run of the student."""
    from vitrail.evaluation.subject import open_subject
    from vitrail.experiments.selftrain_sets import open_sets
    from vitrail.experiments.selftrain_teacher import as_teacher

    if not ask.subjects:
        raise UsageError(
            "there is no teacher",
            wanted=command("selftrain", "TEACHER", data="LABELLED", unlabelled="IMAGES"),
            fix=f"`{command('train', data='LABELLED')}` makes one; any model with the same classes works as well.",
        )
    (teacher,) = ask.subjects
    options, given, device = ask.options(Options), ask.settings, driver.how.device
    if "data.data" not in given or options.unlabelled is None:
        raise UsageError(
            f"there are no {'un' * ('data.data' in given)}labelled images",
            wanted=command("selftrain", "TEACHER", data="LABELLED", unlabelled="IMAGES"),
        )
    start = _model_student(options.student)
    chosen = _scratch(options, given) if start is None else folder_recipe(1000, 10, max(start.image_size))
    network = chosen.model if start is None else start.checkpoint.config
    assert network is not None
    # With any recipe where it depends on the data, so that a typing error need not wait for that.
    lay(chosen, noised_network(network), given)
    if options.image_size is not None:
        ensure_buildable(replace(network, image_size=(options.image_size, options.image_size)))
    labelled = data_config(given, chosen.held_out)
    if not labelled.labelled:
        raise UsageError(
            f"{setting('data.labelled', False)} is given",
            wanted=f"labelled images in {setting('data.data')}, and others in {setting('unlabelled')}",
        )
    images = located(
        DataConfig(
            data=options.unlabelled, split=options.unlabelled_split, root=options.unlabelled_root or labelled.root
        )
    )
    unlabelled = Unlabelled(data=images.data, split=images.split, root=images.root)
    who = str(Path(teacher).resolve()) if Path(teacher).exists() else teacher
    # What is wrong with the teacher is told before any image is read.
    subject = open_subject(who, device=device, preprocessing=options.preprocessing)
    sets = open_sets(labelled, unlabelled, device, driver.audience.reading)
    found = _student(options, given, start, sets, device, labelled)
    for note in found.notes:
        notice(note)
    as_teacher(subject, sets.labelled.train.classes, given["data.data"])
    driver.kept = sets
    return Plan(
        teacher=who,
        teacher_fingerprint=subject.fingerprint,
        preprocessing=options.preprocessing,
        unlabelled=unlabelled,
        choice=Choice(
            labels=options.labels,
            threshold=options.threshold,
            balance=options.balance,
            per_class=options.per_class,
        ),
        rounds=options.rounds,
        config=found.config,
    )


def _student(
    options: Options, given: Settings, start: "Start | None", sets: "Sets", device: Any, data: DataConfig
) -> Resolved:
    """Everything that decides the run of a student, but for what it is taught."""
    train, images = sets.labelled.train, len(sets.labelled.train) + len(sets.unlabelled)
    if start is None:
        chosen = _scratch(options, given)
        network, preprocessing = chosen.model, chosen.preprocessing
    else:
        preprocessing = start.preprocessing(options.preprocessing)
        size = options.image_size or max(start.image_size)
        if start.knows_classes:
            chosen = folder_recipe(images, len(train.classes), size, on_cpu=device.type == "cpu")
        else:
            chosen = masked_recipe(images, size, on_cpu=device.type == "cpu")
        sides = (size, size) if options.image_size else start.image_size
        network = with_its_depth(start.network(train.classes, sides), chosen)
    assert network is not None
    # Of a sweep that is not made, the rate in the middle.
    rate = chosen.learning_rates[len(chosen.learning_rates) // 2]
    chosen = replace(
        with_kept_warmup(chosen, given),
        optim=replace(chosen.optim, lr=rate),
        augment=noised_images(chosen.augment, network.image_size),
    )
    return resolve(
        chosen,
        noised_network(network),
        given,
        train,
        device,
        data=data,
        preprocessing=preprocessing,
        image_size=options.image_size,
        start=None if start is None else (start.source, start.fingerprint),
        # How many of them will be taught is not known yet.
        fits=images,
        seen=len(sets.unlabelled),
    )


def _scratch(options: Options, given: Settings) -> Recipe:
    """The recipe of a student from scratch."""
    name = options.student
    chosen = scratch_recipe(name, given.get("data.data"), finetunes=True)
    if chosen.model is None or chosen.masking is not None:
        verb = "fine-tuning" if chosen.model is None else "learning without labels"
        raise UsageError(
            f"{chosen.name} is a recipe for {verb}",
            wanted="one that trains a classifier, or a model to start from",
            fix=f"`vitrail list recipes` shows all; {setting('student', 'RUN')} starts from the model of a run.",
        )
    return chosen


def _model_student(name: str | None) -> "Start | None":
    """The model that students start from, where it is no recipe that they follow."""
    peer = None if name is None else peer_name(name)
    # Of a network of another package, a tag names weights; without one it starts from scratch.
    if name is None or name in RECIPES or (peer is not None and peer.tag is None):
        return None
    from vitrail.experiments.start import read_start

    return read_start(name)


def found(path: Path) -> "Result":
    """What is known in a folder; nothing is done."""
    from vitrail.experiments.selftrain_result import read_result

    return read_result(SelftrainFolder(path).result)


def begin(ask: Ask, driver: "Driver") -> "tuple[SelftrainFolder, Result]":
    """Label, train, and begin again; the same name can be taken again as long as no student has begun."""
    from vitrail.data.outside import ensure_outside
    from vitrail.experiments.folders import Destination, claimed

    options, found = ask.options(Options), plan(ask, driver)
    sets, out, name = driver.kept, Path(options.out).expanduser(), options.name or "selftrain"
    ensure_outside([sets.unlabelled], out / name)
    data = sets.labelled
    sources = [source for source in (data.train, data.held_out, data.test) if source is not None]
    with claimed(
        Destination(out, name, is_exact=bool(options.name)),
        sources,
        driver.processes,
        is_spare=lambda path: can_replace(SelftrainFolder(path), found),
        # What a teacher said is of use to another plan.
        has_begun=lambda target: target.config.exists(),
    ) as target:
        folder = SelftrainFolder(target.path)
        is_again = folder.config.exists()
        begin_plan(folder, found, ask.command)
        driver.audience.planned(found, folder, sets=sets, is_again=is_again)
        return folder, driver.drive(found, folder)


def go_on(path: Path, driver: "Driver") -> "tuple[SelftrainFolder, Result]":
    """Go on wherever it stopped: labelling, training, or between two rounds."""
    folder = SelftrainFolder(path)
    return folder, driver.drive(read_selftraining(folder), folder)


def selftrain(
    teacher: Any = None,
    *,
    data: Any = None,
    unlabelled: Any = None,
    settings: Mapping[str, Any] | None = None,
    on_event: "OnEvent | None" = None,
    **options: Any,
) -> "Finished":
    """Let a model label images that nobody labelled, and train a noised student on them and on labelled ones.

    `teacher` is whatever `load_model` takes; `data` are labelled images, `unlabelled` others. Keywords are those of
    `train` for the student, and student, rounds, threshold, labels, balance, per_class. `resume="runs/x"` goes on.

        run = vitrail.selftrain("runs/teacher", data="labelled", unlabelled="photos", rounds=2)
        run.result.students[-1].test
    """
    from vitrail.experiments.calling import call

    given = {"data": data, "unlabelled": unlabelled, **options}
    return call("selftrain", () if teacher is None else (teacher,), given, settings, on_event)
