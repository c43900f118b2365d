"""VTAB's protocol as plans, and its table."""

import json
import multiprocessing
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.experiments.conftest import config

from vitrail.config import RunConfig, from_json, preset, to_json
from vitrail.data.vtab.tasks import TASKS
from vitrail.errors import UsageError
from vitrail.experiments import vtab_folder
from vitrail.experiments.finetune import (
    Final,
    Measured,
    Plan,
    Result,
    Splits,
    Trial,
    final_runs,
    make_plan,
    sweep_runs,
)
from vitrail.experiments.vtab import choose_length, less_than_the_paper, task_plan, task_score
from vitrail.experiments.vtab_folder import (
    KeptSplit,
    VtabFolder,
    VtabRecord,
    alone,
    begin_vtab,
    read_vtab,
    write_table,
)
from vitrail.experiments.vtab_table import PAPER, Table, as_json, as_markdown, blocks, remarks
from vitrail.recipes import recipe


@pytest.fixture
def base(source: Path, data: Path) -> RunConfig:
    return config(source, data)


def plan_of(base: RunConfig, task: str, rates: tuple[float, ...] = (0.01, 0.03)) -> Plan:
    made = make_plan(base, rates=rates, seeds=2, splits=Splits(val=True, test=True))
    return task_plan(made, TASKS[task])


def test_rates_are_chosen_on_val_and_final_runs_learn_from_both(base: RunConfig):
    plan = plan_of(base, "oxford-pets")
    assert [(run.config.data.split, run.config.data.held_out) for run in sweep_runs(plan)] == [("train", None)] * 2
    finals = final_runs(plan, 0.03)
    assert [(run.config.data.split, run.config.data.held_out) for run in finals] == [("train+val", 0.0)] * 2
    assert all(run.config.data.test for run in finals) and not any(run.config.data.test for run in sweep_runs(plan))
    assert plan.measure == "test"
    assert from_json(Plan, to_json(plan), where="here") == plan


def test_a_plan_that_was_written_before_can_be_read(base: RunConfig):
    values = to_json(make_plan(base, rates=(0.01,), seeds=1, splits=Splits(val=False, test=True)))
    del values["final_split"]
    plan = from_json(Plan, values, where="here")
    assert final_runs(plan, 0.01)[0].config.data.split == "train"


def test_what_a_label_forbids_is_left_out(base: RunConfig):
    base = replace(base, augment=replace(base.augment, crop="resize"), preprocessing=preset("augreg"))
    found = {name: plan_of(base, name).config for name in ("oxford-pets", "clevr-count", "snorb-azimuth")}
    assert {name: (one.augment.crop, one.augment.flip) for name, one in found.items()} == {
        "oxford-pets": ("resize", True),
        "clevr-count": ("whole", True),
        "snorb-azimuth": ("resize", False),
    }
    # The whole test image is resized.
    assert {one.preprocessing.crop for one in found.values()} == {None}
    assert {one.preprocessing.interpolation for one in found.values()} == {"bicubic"}


def measured(accuracy: float, loss: float = 1.0, images: int = 200) -> Measured:
    return Measured(images=images, accuracy=accuracy, top5=1.0, loss=loss)


def result(val: float, test: float, loss: float = 1.0) -> Result:
    trials = (
        Trial(lr=0.01, folder="sweep/lr-0.01", measured=measured(val, loss), seconds=1.0),
        Trial(lr=0.03, folder="sweep/lr-0.03", measured=None, seconds=1.0),
    )
    final = Final(seed=0, folder="seed-0", measured=measured(test, images=3_669), seconds=2.0)
    return Result(
        rates=trials, chosen=0.01, seeds=(final,), measured_on="test", mean=test, std=None, images=3_669, seconds=4.0
    )


def test_the_length_is_chosen_on_val_and_not_on_test():
    assert choose_length({"short": result(0.7, 0.9), "long": result(0.8, 0.1)}) == "long"
    assert choose_length({"short": result(0.8, 0.1), "long": result(0.8, 0.9)}) == "short"
    assert choose_length({"short": result(0.8, 0.1, loss=2.0), "long": result(0.8, 0.1, loss=1.5)}) == "long"
    assert choose_length({"only": replace(result(0.7, 0.9), rates=())}) == "only"


