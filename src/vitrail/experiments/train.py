"""`vitrail.train`: pre-training and training from scratch, which is one run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from vitrail.config import RunConfig
from vitrail.data.sources.files import user_path
from vitrail.errors import UsageError, notice, setting
from vitrail.experiments.ask import Ask, Place
from vitrail.experiments.experiment import Ended, Experiment, ExperimentFolder, Run, Steps
from vitrail.experiments.kinds import kind_of
from vitrail.experiments.resolve import OWN_DATA, data_config, ensure_recipe, lay, resolve, scratch_recipe
from vitrail.training.events import Record

if TYPE_CHECKING:
    from vitrail.experiments.calling import Finished
    from vitrail.experiments.driver import Driver
    from vitrail.experiments.start import Start
    from vitrail.recipes import Recipe
    from vitrail.training.events import OnEvent


@dataclass(frozen=True, kw_only=True)
class Options(Place):
    """Train a network on images: from scratch, by a recipe whose every value can be changed."""

    image_size: int | None = None
    """Side of the input in pixels, where it is not the recipe's."""
    start: str | None = None
    """A model whose weights training starts from, in place of the recipe's network; fresh ones if not said."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of a run; shares are fractions."""

    split: str | None
    """What it was measured on: test, or held_out where there is no test split; none where there was nothing."""
    images: int
    accuracy: float | None
    loss: float | None
    seconds: float
    """Of training."""
    steps: int


@dataclass(frozen=True)
class Training(Experiment[Result]):
    """One run, in the folder of the whole."""

    verb: ClassVar[str] = "train"
    doing: ClassVar[str] = "training"
    locked_for: ClassVar[Literal["whole", "run", "write"]] = "run"
    config: RunConfig

    def steps(self, folder: ExperimentFolder) -> Steps[Result]:
        """Train."""
        ended: Ended = yield Run(title=self.config.recipe, config=self.config)
        assert ended.done is not None
        return _result(ended.done)

    def begun(self, folder: ExperimentFolder, driver: "Driver") -> None:
        """The run writes down its config itself."""


def plan(ask: Ask, driver: "Driver") -> Training:
    """Open the data and decide the run."""
    given, options = ask.settings, ask.options(Options)
    chosen = _chosen(ask)
    start = _read_start(options.start, chosen)
    network = chosen.model if start is None else start.checkpoint.config
    assert network is not None
    # What is wrong with a setting is told before any image is read.
    lay(chosen, network, given)
    where = data_config(given, chosen.held_out, labelled=chosen.masking is None, known=OWN_DATA.get(chosen.name))
    data = driver.open(where)

    def decided() -> Training:
        size = options.image_size
        if start is not None:
            size = size or max(start.image_size)
            sides = (size, size) if options.image_size else start.image_size
            tuned, prepared = start.network(data.train.classes, sides), start.preprocessing(None)
        else:
            tuned, prepared = network, chosen.preprocessing
        found = resolve(
            chosen,
            tuned,
            given,
            data.train,
            driver.how.device,
            data=where,
            preprocessing=prepared,
            image_size=size,
            start=None if start is None else (start.source, start.fingerprint),
            fits=len(data.train),
        )
        for note in found.notes:
            notice(note)
        return Training(found.config)

    return driver.decided(decided, Training)


def _chosen(ask: Ask) -> "Recipe":
    """The recipe that was asked for, with everything that can be wrong about it before any image is read."""
    name = ask.subjects[0] if ask.subjects else None
    ensure_recipe(name, kind_of(user_path(name)) if name is not None else "")
    chosen = scratch_recipe(name, ask.given.get("data.data"))
    if "data.data" not in ask.given and chosen.name not in OWN_DATA:
        raise UsageError(f"there is no data for {chosen.name}", wanted=setting("data.data", "DATA"))
    return chosen


def _read_start(source: str | None, chosen: "Recipe") -> "Start | None":
    if source is None:
        return None
    from vitrail.experiments.start import read_start

    if chosen.masking is not None:
        raise UsageError(
            f"{setting('start')} is given for a run without labels", wanted="a recipe that learns from labels"
        )
    return read_start(source)


def _result(done: Record) -> Result:
    """What the last record of a run says."""
    metrics = done["metrics"] or {}
    return Result(
        split=done["split"],
        images=metrics.get("images", 0),
        accuracy=metrics.get("accuracy"),
        loss=metrics.get("loss"),
        seconds=done["seconds"],
        steps=done["step"],
    )


def found(path: Path) -> Result:
    """What is known in a folder; nothing is done."""
    from vitrail.training.folder import RunFolder
    from vitrail.training.log import last_record

    done = last_record(RunFolder(path))
    assert done is not None
    return _result(done)


def begin(ask: Ask, driver: "Driver") -> tuple[ExperimentFolder, Result]:
    """Train what was asked for, or go on with it where that was begun before."""
    from vitrail.experiments.folders import Destination, begun_by_this_launch, claimed, mark_launch
    from vitrail.training.folder import RunFolder
    from vitrail.training.start import Allowed, refuse_other

    options, processes = ask.options(Options), driver.processes
    if (before := processes.first_says(lambda: begun_by_this_launch(options.out, driver.how.asked))) is not None:
        return go_on(Path(before), driver)
    name, out = options.name, Path(options.out).expanduser()
    training = plan(ask, driver)
    is_there = options.or_resume and processes.first_says(lambda: (out / str(name) / "config.json").is_file())
    if is_there:
        folder = RunFolder(out / str(name))
        with processes.together():
            refuse_other(folder, training.config, copies_given="data.copies" in ask.given)
        data = training.config.data
        allowed = Allowed(workers=data.workers, root=data.root, micro_batch=training.config.train.micro_batch)
        return go_on(folder.path, driver.allowing(allowed))
    destination = Destination(out, name or training.config.recipe, is_exact=bool(name))
    with claimed(destination, driver.sources(training.config.data), processes) as target:
        if processes.is_first:
            # Before the config is there: a restart goes on with it from then on.
            mark_launch(target.path, driver.how.asked)
        return training.at(target.path), driver.drive(training, training.at(target.path))


def go_on(path: Path, driver: "Driver") -> tuple[ExperimentFolder, Result]:
    """Go on with a run where it stopped; one that has ended is told."""
    from vitrail.training.folder import RunFolder, read_run

    processes = driver.processes
    with processes.together():
        training = Training(read_run(RunFolder(path)).config)
    folder = training.at(path)
    return folder, driver.drive(training, folder)


def train(
    recipe: Any = None,
    *,
    data: Any = None,
    settings: Mapping[str, Any] | None = None,
    on_event: "OnEvent | None" = None,
    **options: Any,
) -> "Finished":
    """Train a network on images, by a recipe whose every value can be changed; returns the finished run.

    `recipe` is a name of `vitrail list recipes`, a network of another package such as timm:resnet50, or a network in
    memory, which is trained from the weights it has; without one the data says which. `data` is a folder of class
    folders, a known name, a table, or arrays `(images, labels)`. The short options of the command line are keywords
    (epochs, lr, batch_size, name, device, processes ...), any other setting goes into `settings`. `on_event` is told
    what happens as it happens, in typed events of `vitrail.training.events`. `resume="runs/x"` goes on with a run.

        run = vitrail.train("vit-digits", epochs=4)
        run.accuracy, run.model, run.report
    """
    from vitrail.experiments.calling import call

    return call("train", () if recipe is None else (recipe,), {"data": data, **options}, settings, on_event)
