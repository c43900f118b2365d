"""Where a network looked: only where it has attention, and never for so long that nobody waits for it."""

import numpy as np
import torch
from tests.reports.runs import source

import vitrail
from vitrail.config import preset
from vitrail.data import Arrays, Preparation
from vitrail.errors import DataError
from vitrail.evaluation.subject import Subject
from vitrail.models import Classifier
from vitrail.reports import attended
from vitrail.reports.attended import looked_at
from vitrail.reports.pictures import Pictures


def subject(model: Classifier, size: int = 32) -> Subject:
    prepared = Preparation(size=(size, size), preprocessing=preset("google"), channels=3)
    return Subject("m", model, prepared, torch.device("cpu"))


def test_a_picture_for_each_image() -> None:
    images = source(side=40)
    found = looked_at(
        subject(vitrail.create_model("vit-test")), images, [3, 1, 5, 0, 7], Pictures(images, is_grey=False)
    )
    assert list(found.pictures) == [3, 1, 5, 0, 7]
    assert len(set(found.pictures.values())) == 5
    assert all('alt="where the network looked"' in one for one in found.pictures.values())
    assert found.left_out == ""


def test_a_network_without_attention() -> None:
    with torch.device("meta"):
        model = vitrail.create_model("bit-r50x1", num_classes=2)
    found = looked_at(subject(model), source(), [0], Pictures(source(), is_grey=False))
    assert found.pictures == {}
    assert "has no attention" in found.left_out


def test_a_large_network_is_asked_about_a_few(monkeypatch) -> None:
    images = source()
    monkeypatch.setattr(attended, "_MOST_WORK", 1)
    found = looked_at(subject(vitrail.create_model("vit-test")), images, [2, 1], Pictures(images, is_grey=False))
    assert list(found.pictures) == [2]
    assert found.left_out == "Of a network this large only the first 1 were looked into."


def test_an_image_that_has_gone_does_not_take_all_others_with_it() -> None:
    class Damaged(Arrays):
        def read(self, index):
            if index == 0:
                raise DataError("gone", where=self.where(index))
            return super().read(index)

    images = source()
    damaged = Damaged(images.name, images.split, images.classes, images.labels, images.pixels)
    found = looked_at(subject(vitrail.create_model("vit-test")), damaged, [*range(8)], Pictures(damaged, is_grey=False))
    assert list(found.pictures) == [4, 5, 6, 7]
    assert "gone" in found.left_out


def test_weights_that_are_no_numbers() -> None:
    images, model = source(), vitrail.create_model("vit-test")
    with torch.no_grad():
        next(model.parameters()).fill_(np.nan)
    found = looked_at(subject(model), images, [0], Pictures(images, is_grey=False))
    assert found.pictures == {}
    assert "cannot be shown" in found.left_out
