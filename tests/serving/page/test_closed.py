"""The page for models with little to look into: it says what is missing and why, and everything else works."""

import re
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
from tests.serving.page.browsing import (
    CHROMIUM,
    LABELS,
    WITHOUT_CHROMIUM,
    at_patch,
    barriers,
    give,
    opened_page,
    picture,
    seen,
    served,
    small_convolutions,
    small_network,
    view,
)

import vitrail
from vitrail.cli import main
from vitrail.exporting.write import write_unverified
from vitrail.prediction.answers import probabilities
from vitrail.prediction.handed import from_objects

playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=WITHOUT_CHROMIUM)
expect = playwright.expect if CHROMIUM else None

EXPORTED = SimpleNamespace(
    backend="auto",
    tabs=["patches", "cover", "compare", "equations"],
    missing="Not shown for this model: Positions, Attention, Distance, Rollout, Layers, Filters. "
    "The server has only what computes the answer, as from an exported file. "
    "To look inside, serve the model folder that the file was made from.",
    korean="이 모델에서는 볼 수 없는 항목: 위치, 어텐션, 거리, 롤아웃, 레이어, 필터. "
    "내보낸 파일처럼 예측을 계산하는 부분만 서버에 있습니다. "
    "내부를 보려면 그 파일을 만든 모델 폴더로 서버를 시작해 주세요.",
    tour=["A patch is a word", "A token is a patch as numbers", "Take it away, and see"],
    untrue="same layer|looks at most|change the layer",
    area="This is token 5 (2nd row, 1st column): 8 × 8 pixels × 3 channels = 192 numbers.",
    filters=0,
    grid=(4, 4),
    cell=8,
)
CONVOLUTIONAL = SimpleNamespace(
    backend="torch",
    tabs=["patches", "cover", "compare"],
    missing="Not shown for this model: Positions, Attention, Distance, Rollout, Layers, Equations. "
    "It is a convolutional network (BiT): it has no patches, no positions and no attention.",
    korean="이 모델에서는 볼 수 없는 항목: 위치, 어텐션, 거리, 롤아웃, 레이어, 수식. "
    "합성곱 신경망(BiT)이라 패치, 위치 임베딩, 어텐션이 없습니다.",
    tour=["A convolution looks nearby", "Take it away, and see"],
    untrue="token|patch|matrix E|attention|same layer|looks at most|change the layer",
    area="This is area 4 (2nd row, 2nd column): 32 × 32 pixels of the image.",
    filters=28,
    grid=(3, 3),
    cell=32,
)
WORLDS = [
    pytest.param(EXPORTED, id="exported"),
    # A second server takes its time; what it shows differs from the first by words.
    pytest.param(CONVOLUTIONAL, id="convolutional", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=WORLDS)
def world(request, tmp_path_factory) -> Iterator[SimpleNamespace]:
    """A model that cannot be looked into, the server for it, and an image."""
    folder = tmp_path_factory.mktemp("closed")
    if request.param is EXPORTED:
        source = folder / "tiny.onnx"
        write_unverified(vitrail.load_model(small_network(folder / "tiny")), source, "onnx")
    else:
        source = small_convolutions(folder / "bit")
    backend = request.param.backend
    predictor = vitrail.Predictor(source, backend=backend)
    image = picture(folder / "photo.png")
    with served(source, "--backend", backend) as (address, _):
        yield SimpleNamespace(
            **vars(request.param), folder=folder, source=source, predictor=predictor, image=image, address=address
        )


@pytest.fixture
def opened(browser, world) -> Iterator[SimpleNamespace]:
    """A page, opened by a link to a view that the model does not have."""
    with opened_page(browser, f"{world.address}/#view=attention", world.image) as opened:
        yield opened


def answers(place) -> dict[str, float]:
    rows = place.locator("li").all()
    return {row.locator(".label").text_content(): float(row.get_attribute("data-probability")) for row in rows}


def test_it_is_said_what_is_missing_and_why_in_both_languages(opened, world) -> None:
    page = opened.page
    assert [tab.get_attribute("id") for tab in page.locator("#tabs [role=tab]").all()] == [
        f"tab-{name}" for name in world.tabs
    ]
    # At once in the first view, and in every other one.
    expect(page.locator(".lead + .missing")).to_have_text(world.missing)
    for name in world.tabs:
        view(page, name)
        expect(page.locator("#panel .missing")).to_have_text(world.missing)
        assert not re.search(r"\{\w+\}|undefined|null|NaN", page.locator("body").inner_text()), name
    page.click("#language")
    view(page, "patches")
    expect(page.locator(".lead + .missing")).to_have_text(world.korean)
    page.click("#language")


def test_nothing_is_told_that_is_not_true_of_the_model(opened, world) -> None:
    page = opened.page
    for name in world.tabs:
        view(page, name)
        text = page.locator("main").inner_text().replace(world.missing, "").replace("has no patches", "")
        assert not re.search(world.untrue, text, re.IGNORECASE), name
        assert not re.search(world.untrue, page.locator("#canvas-a").get_attribute("aria-label")), name
    view(page, "patches")
    page.mouse.move(*at_patch(page, 4, world.grid))
    expect(page.locator(".close p").first).to_contain_text(world.area)
    expect(page.locator("#filters canvas")).to_have_count(world.filters)


def test_answers_are_those_of_predict_with_names_as_text(opened, world) -> None:
    page = opened.page
    expect(page.locator("#answer li")).to_have_count(5)
    wanted = world.predictor([str(world.image)], top_k=5)[0]
    found = answers(page.locator("#answer"))
    assert list(found) == [name for name, _ in wanted]
    assert np.allclose(list(found.values()), [share for _, share in wanted], atol=1e-4)
    assert len({name for name, _ in wanted} & set(LABELS[:4])) >= 3
    assert page.locator("main script, main b").count() == 0
    assert page.title() == f"{world.source.name} · vitrail"


def test_covering_and_comparing_work_without_a_look_inside(opened, world) -> None:
    page = opened.page
    view(page, "cover")
    assert page.locator("#cover-seen").count() == 0
    patch = world.grid[0] * world.grid[1] - 1
    page.mouse.click(*at_patch(page, patch, world.grid))
    expect(page.locator("#cover-said")).to_contain_text("Covered: 1.")
    pixels = world.predictor.prepare(from_objects(world.image)[0]).pixels.copy()
    row, column = divmod(patch, world.grid[1])
    pixels[:, row * world.cell :, column * world.cell :] = 0
    wanted = probabilities(world.predictor.backend.run(pixels[None])[0], world.predictor.described)[0]
    found = answers(page.locator("#answer"))
    assert all(abs(share - wanted[LABELS.index(name)]) < 1e-4 for name, share in found.items())
    page.click("#uncover")
    view(page, "compare")
    page.click("#copy-b")
    seen(page, "b")
    expect(page.locator("#compare-said")).to_contain_text("1.000")
    expect(page.locator("#answer-b li")).to_have_count(5)
    assert set(page.locator("table.plain tbody th").all_text_contents()) <= set(LABELS)
    expect(page.locator("#glass-a .legend")).to_be_hidden()


def test_the_tour_takes_only_steps_that_are_true(opened, world) -> None:
    page = opened.page
    page.click("#help")
    titles = []
    for place in range(len(world.tour)):
        expect(page.locator("#tour .quiet").first).to_have_text(f"Step {place + 1} of {len(world.tour)}")
        titles.append(page.locator("#tour h2").text_content())
        if place + 1 < len(world.tour):
            page.click("#tour-next")
    assert titles == world.tour
    page.click("#tour-close")


def test_drawing_is_answered(opened, world) -> None:
    page = opened.page
    page.click("#draw")
    box = page.locator("#pad").bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 220, steps=5)
    page.mouse.up()
    expect(page.locator("#canvas-a")).to_have_attribute("aria-label", re.compile("^drawing"))
    seen(page)
    expect(page.locator("#answer li")).to_have_count(5)
    page.click("#draw")
    give(page, world.image)


