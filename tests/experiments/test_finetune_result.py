import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from tests.experiments.conftest import config
from tests.training.tiny_run import CPU

from vitrail.errors import DataError
from vitrail.experiments.driver import Driver, How
from vitrail.experiments.experiment import write_plan
from vitrail.experiments.finetune import (
    Final,
    FinetuneFolder,
    Measured,
    Splits,
    Trial,
    choose_rate,
    make_plan,
    make_result,
    mean_and_std,
    read_finetuning,
    read_result,
    summary_of,
    write_page,
    write_result,
)
from vitrail.training.divergence import Diverged
from vitrail.training.events import Event, Stepped
from vitrail.training.stopping import Stopped

BOTH = Splits(val=True, test=True)
NEITHER = Splits(val=False, test=False)


def measured(accuracy: float, loss: float = 1.0) -> Measured:
    return Measured(images=50, accuracy=accuracy, top5=1.0, loss=loss)


def trial(lr: float, accuracy: float | None, loss: float = 1.0) -> Trial:
    found = None if accuracy is None else measured(accuracy, loss)
    return Trial(lr=lr, folder=f"sweep/lr-{lr}", measured=found, seconds=1.5)


def final(seed: int, accuracy: float) -> Final:
    return Final(seed=seed, folder=f"seed-{seed}", measured=measured(accuracy), seconds=2.0)


def test_the_best_accuracy_is_chosen():
    assert choose_rate([trial(0.1, 0.8, 0.1), trial(0.2, 0.9, 5.0), trial(0.3, 0.7)]).lr == 0.2


def test_of_equals_the_one_with_less_loss_then_the_smaller_rate():
    assert choose_rate([trial(0.1, 0.8, 0.5), trial(0.2, 0.8, 0.4)]).lr == 0.2
    assert choose_rate([trial(0.2, 0.8, 0.4), trial(0.1, 0.8, 0.4)]).lr == 0.1


def test_a_rate_that_diverged_is_never_chosen():
    assert choose_rate([trial(0.1, 0.0, 99.0), trial(10.0, None)]).lr == 0.1
    with pytest.raises(Diverged, match="at any of the learning rates 1, 10"):
        choose_rate([trial(1.0, None), trial(10.0, None)])


def test_the_standard_deviation_is_that_of_a_sample():
    mean, std = mean_and_std([0.90, 0.92, 0.94])
    assert mean == pytest.approx(0.92)
    assert std == pytest.approx(0.02)
    assert mean_and_std([0.9]) == (0.9, None)


def test_mean_over_seeds(source: Path, data: Path):
    plan = make_plan(config(source, data), rates=(0.1, 0.2), seeds=2, splits=BOTH)
    result = make_result(plan, [trial(0.1, 0.5), trial(0.2, 0.9)], 0.2, [final(0, 0.6), final(1, 0.8)])
    assert result.mean == pytest.approx(0.7)
    assert result.std == pytest.approx(0.02**0.5)
    assert (result.images, result.seconds, result.measured_on) == (50, 7.0, "test")


def test_without_a_test_split_the_number_is_that_of_the_sweep(source: Path, data: Path):
    plan = make_plan(config(source, data), rates=(0.1, 0.2), seeds=2, splits=NEITHER)
    unmeasured = [Final(seed=seed, folder="", measured=None, seconds=1.0) for seed in (0, 1)]
    result = make_result(plan, [trial(0.1, 0.5), trial(0.2, 0.9)], 0.2, unmeasured)
    assert (result.mean, result.std, result.images, result.measured_on) == (0.9, None, 50, "sweep")


def test_nothing_measured_is_no_number(source: Path, data: Path):
    plan = make_plan(config(source, data, held_out=0.0), rates=(0.1,), seeds=1, splits=NEITHER)
    result = make_result(plan, [], 0.1, [Final(seed=0, folder="seed-0", measured=None, seconds=1.0)])
    assert (result.mean, result.std, result.images) == (None, None, 0)


def test_a_result_survives_its_way_through_a_file(source: Path, data: Path, tmp_path: Path):
    plan = make_plan(config(source, data), rates=(0.1, 0.2), seeds=1, splits=BOTH)
    result = make_result(plan, [trial(0.1, 0.5), trial(0.2, None)], 0.1, [final(0, 0.6)])
    write_result(tmp_path / "result.json", result)
    assert read_result(tmp_path / "result.json") == result
    (tmp_path / "result.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        read_result(tmp_path / "result.json")


def test_the_page_of_the_whole_gets_every_rate_and_seed(source: Path, data: Path, tmp_path: Path):
    plan = make_plan(config(source, data), rates=(0.1, 0.2), seeds=2, splits=BOTH)
    result = make_result(plan, [trial(0.1, 0.5), trial(0.2, None)], 0.1, [final(0, 0.6), final(1, 0.0)])
    folder = FinetuneFolder(tmp_path)
    write_plan(folder, plan, "vitrail finetune x")
    told = summary_of(folder, result)
    assert [(tried.rate, tried.accuracy, tried.images) for tried in told.rates] == [(0.1, 0.5, 50), (0.2, None, 0)]
    # An accuracy of 0 is a number, not a missing one.
    assert [(seed.seed, seed.accuracy) for seed in told.seeds] == [(0, 0.6), (1, 0.0)]
    assert (told.mean, told.images, told.seconds, told.measured_on) == (result.mean, 50, 7.0, "test")
    assert (told.path, told.command) == (tmp_path, "vitrail finetune x")


@pytest.mark.parametrize(("held_out", "called"), [(0.2, "held-out training images"), (None, "val images")])
def test_the_images_that_chose_the_rate_have_their_name(held_out, called, source: Path, data: Path, tmp_path: Path):
    plan = make_plan(
        config(source, data, held_out=held_out), rates=(0.1, 0.2), seeds=1, splits=Splits(val=True, test=False)
    )
    result = make_result(plan, [trial(0.1, 0.5), trial(0.2, 0.9)], 0.2, [final(0, 0.6)])
    folder = FinetuneFolder(tmp_path)
    write_plan(folder, plan, "")
    told = summary_of(folder, result)
    assert told.tried_on == called
    assert told.is_choice_measured == (held_out is None)


def test_after_a_resume_the_page_still_shows_what_began_it(source: Path, data: Path, tmp_path: Path):
    begun, again = (How(device=CPU, command=f"vitrail finetune {how}") for how in ("mine --data photos", "--resume x"))
    plan = make_plan(config(source, data, steps=2), rates=(0.1,), seeds=1, splits=Splits(val=False, test=True))
    folder = plan.at(tmp_path / "whole")

    def pressed(event: Event) -> None:
        if event == Stepped(step=1):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Stopped):
        Driver(replace(begun, on_event=pressed)).drive(plan, folder)
    Driver(again).drive(read_finetuning(folder).plan, folder)
    page = folder.report.read_text(encoding="utf-8")
    assert "vitrail finetune mine --data photos" in page
    assert "--resume" not in page


def test_a_fine_tuning_whose_runs_have_no_page_gets_none(source: Path, data: Path, tmp_path: Path):
    plan = make_plan(config(source, data), rates=(0.1,), seeds=1, splits=BOTH)
    write_page(FinetuneFolder(tmp_path), make_result(plan, [], 0.1, [final(0, 0.6)]))
    assert list(tmp_path.iterdir()) == []
