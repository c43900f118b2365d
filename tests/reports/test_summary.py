"""The page of several runs: the rates that were tried, mean and spread over seeds, and then the first seed."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.reports.reader import Reader
from tests.reports.runs import FULL, done, make_run, predictions, source, trained

from vitrail.reports import SeedResult, Summary, TriedRate, write_report

RATES = (
    TriedRate(rate=0.003, accuracy=0.5, loss=1.5, images=144, seconds=1.0),
    TriedRate(rate=0.03, accuracy=0.75, loss=0.9, images=144, seconds=1.0),
    TriedRate(rate=3.0, accuracy=None, loss=None, images=0, seconds=0.5),
)
SEEDS = tuple(SeedResult(seed=seed, accuracy=accuracy, seconds=2.0) for seed, accuracy in ((7, 0.75), (8, 0.7)))


def summary(path: Path, **changes) -> Summary:
    whole = Summary(
        path=path,
        command="vitrail finetune '<b>x</b>' --data pictures",
        rates=RATES,
        chosen=0.03,
        tried_on="held-out training images",
        seeds=SEEDS,
        measured_on="test",
        is_choice_measured=False,
        mean=0.725,
        std=0.0354,
        images=12,
        seconds=75.0,
    )
    return replace(whole, **changes)


def read(path: Path, lines=FULL, **changes) -> Reader:
    images = source()
    folder = make_run(path / "seed-7", lines, counts={"train": 100, "test": 12})
    measured = lines[-1]["split"] is not None
    said = predictions(images.labels.values, 3, {1: 0}) if measured else None
    page = write_report(folder, images if measured else None, said, summary=summary(path, **changes))
    assert page == path / "report.html"
    assert not folder.report.exists()
    reader = Reader(page.read_text(encoding="utf-8"))
    assert reader.open == []
    return reader


def test_the_number_is_that_of_all_seeds_and_says_how_it_came_about(tmp_path) -> None:
    reader = read(tmp_path)
    assert "72.50± 3.54 %of 12 test images are right at the first guess" in reader.words
    assert "mean ± standard deviation of 2 seeds" in reader.words
    assert "3 learning rates were tried on 144 held-out training images, and 0.03 was the best." in reader.words
    assert "2 final runs on all training images; the test split was looked at once, at the end of each." in reader.words
    assert "Nothing was held out" not in reader.words
    assert reader.sections() == [
        *("whole", "curves", "classes", "mistakes", "calibration"),
        *("learnt", "data", "events", "again", "next"),
    ]


def test_every_rate_and_seed_is_listed(tmp_path) -> None:
    words = read(tmp_path).words
    assert "0.00350.00 %1.50001.0 s0.03 taken75.00 %0.90001.0 s3diverged0.5 s" in words
    assert "7 kept75.00 %2.0 s870.00 %2.0 s" in words
    assert words.count("taken75") == 1


def test_it_is_done_again_with_what_began_it_and_goes_on_from_the_whole(tmp_path) -> None:
    words = read(tmp_path).words
    assert "vitrail finetune '<b>x</b>' --data pictures" in words
    assert "vitrail train '<b>x</b>'" not in words
    assert "seeds7, 8" in words
    assert "time1 min 15 s" in words
    assert f"vitrail info {tmp_path}what" in words
    assert "seed-7" not in words


def test_one_seed_has_an_interval_instead_of_a_spread(tmp_path) -> None:
    words = read(tmp_path, seeds=SEEDS[:1], mean=0.75, std=None, rates=()).words
    assert "75.00%of 12 test images are right at the first guess9 images; 95 % interval: 46.8 % to 91.1 %" in words
    assert "The learning rate is the recipe's: 0.03." in words
    command = "vitrail finetune m --data pictures --lr 0.03"
    assert "The learning rate was given: 0.03." in read(tmp_path, seeds=SEEDS[:1], rates=(), command=command).words
    assert "looked at once, at the end." in words
    assert "Learning rates and seeds" not in words


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"measured_on": "sweep"}, "so the number is that of the best rate on the images that chose it"),
        ({"measured_on": "held_out"}, "12 training images were not learnt from: they only measure"),
        ({"measured_on": "val"}, "measured on the val split, because there is no test split."),
        ({"measured_on": "val", "is_choice_measured": True}, "it also chose the rate, so the number is a little too"),
        ({"measured_on": "nothing", "mean": None, "std": None, "images": 0}, "nothing says how good the model is"),
    ],
)
def test_without_a_test_split_it_says_what_the_number_is(changes, told, tmp_path) -> None:
    lines = [trained(20), done(split=None)]
    unmeasured = tuple(replace(final, accuracy=None) for final in SEEDS)
    reader = read(tmp_path, lines, seeds=unmeasured, **changes)
    assert told in reader.words
    assert "not measured" in reader.words
    assert ("72.50" in reader.words) == (changes["measured_on"] != "nothing")
    assert "classes" not in reader.sections()
