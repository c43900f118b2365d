"""VTAB-1k as fine-tunings: 800 images to learn from and 200 to choose on, then all 1,000, then the whole test."""

from dataclasses import replace

from vitrail.data.vtab.tasks import TASKS, Task
from vitrail.errors import DataError
from vitrail.recipes import recipe
from vitrail.transfer.plan import Plan, retrained_on
from vitrail.transfer.result import Result
from vitrail.transfer.vtab_table import TaskScore

SETTINGS = {"paper": ("finetune-vtab",), "augreg": ("augreg-finetune-vtab-500", "augreg-finetune-vtab-2500")}
"""One setting for all tasks (Table 4), or AugReg's sweep of rates and lengths for each."""

_PAPER = recipe(SETTINGS["paper"][0])
_PAPER_SEEDS = 3


def task_plan(plan: Plan, task: Task) -> Plan:
    """A plan for a task: what must not be done to its images is left out, and none of a test image is cut off."""
    config = plan.config
    augment = config.augment
    if not task.crop:
        augment = replace(augment, crop="whole")
    if not task.flip:
        augment = replace(augment, flip=False)
    preprocessing = replace(config.preprocessing, crop=None)
    plan = replace(plan, config=replace(config, augment=augment, preprocessing=preprocessing))
    return retrained_on(plan, "train+val")


def choose_length(results: dict[str, Result]) -> str:
    """The fine-tuning that was best on the images to choose on; of equals the first, and never a look at the test."""
    if len(results) == 1:
        return next(iter(results))

    def worth(name: str) -> tuple[float, float]:
        found = next(trial.measured for trial in results[name].rates if trial.lr == results[name].chosen)
        return (found.accuracy, -found.loss) if found else (-1.0, 0.0)

    return max(results, key=worth)


def less_than_the_paper(plan: Plan) -> list[str]:
    """What of the paper's setting (Table 4, and three runs) a plan has less of."""
    config, train = plan.config, plan.config.train
    steps, batch = _PAPER.train.steps or 0, _PAPER.train.batch_size
    side = min(config.model.image_size)
    seeds = len(plan.seeds)
    pairs = [
        (train.steps is not None and train.steps < steps, f"{train.steps:,} steps instead of {steps:,}")
        if train.steps is not None
        else (True, f"{train.epochs} epochs instead of {steps:,} steps"),
        (train.batch_size < batch, f"batches of {train.batch_size} instead of {batch}"),
        (side < _PAPER.image_size, f"{side} pixels instead of {_PAPER.image_size}"),
        (seeds < _PAPER_SEEDS, f"{seeds} run{'s' if seeds > 1 else ''} instead of {_PAPER_SEEDS}"),
        (train.time_limit is not None, f"no more than {train.time_limit} minutes a run"),
    ]
    return [sentence for is_less, sentence in pairs if is_less]


def task_score(task: str, plan: Plan, result: Result, folder: str, split: str, sha256: str) -> TaskScore:
    """What the table says of a task."""
    if result.mean is None:
        raise DataError("nothing was measured", wanted="a number on the test images", where=folder)
    return TaskScore(
        task=task,
        accuracy=result.mean,
        std=result.std,
        images=result.images,
        whole=TASKS[task].images[2],
        seeds=len(result.seeds),
        lr=result.chosen,
        steps=plan.config.train.steps,
        split=split,
        sha256=sha256,
        folder=folder,
        seconds=result.seconds,
        less=tuple(less_than_the_paper(plan)),
    )
