"""The images of each cell of a confusion matrix: reached by links alone, and never more than a page can hold."""

import re

import numpy as np
import pytest
from tests.reports.reader import Reader
from tests.reports.runs import FULL, NAMES, make_run, predictions, run_config, source
from tests.reports.test_page import WRONG, read

from vitrail.reports.cells import MOST_IMAGES, cells_of
from vitrail.reports.pictures import MOST_BYTES, Pictures


def test_a_cell_leads_to_its_images_without_a_script(tmp_path) -> None:
    images = source()
    reader = read(make_run(tmp_path, FULL), images, predictions(images.labels.values, 3, WRONG))
    links = [attributes for tag, attributes in reader.tags if tag == "a" and "data-cell" in attributes]
    panels = [attributes["id"] for tag, attributes in reader.tags if attributes.get("class") == "cell"]
    # Image 1 is of class 1 and taken for 0, image 4 of 1 for 2, image 6 of 0 for 1; and three classes that are right.
    assert {link["href"] for link in links} == {f"#{panel}" for panel in panels}
    assert set(panels) == {"cell-1-0", "cell-1-2", "cell-0-1", "cell-0-0", "cell-1-1", "cell-2-2"}
    assert f"{NAMES[1]} taken for {NAMES[0]}1 image. Close70.0 % surepictures, test image 1" in reader.words
    assert f"{NAMES[2]}, and rightly so4 images. Close" in reader.words
    # Seen only when it is linked to, which is a matter of style.
    assert re.search(r"\.cell \{ display: none;.*\.cell:target \{ display: block; \}", reader.styles[0])


def test_the_picture_beside_the_page_has_no_links(tmp_path) -> None:
    images = source()
    folder = make_run(tmp_path, FULL)
    read(folder, images, predictions(images.labels.values, 3, WRONG))
    drawn = (tmp_path / "figures" / "confusion.svg").read_text(encoding="utf-8")
    assert "<a " not in drawn
    assert 'role="img"' in drawn


def test_large_cells_show_the_highest_losses() -> None:
    images = source(images=300)
    said = predictions(images.labels.values, 3, dict.fromkeys(range(0, 300, 3), 1))
    (wrong,) = [
        panel
        for place, panel in cells_of(images, said, Pictures(images, is_grey=False), "").panels.items()
        if place == (0, 1)
    ]
    assert "100 images; the 24 with the highest loss" in wrong
    # The later ones have the higher loss.
    assert re.findall(r"test image (\d+?)70\.0", Reader(wrong).words)[:3] == ["297", "294", "291"]


@pytest.mark.parametrize("side", [32, 200])
def test_forty_classes_that_are_all_confused_stay_within_the_bound(tmp_path, side) -> None:
    classes = tuple(f"이름 {number}" for number in range(40))
    images = source(classes, images=3200, side=side)
    wrong = {index: (index // 40 + index) % 40 for index in range(3200)}
    folder = make_run(tmp_path, FULL, classes=classes, config=run_config(40))
    reader = read(folder, images, predictions(images.labels.values, 40, wrong))
    shown = reader.inside("classes", "src")
    assert len(shown) <= MOST_IMAGES
    assert sum(map(len, reader.attributes("src"))) <= MOST_BYTES
    assert folder.report.stat().st_size < MOST_BYTES + 1_500_000


def test_a_page_that_is_full_says_so_in_place_of_a_picture() -> None:
    images = source()
    pictures = Pictures(images, is_grey=False)
    pictures.room = len(re.search('src="([^"]+)"', pictures.of(0))[1])  # type: ignore[index]
    assert pictures.of(0).startswith("<img ")
    assert pictures.room == 0
    assert "the page is full" in pictures.of(1)


def test_losses_that_are_no_numbers_come_first() -> None:
    images = source()
    said = predictions(images.labels.values, 3, WRONG)
    losses = said.losses.copy()
    losses[3] = np.nan
    said = type(said)(said.guesses, said.confidence, said.right, losses)
    (right,) = [
        panel
        for place, panel in cells_of(images, said, Pictures(images, is_grey=False), "").panels.items()
        if place == (0, 0)
    ]
    assert re.findall(r"test image (\d+?)70\.0", f"{Reader(right).words}70.0")[0] == "3"
