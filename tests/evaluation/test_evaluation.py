"""A model on images: every number about the same images, whatever the batches, and the record of them."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import vitrail
from vitrail.config import preset, to_json
from vitrail.data import Arrays, Labels, Preparation
from vitrail.errors import DataError
from vitrail.evaluation import Evaluation, Measured, MultiLabelEvaluation, evaluate_subject
from vitrail.evaluation.evaluation import record_of
from vitrail.evaluation.labels import Matched
from vitrail.evaluation.outputs import all_outputs
from vitrail.evaluation.real import RealLabels
from vitrail.evaluation.subject import Subject

CLASSES = 6
CPU = torch.device("cpu")


def subject(classes: int = CLASSES) -> Subject:
    """A small network with a head that says something."""
    torch.manual_seed(3)
    model = vitrail.create_model("vit-test", num_classes=classes).eval()
    torch.nn.init.normal_(model.head.weight)
    return Subject("tiny", model, Preparation(size=(32, 32), preprocessing=preset("augreg")), CPU)


def source(images: int = 23, classes: int = CLASSES, labels: Labels | None = None) -> Arrays:
    generator = np.random.default_rng(1)
    pixels = generator.integers(0, 256, (images, 20, 24, 3), dtype=np.uint8)
    names = tuple(f"class {number}" for number in range(classes))
    return Arrays("noise", "test", names, labels or Labels.of(np.arange(images) % classes, classes), pixels)


def measured(batch_size: int = 10, workers: int = 0, **more) -> Measured:
    return evaluate_subject(subject(), Matched(source(), "name"), batch_size=batch_size, workers=workers, **more)


def counts(found: Measured) -> tuple:
    """What has to be equal to the last bit."""
    assert isinstance(found.evaluation, Evaluation)
    numbers = found.evaluation
    return numbers.images, numbers.top1, numbers.top5, numbers.classes, numbers.confusion.tolist()


def test_all_numbers_are_about_the_same_images() -> None:
    told: list[int] = []
    found = measured(advance=told.append)
    numbers = found.evaluation
    assert isinstance(numbers, Evaluation)
    assert sum(told) == numbers.images == numbers.top1.images == numbers.top5.images == numbers.calibration.images == 23
    assert numbers.top1.right == (found.predictions.guesses[:, 0] == source().labels.values).sum()
    assert numbers.top1.right < numbers.top5.right
    assert numbers.confusion[:, 2].sum() == 23
    diagonal = numbers.confusion[numbers.confusion[:, 0] == numbers.confusion[:, 1]]
    assert diagonal[:, 2].sum() == sum(one.right for one in numbers.classes) == numbers.top1.right
    assert numbers.class_mean == pytest.approx(np.mean([one.right / one.images for one in numbers.classes]))
    assert numbers.real is None
    assert found.seconds > 0


@pytest.mark.parametrize(("batch_size", "workers"), [(1, 0), (7, 1), (64, 0)])
def test_neither_batches_nor_workers_change_a_count(batch_size, workers) -> None:
    assert counts(measured(batch_size, workers)) == counts(measured())


def test_the_record_holds_everything_and_is_json() -> None:
    found = measured()
    record = json.loads(json.dumps(record_of(found), allow_nan=False))
    assert record["model"] == "tiny"
    assert record["images"] == record["top1"]["images"] == 23
    assert record["matched_by"] == "name"
    assert record["task"] == "one class"
    assert record["preprocessing"] == {"size": [32, 32], **to_json(preset("augreg"))}
    assert record["network"]["num_classes"] == CLASSES
    assert len(record["fingerprint"]) == 64
    assert [one["name"] for one in record["classes"]] == list(source().classes)
    assert record["confusion"]["layout"] == "rows"
    assert np.array(record["confusion"]["counts"]).shape == (CLASSES, CLASSES)
    assert np.array(record["confusion"]["counts"]).sum() == 23
    assert len(record["calibration"]["bins"]) == 15
    assert record["images_per_second"] == pytest.approx(23 / found.seconds, rel=0.01)


def test_the_confusion_of_many_classes_is_a_list_of_cells() -> None:
    found = evaluate_subject(subject(101), Matched(source(classes=101), "number"), batch_size=10)
    record = record_of(found)
    assert record["confusion"]["layout"] == "triples"
    assert sum(images for _, _, images in record["confusion"]["counts"]) == 23
    assert len(record["classes"]) == 101


def test_real_labels_are_counted_as_well() -> None:
    images = source(4)
    images.where = lambda index: f"ILSVRC2012_val_{4 - index:08}.JPEG"
    found = evaluate_subject(subject(), Matched(images, "name"), batch_size=4)
    first = found.predictions.guesses[:, 0]
    # Right for the images 0 and 2, empty for 1; labels are 0, 1, 2, 3 and the file is in the other order.
    sets = [{int(first[0]), 0}, set(), {int(first[2]), 2}, {(int(first[3]) + 1) % CLASSES, 3} - {int(first[3])}]
    real = RealLabels("real.json", "", tuple(frozenset(one) for one in reversed(sets)))
    again = evaluate_subject(subject(), Matched(images, "name"), batch_size=4, real=real)
    assert isinstance(again.evaluation, Evaluation)
    assert again.evaluation.real is not None
    assert again.evaluation.real.top1.right == 2
    assert (again.evaluation.real.labelled, again.evaluation.real.skipped) == (3, 1)
    assert again.evaluation.top1 == found.evaluation.top1, "the other numbers stay as they are"


def test_labels_that_do_not_fit_are_told_before_anything_is_computed(monkeypatch) -> None:
    def never(*_arguments, **_named) -> None:
        raise AssertionError("it was computed")

    monkeypatch.setattr("vitrail.evaluation.evaluation.classify", never)
    with pytest.raises(DataError, match="labels of 3 images"):
        measured(real=RealLabels("real.json", "", (frozenset({1}),) * 3))


def test_several_classes_per_image_are_read_by_a_sigmoid() -> None:
    labels = Labels.of_many([[row % CLASSES, (row + 2) % CLASSES] if row % 3 else [] for row in range(23)], CLASSES)
    images = source(labels=labels)
    found = evaluate_subject(subject(), Matched(images, "name"), batch_size=7)
    numbers = found.evaluation
    assert isinstance(numbers, MultiLabelEvaluation)
    logits = all_outputs(subject().model, subject(), images, batch_size=23)
    np.testing.assert_allclose(found.predictions.confidence[:, 0], 1 / (1 + np.exp(-logits.max(1))), rtol=1e-4)
    assert numbers.images == 23
    assert numbers.hit is not None and numbers.hit.images == sum(bool(row % 3) for row in range(23))
    record = json.loads(json.dumps(record_of(found), allow_nan=False))
    assert record["task"] == "several classes"
    assert "confusion" not in record and "calibration" not in record
    assert record["mean_average_precision"] == numbers.mean_average_precision


def test_logits_are_those_of_the_network_in_the_order_of_the_source() -> None:
    told: list[int] = []
    found = all_outputs(subject().model, subject(), source(), batch_size=5, advance=told.append)
    whole = all_outputs(subject().model, subject(), source(), batch_size=23)
    assert found.shape == (23, CLASSES)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, whole, atol=1e-5)
    assert told == [5, 5, 5, 5, 3]


def test_an_answer_that_is_no_number_is_an_error() -> None:
    broken = subject()
    with torch.no_grad():
        broken.model.head.bias[2] = math.nan
    message = r"tiny: the network gives no number for 23 of 23 images, first for noise, test image 0"
    with pytest.raises(DataError, match=message):
        evaluate_subject(broken, Matched(source(), "name"), batch_size=10)
    with pytest.raises(DataError, match="try float32"):
        evaluate_subject(replace(broken, bfloat16=True), Matched(source(), "name"), batch_size=10)
    with pytest.raises(DataError, match="no number"):
        labels = Labels.of_many([[0]] * 23, CLASSES)
        evaluate_subject(broken, Matched(source(labels=labels), "name"), batch_size=10)