def test_no_view_has_a_barrier_and_the_console_is_empty(opened, world) -> None:
    page = opened.page
    page.mouse.click(*at_patch(page, 4, world.grid))
    for name in world.tabs:
        view(page, name)
        # Every step of the equations, with a patch pinned: none may ask for what is not there.
        for place, dot in enumerate(page.locator(".dots button").all()):
            dot.click()
            if place == 4:
                expect(page.locator(".yours")).to_have_text("Where it looks cannot be read from here; the shapes can.")
        assert barriers(page) == [], name
    assert opened.said == []
    assert {url for url in opened.asked if not url.startswith((world.address, "data:", "blob:"))} == set()


@pytest.mark.slow
def test_dark_korean_and_narrow_have_no_barrier_either(browser, world) -> None:
    for options in ({"color_scheme": "dark"}, {"locale": "ko-KR"}, {"viewport": {"width": 390, "height": 844}}):
        with opened_page(browser, world.address, world.image, **options) as opened:
            for name in world.tabs:
                view(opened.page, name)
                assert barriers(opened.page) == [], (name, options)
                width = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
                assert opened.page.evaluate(width), (name, options)
            assert opened.said == []


@pytest.mark.slow
def test_what_the_command_exports_is_shown_too(browser, tmp_path) -> None:
    """A network of ink and a convolutional one, exported as people do."""
    ink = small_network(tmp_path / "ink", channels=1, image_size=8, patch_size=2, pool="mean", registers=1)
    image = picture(tmp_path / "photo.png")
    for folder, kind, reasons in (
        (ink, "onnx", ["exported file"]),
        (small_convolutions(tmp_path / "bit"), "openvino", ["convolutional", "exported file"]),
    ):
        target = tmp_path / f"{folder.name}.{'onnx' if kind == 'onnx' else 'xml'}"
        assert main(["export", str(folder), "--to", kind, "--out", str(target)]) == 0
        with (
            served(target, "--backend", "auto") as (address, _),
            opened_page(browser, address, image) as opened,
        ):
            page = opened.page
            for reason in reasons:
                expect(page.locator(".lead + .missing")).to_contain_text(reason)
            assert "Filters" in page.locator(".missing").text_content()
            if folder is ink:
                page.click("#draw")
                page.get_by_role("button", name="Draw a 7 for me").click()
                expect(page.locator("#canvas-a")).to_have_attribute("aria-label", re.compile("^drawing"))
                seen(page)
            expect(page.locator("#answer li")).to_have_count(5)
            assert opened.said == []
