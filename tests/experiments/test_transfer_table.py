"""One table of what was found, under the paper's; from folders that fine-tunings left."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.experiments.conftest import config

from vitrail.experiments.finetune import Final, Measured, Plan, Splits, Trial, make_plan, make_result, write_result
from vitrail.experiments.transfer import Pair, TransferFolder, TransferRecord
from vitrail.experiments.transfer_table import Column, Table, cell_text, make_table, notes, paper_text, write_table
from vitrail.models.cost import measure_cost


def measured(accuracy: float) -> Measured:
    return Measured(images=200, accuracy=accuracy, top5=1.0, loss=0.5)


@pytest.fixture
def plan(source: Path, data: Path) -> Plan:
    return make_plan(config(source, data), rates=(0.1, 0.2), seeds=2, splits=Splits(val=False, test=True))


def named(plan: Plan, data: str) -> Plan:
    return replace(plan, config=replace(plan.config, data=replace(plan.config.data, data=data)))


def finished(folder: TransferFolder, pair: Pair, *accuracies: float) -> Pair:
    """What a fine-tuning leaves: five steps in each run, one second each; the second rate diverged after three."""
    assert pair.plan is not None
    place = folder.pair(pair)
    trials = [
        Trial(lr=0.1, folder="sweep/lr-0.1", measured=measured(0.5), seconds=1.0),
        Trial(lr=0.2, folder="sweep/lr-0.2", measured=None, seconds=1.0),
    ]
    finals = [
        Final(seed=seed, folder=f"seed-{seed}", measured=measured(value), seconds=1.0)
        for seed, value in enumerate(accuracies)
    ]
    for run in (*trials, *finals):
        log = place.run(run.folder).log
        log.parent.mkdir(parents=True)
        last = 3 if run.folder.endswith("0.2") else 5
        log.write_text("".join(json.dumps({"event": "train", "step": step}) + "\n" for step in range(1, last + 1)))
    write_result(place.result, make_result(pair.plan, trials, 0.1, finals))
    return pair


def table_of(folder: TransferFolder, *pairs: Pair, real: str | None = None, **failures: str) -> Table:
    record = TransferRecord(pairs=pairs, real_labels=real, command="vitrail transfer ...", versions={})
    return make_table(folder, record, failures)


def pair_of(plan: Plan | None, model: str, data: str, problem: str = "") -> Pair:
    return Pair(model=model, data=data, pretraining="not known", plan=plan, problem=problem)


def test_our_row_stands_under_the_papers(tmp_path: Path, plan: Plan) -> None:
    folder = TransferFolder(tmp_path)
    done = finished(folder, pair_of(named(plan, "cifar10"), "mine", "cifar10"), 0.90, 0.92)
    waiting = pair_of(plan, "mine", "photos")
    table = table_of(folder, done, waiting)
    assert [column.title for column in table.columns] == ["cifar10", "photos"]
    assert table.paper[-1].title == "ViT-B/16, ImageNet-21k (Table 5)"
    assert paper_text(table.paper[-1], Column(data="cifar10")) == "98.95"
    assert paper_text(table.paper[-1], Column(data="photos")) == ""
    assert cell_text(table, "mine", Column(data="cifar10")) == "91.00 ± 1.41"
    assert cell_text(table, "mine", Column(data="photos")) == "..."
    told = "\n".join(notes(table))
    assert "Not as in the paper: cifar10: 5 steps instead of 10,000; 8 px instead of 384; 2 seeds instead of 3" in told
    assert "Images that each number counts: cifar10 200." in told
    assert "Pre-training of mine (no named network): not known." in told
    assert "The paper has no row for the network of mine." in told
    assert "The paper has no number for photos." in told


def test_what_was_spent_is_counted_run_by_run(tmp_path: Path, plan: Plan) -> None:
    folder = TransferFolder(tmp_path)
    spent = table_of(folder, finished(folder, pair_of(plan, "mine", "photos"), 0.9, 0.8)).cells[0].spent
    assert spent is not None
    assert (spent.runs, spent.seconds, spent.images) == (4, 4.0, (5 + 3 + 5 + 5) * 16)
    assert spent.flops == 6 * measure_cost(plan.config.model).macs * spent.images


def test_a_folder_that_is_called_like_a_data_set_gets_no_number_of_the_paper(tmp_path: Path, plan: Plan) -> None:
    folder = TransferFolder(tmp_path)
    own = pair_of(plan, "mine", "cifar10")
    pets = pair_of(named(plan, "oxford-pets"), "mine", "oxford-pets")
    table = table_of(folder, own, pets)
    assert table.paper
    assert all(paper_text(row, Column(data="cifar10")) == "" for row in table.paper)
    assert table_of(folder, own).paper == ()


def test_failures_are_told_and_what_was_held_out_is_marked(tmp_path: Path, plan: Plan) -> None:
    folder = TransferFolder(tmp_path)
    swept = replace(plan, measure="sweep")
    done = finished(folder, pair_of(swept, "a", "photos"), 0.9)
    absent = pair_of(None, "a", "imagenet", "it is not there.")
    diverged = pair_of(plan, "b", "photos")
    table = table_of(folder, done, absent, diverged, **{"b on photos": "the loss is not finite."})
    assert cell_text(table, "a", Column(data="photos")) == "50.00*"
    assert cell_text(table, "a", Column(data="imagenet")) == "failed"
    assert cell_text(table, "b", Column(data="photos")) == "failed"
    assert cell_text(table, "b", Column(data="imagenet")) == ""
    assert notes(table)[:3] == [
        "failed: a on imagenet: it is not there.",
        "failed: b on photos: the loss is not finite.",
        "* measured on training images that were left out, because there is no test split.",
    ]


def test_models_are_named_where_their_settings_differ(tmp_path: Path, plan: Plan) -> None:
    pets = named(plan, "oxford-pets")
    pairs = [pair_of(pets, "a", "oxford-pets"), pair_of(replace(pets, seeds=(0,)), "b", "oxford-pets")]
    told = "\n".join(notes(table_of(TransferFolder(tmp_path), *pairs)))
    assert "a on oxford-pets: 5 steps instead of 500; 8 px instead of 384; 2 seeds instead of 3" in told
    assert "b on oxford-pets: 5 steps instead of 500; 8 px instead of 384; 1 seed instead of 3" in told


def test_both_files_hold_the_whole_table(tmp_path: Path, plan: Plan) -> None:
    folder = TransferFolder(tmp_path)
    done = finished(folder, pair_of(named(plan, "cifar10"), "a|b", "cifar10"), 0.90, 0.92)
    write_table(folder, table_of(folder, done))
    page = folder.page.read_text(encoding="utf-8")
    assert "| **a/b** | 91.00 ± 1.41 |" in page
    assert page.index("ViT-B/16, ImageNet-21k (Table 5) | 98.95") < page.index("**a/b**")
    assert "| a/b | cifar10 | 0.1 | 4 | 1.0 | 4.0 | 288 |" in page
    values = json.loads(folder.numbers.read_text(encoding="utf-8"))
    assert values["format"] == "vitrail-transfer-table/1"
    assert values["cells"][0]["found"]["mean"] == pytest.approx(0.91)
    assert values["cells"][0]["unlike_paper"][0] == "5 steps instead of 10,000"
    assert values["paper"][0]["scores"] == [{"data": "cifar10", "mean": 99.5, "std": None}]


def test_real_labels_make_a_column_of_their_own(tmp_path: Path, plan: Plan) -> None:
    folder = TransferFolder(tmp_path)
    imagenet = named(plan, "imagenet")
    imagenet = replace(imagenet, config=replace(imagenet.config, recipe="finetune-imagenet"))
    done = finished(folder, pair_of(imagenet, "a", "imagenet"), 0.8, 0.8)
    real = {"labels": "r", "digest": "d", "accuracies": [0.85, 0.87], "mean": 0.86, "std": 0.0141, "images": 9}
    (folder.pair(done).path / "real-result.json").write_text(json.dumps({**real, "skipped": 1}))
    assert len(table_of(folder, done).columns) == 1
    table = table_of(folder, done, real="real.json")
    column = table.columns[1]
    assert column.title == "imagenet ReaL"
    assert cell_text(table, "a", column) == "86.00 ± 1.41"
    assert paper_text(table.paper[0], column) == "90.72"
    assert paper_text(table.paper[0], table.columns[0]) == "88.55 ± 0.04"
