"""The page of a run without labels: it speaks of hidden patches and not of classes, and shows some."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.reports.reader import Reader
from tests.reports.runs import done, evaluated, make_run, run_config, trained

from vitrail.config import MaskingConfig, RunConfig
from vitrail.models.masked import Seen
from vitrail.reports import write_report
from vitrail.reports.hidden import read_hidden
from vitrail.reports.story import gather
from vitrail.reports.versus import versus_page
from vitrail.training.finish import NAME, write_hidden
from vitrail.training.folder import RunFolder

LINES = [
    trained(10),
    evaluated(10),
    {"event": "few_shot", "step": 10, "accuracy": 0.4, "shots": 10, "images": 9},
    done(),
]
KINDS = {
    "colour": (MaskingConfig(), "have their mean colour guessed right (512 colours)"),
    "small_patch": (MaskingConfig(target="small_patch"), "(4x4 parts, 512 colours)"),
    "pixels": (MaskingConfig(target="pixels"), "the variance of hidden pixels is explained"),
    "autoencoder": (
        MaskingConfig(method="autoencoder", target="pixels", share=0.75),
        "the variance of hidden pixels is explained",
    ),
}


def masked(masking: MaskingConfig) -> RunConfig:
    config = run_config()
    data = replace(config.data, labelled=False, few_shot="others")
    return replace(config, model=replace(config.model, num_classes=0), masking=masking, data=data)


def read(folder: RunFolder) -> Reader:
    reader = Reader(write_report(folder, look_inside=False).read_text(encoding="utf-8"))
    assert reader.open == []
    return reader


def pictures(images: int = 2, channels: int = 3, side: int = 8) -> Seen:
    return Seen(*(torch.full((images, channels, side, side), value) for value in (0.2, 0.5, 0.8)))


@pytest.mark.parametrize("kind", KINDS)
def test_it_says_what_was_guessed_of_what(kind, tmp_path) -> None:
    masking, words = KINDS[kind]
    folder = make_run(tmp_path / "run", LINES, config=masked(masking))
    write_hidden(folder.path, pictures())
    reader = read(folder)
    assert "75.0%of" in reader.words
    assert words in reader.words
    assert "before it is taught classes" in reader.words
    assert "What it puts in place of what is hidden" in reader.words
    assert masking.guessed.capitalize() in reader.words
    assert "Few-shot accuracy on others" in reader.words
    for wrong in ("right at the first guess", "95 % interval", "Class by class", "vitrail predict", "left out"):
        assert wrong not in reader.words
    assert "vitrail finetune" in reader.words


@pytest.mark.parametrize(("target", "words"), [("colour", "(8 colours)"), ("small_patch", "(2x2 parts, 8 colours)")])
def test_a_grey_network_of_small_patches_has_fewer_colours_and_parts(target, words, tmp_path) -> None:
    config = masked(MaskingConfig(target=target))
    grey = replace(config.model, channels=1, patch_size=(2, 2))
    assert words in read(make_run(tmp_path / "run", LINES, config=replace(config, model=grey))).words


def test_beside_a_run_with_labels_it_has_no_accuracy(tmp_path) -> None:
    hidden = make_run(tmp_path / "hidden", LINES, config=masked(MaskingConfig()))
    labelled = make_run(tmp_path / "labelled", [trained(10), evaluated(10), done()])
    reader = Reader(versus_page([gather(hidden, None, None), gather(labelled, None, None)]))
    assert "accuracy75.00 %" in reader.words and "of what was hidden75.00 % right colours" in reader.words
    assert reader.words.count(" % to ") == 1
    assert "Held-out right colours, accuracy" in reader.words
    assert "hidden learnt without labels" in reader.words


def test_three_rows_of_pictures_are_shown(tmp_path) -> None:
    folder = make_run(tmp_path / "run", LINES, config=masked(MaskingConfig()))
    write_hidden(folder.path, pictures(images=2))
    page = write_report(folder, look_inside=False).read_text(encoding="utf-8")
    table = page[page.index('<table class="hidden">') :]
    table = table[: table.index("</table>")]
    assert [row.count("<img") for row in table.split("</tr>")[:3]] == [2, 2, 2]


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_come_back_as_they_were_written(channels, tmp_path) -> None:
    write_hidden(tmp_path, pictures(channels=channels))
    found = read_hidden(tmp_path / NAME)
    assert found is not None
    assert {name: (array.shape, int(array[0, 0, 0, 0])) for name, array in found.items()} == {
        "original": ((2, 8, 8, channels), 51),
        "corrupted": ((2, 8, 8, channels), 128),
        "predicted": ((2, 8, 8, channels), 204),
    }


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def _nonsense(path: Path) -> None:
    path.write_bytes(b"no archive")


def _other_names(path: Path) -> None:
    np.savez(path, other=np.zeros(3))


def _objects(path: Path) -> None:
    np.savez(path, **dict.fromkeys(("original", "corrupted", "predicted"), np.array([None, 1], dtype=object)))


def _other_shapes(path: Path) -> None:
    np.savez(path, **dict.fromkeys(("original", "corrupted", "predicted"), np.zeros((2, 3), np.uint8)))


@pytest.mark.parametrize("spoil", [Path.unlink, _cut, _nonsense, _other_names, _objects, _other_shapes])
def test_a_page_without_them_is_still_a_page(spoil, tmp_path) -> None:
    folder = make_run(tmp_path / "run", LINES, config=masked(MaskingConfig()))
    write_hidden(folder.path, pictures())
    spoil(folder.path / NAME)
    reader = read(folder)
    assert "What it puts in place" not in reader.words
    assert "75.0%of" in reader.words


def test_a_run_that_has_not_ended_says_so(tmp_path) -> None:
    folder = make_run(tmp_path / "run", LINES[:-1], config=masked(MaskingConfig()))
    assert "has not come to its end" in read(folder).words
