"""The page of an evaluation and its pictures: what they say, for few classes and many, and that every name is text."""

import json
import xml.etree.ElementTree
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.reports.reader import Reader
from tests.reports.runs import NAMES, predictions, source

import vitrail
from vitrail.config import preset
from vitrail.data import Arrays, Labels, Preparation
from vitrail.evaluation import Evaluation, Measured
from vitrail.evaluation.calibration import calibrate
from vitrail.evaluation.evaluation import count, record_of
from vitrail.evaluation.metrics import share_of
from vitrail.evaluation.multilabel import answers, measure_multilabel, table_of
from vitrail.evaluation.real import RealResult
from vitrail.evaluation.subject import Subject
from vitrail.reports.class_bars import class_picture
from vitrail.reports.comparison import overview_page, spread_value
from vitrail.reports.evaluation import evaluation_page, pictures
from vitrail.reports.reliability import reliability_diagram

CONTEXT = {
    "command": "vitrail evaluate '<b>m</b>' --data pictures",
    "data": {"data": "pictures", "split": "test", "images": 12, "classes": 3, "digest": "ab" * 32, "notes": []},
    "versions": {"vitrail": "0", "torch": "2"},
}


@pytest.fixture(autouse=True)
def _without_figures(monkeypatch) -> None:
    """Drawing them takes a second for each page; those of a run are looked at in `test_run.py`."""
    monkeypatch.setattr("vitrail.reports.evaluation.figure_sections", lambda *_: iter(()))


def measured(images: Arrays, wrong: dict[int, int], name: str = "<i>m</i>") -> Measured:
    model = vitrail.create_model("vit-test", num_classes=len(images.classes))
    said = predictions(images.labels.values, len(images.classes), wrong)
    subject = Subject(name, model, Preparation(size=(32, 32), preprocessing=preset("augreg")), torch.device("cpu"))
    return Measured(
        subject=subject,
        source=images,
        matched_by="name",
        predictions=said,
        evaluation=count(said, images),
        seconds=2.0,
    )


def read(found: Measured) -> Reader:
    record = {**record_of(found), "device": "cpu"}
    reader = Reader(evaluation_page(found, record, CONTEXT))
    assert reader.open == []
    return reader


def test_it_says_what_was_counted_and_every_name_is_text() -> None:
    reader = read(measured(source(), {1: 0, 4: 2, 6: 1}))
    assert "75.0%of 12 test images are right at the first guess (9)" in reader.words
    assert "95 % interval: 46.8 % to 91.1 %" in reader.words
    assert "6images per second, 2.0 s in all" in reader.words
    assert "12 images in 15 bins of equal width. On average the model is 70.0 % sure and 75.0 % right." in reader.words
    assert reader.sections() == ["accuracy", "classes", "mistakes", "calibration", "data", "again"]
    assert all(name in reader.words for name in NAMES)
    assert "<i>m</i> on pictures" in reader.words
    assert len(reader.scripts) == 1, "no name became a script"
    assert not any("http" in value for name in ("src", "href") for value in reader.attributes(name))


def test_the_pictures_are_drawings_of_their_own() -> None:
    drawn = pictures(measured(source(), {1: 0}))
    assert set(drawn) == {"reliability", "classes", "confusion"}
    for svg in drawn.values():
        xml.etree.ElementTree.fromstring(svg)


def test_no_mistake_has_no_gallery() -> None:
    reader = read(measured(source(), {}))
    assert "mistakes" not in reader.sections()
    assert "100.0%of 12 test images" in reader.words


def test_many_classes_have_a_curve_and_no_map() -> None:
    images = source(tuple(f"class {number}" for number in range(60)), images=120)
    found = measured(images, {3: 9, 4: 9, 64: 9})
    drawn = pictures(found)
    assert "confusion" not in drawn
    curve = xml.etree.ElementTree.fromstring(drawn["classes"])
    assert "60 classes, the worst at the left" in "".join(curve.itertext())
    (area,) = [one for one in curve.iter("path") if one.get("class") == "hit"]
    # Two classes with one and two of two wrong stand at the left.
    assert area.get("d", "").count("h10.000") == 60
    assert "60 classes are too many for a map" in read(found).words


def test_bars_are_sorted_from_the_worst_and_have_their_interval() -> None:
    found = measured(source(), {1: 0, 4: 2, 6: 1}).evaluation
    assert isinstance(found, Evaluation)
    bars = xml.etree.ElementTree.fromstring(class_picture(found.classes))
    titles = ["".join(one.itertext()) for one in bars.iter("title")]
    assert titles[0] == f"{NAMES[1]}: 2 of 4 images right, 95 % interval 15.0 % to 85.0 %"
    assert [title.split(": ")[1][0] for title in titles] == ["2", "3", "4"]