def test_what_is_shorter_than_the_paper_is_said(base: RunConfig):
    less = less_than_the_paper(plan_of(base, "dtd"), TASKS["dtd"])
    assert {"5 steps instead of 2,500", "batch 16 instead of 512", "8 px instead of 384", "2 seeds instead of 3"} < {
        *less
    }
    for name in ("dtd", "clevr-count", "snorb-azimuth"):
        assert less_than_the_paper(paper_plan(base, name), TASKS[name]) == []


def paper_plan(base: RunConfig, task: str, rates: tuple[float, ...] = (0.01,), **optim: object) -> Plan:
    """A plan with everything as Table 4 has it, but for what is given."""
    theirs = recipe("finetune-vtab")
    model = replace(base.model, image_size=(384, 384))
    whole = replace(base, model=model, train=theirs.train, augment=theirs.augment, schedule=theirs.schedule)
    whole = replace(whole, optim=replace(theirs.optim, **optim))
    return task_plan(make_plan(whole, rates=rates, seeds=3, splits=Splits(val=True, test=True)), TASKS[task])


def test_whatever_is_not_as_in_the_paper_is_said(base: RunConfig):
    plan = paper_plan(base, "kitti-distance", rates=(0.5,), optimizer="adam", freeze=-1)
    assert less_than_the_paper(plan, TASKS["kitti-distance"]) == [
        *("learning rate 0.5 instead of 0.01", "optimizer adam instead of sgd", "freeze -1 instead of 0")
    ]
    train = replace(plan.config.train, steps=None, epochs=1)
    plan = replace(paper_plan(base, "dtd"), config=replace(plan.config, train=train))
    assert "1 epoch instead of 2,500 steps" in less_than_the_paper(plan, TASKS["kitti-distance"])


WHOLE = KeptSplit(origin="own split", sha256="ab" * 32, train=800, val=200)


def table_of(base: RunConfig, names: list[str], images: int | None = None) -> Table:
    """Scores of all their test images, or of so many."""
    scores = {}
    for number, name in enumerate(names):
        found = replace(result(0.5, 0.01 * number), images=images or TASKS[name].images[2])
        scores[name] = task_score(name, paper_plan(base, name), found, name, WHOLE)
    return Table(model="mine|this", scores=scores, missing={})


def test_no_mean_without_all_of_its_tasks(base: RunConfig):
    names = list(TASKS)
    whole = table_of(base, names)
    assert whole.mean == pytest.approx(sum(range(19)) / 1900)
    assert whole.group_mean("Specialized") == pytest.approx((7 + 8 + 9 + 10) / 400)
    part = table_of(base, names[:-1])
    assert (part.mean, part.group_mean("Structured")) == (None, None)
    assert part.group_mean("Natural") == pytest.approx(0.03)
    assert "18 of 19 tasks are there, so there is no mean of all." in remarks(part)
    assert not any("of 19 tasks" in line for line in remarks(whole))
    assert as_json(part)["mean"] is None
    rows = [block.rows[-1] for block in blocks(part)]
    assert [row[-1] for row in rows] == ["3.0", "8.5", ""]


def test_no_mean_of_a_part_of_the_test_images(base: RunConfig):
    part = table_of(base, list(TASKS), images=3)
    assert (part.mean, part.group_mean("Natural")) == (None, None)
    assert "dtd: 3 test images instead of 1,880" in as_json(part)["less_than_the_paper"]
    assert f"no mean counts them: {', '.join(TASKS)}." in remarks(part)[-1]
    whole = table_of(base, list(TASKS))
    assert whole.less == [] and not any("no mean" in line for line in remarks(whole))


def test_fewer_images_to_learn_from_are_told(base: RunConfig):
    found = replace(result(0.5, 0.5), images=1_880)
    score = task_score("dtd", paper_plan(base, "dtd"), found, "dtd", replace(WHOLE, train=120, val=60))
    assert score.less == ("dtd: 120 + 60 images to learn from instead of 800 + 200",)
    table = Table(model="m", scores={"dtd": score}, missing={})
    assert as_json(table)["tasks"]["dtd"]["train"] == 120 and as_json(table)["tasks"]["dtd"]["val"] == 60
    assert score.less[0] in as_markdown(table)


