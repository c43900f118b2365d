"""VTAB-1k as fine-tunings: 800 images to learn from and 200 to choose on, then all 1,000, then the whole test."""

from dataclasses import replace

from vitrail.data.vtab.split import LEARN, SELECT
from vitrail.data.vtab.tasks import TASKS, Task
from vitrail.errors import DataError
from vitrail.experiments.finetune_plan import Plan, retrained_on
from vitrail.experiments.finetune_result import Result
from vitrail.experiments.transfer_unlike_paper import unlike_paper
from vitrail.experiments.vtab_folder import KeptSplit
from vitrail.experiments.vtab_table import TaskScore
from vitrail.recipes import recipe

SETTINGS = {"paper": ("finetune-vtab",), "augreg": ("augreg-finetune-vtab-500", "augreg-finetune-vtab-2500")}
"""One setting for all tasks (Table 4), or AugReg's sweep of rates and lengths for each."""

_PAPER = recipe(SETTINGS["paper"][0])


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


def less_than_the_paper(plan: Plan, task: Task) -> list[str]:
    """A phrase for each setting that is not the paper's (Table 4, and three runs); what VTAB itself says is none."""
    config, augment = plan.config, plan.config.augment
    # What is held out are the 200 images, and what a label forbids (see `task_plan`) was nobody's choice.
    data = replace(config.data, data="vtab", held_out=_PAPER.held_out)
    if not task.crop:
        augment = replace(augment, crop=_PAPER.augment.crop)
    if not task.flip:
        augment = replace(augment, flip=_PAPER.augment.flip)
    return list(unlike_paper(replace(plan, config=replace(config, data=data, augment=augment))))


def less_than_vtab(task: Task, split: KeptSplit, images: int) -> list[str]:
    """What of its images a task was without."""
    whole = task.images[2]
    pairs = [
        (
            (split.train, split.val) != (LEARN, SELECT),
            f"{split.train} + {split.val} images to learn from instead of {LEARN} + {SELECT}",
        ),
        (images != whole, f"{images:,} test images instead of {whole:,}"),
    ]
    return [f"{task.name}: {phrase}" for is_less, phrase in pairs if is_less]


def task_score(name: str, plan: Plan, result: Result, folder: str, split: KeptSplit) -> TaskScore:
    """What the table says of a task."""
    if result.mean is None:
        raise DataError("nothing was measured", wanted="a number on the test images", where=folder)
    task = TASKS[name]
    return TaskScore(
        task=name,
        accuracy=result.mean,
        std=result.std,
        images=result.images,
        whole=task.images[2],
        train=split.train,
        val=split.val,
        seeds=len(result.seeds),
        lr=result.chosen,
        steps=plan.config.train.steps,
        split=split.origin,
        sha256=split.sha256,
        folder=folder,
        seconds=result.seconds,
        less=(*less_than_the_paper(plan, task), *less_than_vtab(task, split, result.images)),
    )