def test_classes_without_images_have_no_bar() -> None:
    images = source((*NAMES, "empty"), images=3)
    images.labels = Labels.of([0, 1, 2], 4)
    found = measured(images, {}).evaluation
    assert isinstance(found, Evaluation)
    assert "empty" not in class_picture(found.classes)


def test_the_diagram_says_on_which_side_a_bin_is() -> None:
    sure = np.array([0.9] * 10 + [0.3] * 10, np.float32)
    said = replace(
        predictions(np.zeros(20, np.int64), 2, {}),
        confidence=np.stack([sure, 1 - sure], axis=1),
        right=np.array([[place % 10 < 5, False] for place in range(20)]),
    )
    drawing = xml.etree.ElementTree.fromstring(reliability_diagram(calibrate(said)))
    kinds = [one.get("class") for one in drawing.iter("rect")]
    # Once in the legend and once for its bin.
    assert kinds.count("gap") == kinds.count("modest") == 2
    told = ["".join(one.itertext()) for one in drawing.iter("title")]
    assert "27 % to 33 % sure: 10 images, on average 30.0 % sure, 50.0 % right" in told
    assert "10 images" in told


def test_real_labels_have_a_card() -> None:
    found = measured(source(), {1: 0})
    assert isinstance(found.evaluation, Evaluation)
    real = RealResult(
        file="real.json", digest="", top1=share_of(8, 10), images=12, labelled=10, skipped=2, agreement=1.0
    )
    reader = read(replace(found, evaluation=replace(found.evaluation, real=real)))
    assert "80.0 %by ReaL labels, of 10 images; 2 without labels skipped" in reader.words


def test_several_classes_per_image_have_a_table_and_no_matrix() -> None:
    images = source()
    images.labels = Labels.of_many([[0, 1], [], [2]] * 4, 3)
    shown = table_of(images.labels)
    logits = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    found = replace(
        measured(source(), {}),
        source=images,
        predictions=answers(logits, shown),
        evaluation=measure_multilabel(logits, shown, images.classes),
    )
    assert pictures(found) == {}
    reader = read(found)
    assert "mean average precision on 12 test images" in reader.words
    assert "have a right first guess, of 8 with a class" in reader.words
    assert reader.sections()[0] == "classes"
    # It may be long, and is scrolled by the keys too.
    assert "Table of classes" in reader.inside("classes", "aria-label") and reader.inside("classes", "tabindex") == [
        "0"
    ]


def test_a_page_of_thousands_of_classes_leaves_their_table_out() -> None:
    images = source(tuple(f"class {number}" for number in range(3001)), images=12)
    assert "3,001 classes are too many for a page: result.json has all." in read(measured(images, {1: 5})).words


def test_models_beside_each_other() -> None:
    found = [record_of(measured(source(), wrong, name)) for name, wrong in (("<a>", {1: 0}), ("b", {1: 0, 2: 1}))]
    summary = {"top1": {"mean": 0.875, "std": 0.0589}, "loss": {"mean": 0.25, "std": None}}
    failures = [{"model": "c", "error": "c: there is no such file."}]
    page = Reader(
        overview_page([("1-a/report.html", found[0]), ("2-b/report.html", found[1])], summary, failures, CONTEXT)
    )
    assert page.open == []
    assert "2 models on pictures" in page.words
    assert "91.67 %" in page.words and "83.33 %" in page.words
    assert "87.50 ± 5.89 %" in page.words
    assert "c: there is no such file." in page.words and "c: c:" not in page.words
    assert page.attributes("href") == ["1-a/report.html", "2-b/report.html"]
    assert "<a>" in page.words
    # Wider than a phone: the table scrolls, and not the page.
    assert page.inside("models", "tabindex") == ["0"]
    alone = overview_page([("1-a/report.html", found[0])], {}, failures, CONTEXT)
    assert "standard deviation" not in alone


@pytest.mark.parametrize(
    ("key", "mean", "std", "shown"),
    [("top1", 0.5, 0.01, "50.00 ± 1.00 %"), ("loss", 0.25, 0.5, "0.2500 ± 0.5000"), ("top1", 0.5, None, "50.00 %")],
)
def test_means_for_people(key, mean, std, shown) -> None:
    assert spread_value(key, {"mean": mean, "std": std}) == shown
    assert spread_value(key, None) == ""


def test_a_record_is_json() -> None:
    record = record_of(measured(source(), {1: 0}))
    assert set(json.loads(json.dumps(record, allow_nan=False))) == set(record)
