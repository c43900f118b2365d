"""Pages on the screen of a phone."""

from pathlib import Path

import pytest
from tests.experiments.test_selftrain_page import STUDENT, TEACHER
from tests.reports.runs import FULL, make_run, predictions, run_config, source
from tests.serving.page.browsing import CHROMIUM, WITHOUT_CHROMIUM

from vitrail.config.values import replace
from vitrail.experiments.selftrain import SelftrainFolder
from vitrail.experiments.selftrain_page import teaching_section
from vitrail.experiments.selftrain_result import Result, write_result
from vitrail.reports.story import Story, gather
from vitrail.reports.versus import versus_page

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=WITHOUT_CHROMIUM)
WIDTH = 390


def told(path: Path) -> Story:
    images, config = source(), run_config()
    data = replace(config.data, {"data": f"/home/somebody/photos/{'folder/' * 8}"}, kind="data")
    run = make_run(path, FULL, config=replace(config, {"data": data}, kind="run"))
    return gather(run, images, predictions(images.labels.values, 3, {0: 1}))


def test_two_runs_with_long_names_and_a_teacher_fit_without_scrolling_sideways(tmp_path) -> None:
    place = SelftrainFolder(tmp_path)
    write_result(place.result, Result(teacher=TEACHER, students=(STUDENT, STUDENT)))
    stories = [told(tmp_path / f"{letter}-run-with-a-rather-long-name") for letter in "ab"]
    page = tmp_path / "page.html"
    page.write_text(versus_page(stories, first=teaching_section(place, 2, shown=1)))
    playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": WIDTH, "height": 800})
        view.goto(page.as_uri())
        assert view.evaluate("document.documentElement.scrollWidth") <= WIDTH
        tables = view.evaluate(
            "[...document.querySelectorAll('.scroll')].map(one => [one.ariaLabel, one.scrollWidth - one.clientWidth])"
        )
        browser.close()
    beyond = dict(tables)
    assert {"Table of teacher and students", "Table of results", "Classes"} <= set(beyond)
    assert not any(beyond.values()), beyond