def test_the_paper_is_above_us(base: RunConfig):
    for block in blocks(table_of(base, ["dtd"])):
        assert [row[0] for row in block.rows] == [*(row.name for row in PAPER), "mine|this"]
        assert all(len(row) == len(block.columns) + 1 for row in block.rows)
    for row in PAPER:
        assert len(row.values) == 19
        # Each printed mean is that of the printed numbers, give or take what rounding leaves.
        assert sum(row.values) / 19 == pytest.approx(row.mean, abs=0.06)
    natural, specialized, structured = PAPER[0].values[:7], PAPER[0].values[7:11], PAPER[0].values[11:]
    means = [sum(part) / len(part) for part in (natural, specialized, structured)]
    assert means == pytest.approx(list(PAPER[0].groups), abs=0.06)


def test_the_table_is_written_for_people_and_programs(base: RunConfig, tmp_path: Path):
    folder = VtabFolder(tmp_path / "v")
    begin_vtab(folder, asked("dtd", "svhn"))
    table = replace(table_of(base, ["dtd", "svhn"], images=3_669), missing={"dmlab": "not there"})
    write_table(folder, table)
    text = folder.table.read_text()
    assert "mine\\|this" in text and "- dmlab: not there" in text
    assert "3,669 of 1,880" in text  # What was counted, beside what VTAB has.
    values = json.loads((folder.path / "table.json").read_text())
    assert values["tasks"]["svhn"]["images"] == 3_669
    assert values["missing"] == {"dmlab": "not there"}
    assert text == as_markdown(table)


def asked(*tasks: str) -> VtabRecord:
    about = {"root": None, "download": False, "command": "vitrail vtab m", "versions": {}}
    return VtabRecord(source="m", setting="paper", tasks=tasks, settings={}, **about)


def test_the_order_of_options_means_nothing(tmp_path: Path):
    folder = VtabFolder(tmp_path / "v")
    begin_vtab(folder, replace(asked("dtd"), settings={"seeds": 1, "rates": [0.1, 0.2]}))
    begin_vtab(folder, replace(asked("dtd"), settings={"rates": [0.1, 0.2], "seeds": 1}))
    with pytest.raises(UsageError, match=r"settings.rates.*0\.1.*now.*0\.2"):
        begin_vtab(folder, replace(asked("dtd"), settings={"rates": [0.2, 0.1], "seeds": 1}))


def test_a_task_keeps_its_data(tmp_path: Path):
    folder = VtabFolder(tmp_path / "v")
    begin_vtab(folder, asked("svhn=/one", "dtd"))
    for text in ("svhn=/two", "svhn"):
        with pytest.raises(UsageError, match=rf"the task svhn is svhn=/one here, now {text}\. Give the same sources"):
            begin_vtab(folder, asked(text))
    with pytest.raises(UsageError, match="the task dtd is dtd here, now dtd=hf:a/b"):
        begin_vtab(folder, asked("dtd=hf:a/b"))
    begin_vtab(folder, asked("dmlab", "svhn=/one"))
    assert read_vtab(folder).tasks == ("svhn=/one", "dtd", "dmlab")
    # Nothing of a lock is left.
    assert [path.name for path in tmp_path.iterdir()] == ["v"]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_several_commands_at_once_lose_no_task(tmp_path: Path):
    # Processes, because the lock is between processes; forked, so that each begins at the same moment.
    context, names = multiprocessing.get_context("fork"), list(TASKS)[:6]
    ready = context.Barrier(len(names))

    def begin(name: str) -> None:
        ready.wait(timeout=30)
        begin_vtab(VtabFolder(tmp_path / "v"), asked(name))

    started = [context.Process(target=begin, args=(name,)) for name in names]
    for process in started:
        process.start()
    for process in started:
        process.join(timeout=60)
    assert [process.exitcode for process in started] == [0] * len(names)
    assert set(read_vtab(VtabFolder(tmp_path / "v")).tasks) == set(names)


def test_who_waits_too_long_is_told(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(vtab_folder, "_PATIENCE", 0.0)
    folder = VtabFolder(tmp_path / "v")
    with (
        alone(folder),
        pytest.raises(UsageError, match=r"another command is writing .*v \(this .*\)\. Wait"),
    ):
        begin_vtab(folder, asked("dtd"))
    assert not folder.path.exists()
