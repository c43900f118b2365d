"""The page of a small network of ink, read with convolutions first: drawing, and what is said while it changes."""

import re
from collections.abc import Iterator

import numpy as np
import pytest
from tests.serving.page.browsing import (
    CHROMIUM,
    WITHOUT_CHROMIUM,
    at_patch,
    barriers,
    seen,
    served,
    shown,
    small_network,
    view,
)

from vitrail.config import ConvLayerConfig, ConvStemConfig

playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=WITHOUT_CHROMIUM)
expect = playwright.expect if CHROMIUM else None

STEM = ConvStemConfig(layers=(ConvLayerConfig(channels=8, stride=1), ConvLayerConfig(channels=16)))
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    """Of a server for a network of ink."""
    source = small_network(
        tmp_path_factory.mktemp("ink") / "ink", channels=1, image_size=8, patch_size=1, pool="mean", backbone=STEM
    )
    with served(source) as (address, _):
        yield address


@pytest.fixture
def page(browser, address) -> Iterator:
    """A page that opens with its pad, which is empty."""
    page = browser.new_context(viewport=DESKTOP, locale="en-US").new_page()
    page.set_default_timeout(15_000)
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(address)
    page.locator("#pad").wait_for()
    yield page
    page.context.close()
    assert said == []


@pytest.fixture
def drawn(page):
    """The same with a drawing."""
    example(page, 7)
    return page


def stroke(page, lift: bool = True) -> None:
    box = page.locator("#pad").bounding_box()
    across = box["width"]
    page.mouse.move(box["x"] + 0.3 * across, box["y"] + 0.2 * across)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * across, box["y"] + 0.8 * across, steps=5)
    if lift:
        page.mouse.up()


def example(page, digit: int) -> None:
    """Draw a digit with its button, and wait until all that is inside is that of this drawing."""
    before = page.locator("#canvas-a").get_attribute("data-image")
    page.get_by_role("button", name=f"Draw a {digit} for me").click()
    page.wait_for_function(
        "before => { const { dataset } = document.getElementById('canvas-a');"
        " return dataset.image !== before && dataset.pending === 'false'; }",
        arg=before,
    )


def answer(page) -> dict[str, str]:
    rows = page.locator("#answer li").all()
    return {row.locator(".label").text_content(): row.locator(".share").text_content() for row in rows}


def distances(page) -> list[float]:
    return page.locator("#distance circle").evaluate_all("dots => dots.map((dot) => Number(dot.dataset.value))")


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_nothing_moves_under_the_pen_and_the_answer_is_in_sight(page, size) -> None:
    page.set_viewport_size(size)
    page.evaluate("scrollTo(0, 0)")
    empty = page.locator("#pad").bounding_box()
    expect(page.locator(".invitation")).to_have_text("draw here")
    expect(page.locator("#choose")).not_to_have_class(re.compile("main"))
    stroke(page, lift=False)
    expect(page.locator(".invitation")).to_be_hidden()
    expect(page.locator("#answer li")).to_have_count(5)
    assert page.locator("#pad").bounding_box() == empty
    first = page.locator("#answer li.best").bounding_box()
    assert first["y"] + first["height"] < size["height"]
    page.mouse.up()
    seen(page)
    assert page.locator("#pad").bounding_box() == empty
    page.click("#pad-clear")
    expect(page.locator(".invitation")).to_be_visible()
    assert page.locator("#pad").bounding_box() == empty


def test_a_server_that_is_gone_moves_nothing_and_dims_the_answer_of_before(page) -> None:
    stroke(page)
    seen(page)
    before = page.locator("#pad").bounding_box()
    page.route("**/{v1/*,readyz}", lambda route: route.abort())
    stroke(page)
    expect(page.locator("#connection")).to_contain_text("Reconnecting")
    expect(page.locator("#answer")).to_have_class("waiting")
    assert page.locator("#pad").bounding_box() == before
    page.unroute("**/{v1/*,readyz}")
    expect(page.locator("#connection")).to_be_hidden()
    expect(page.locator("#answer")).not_to_have_class("waiting")
    seen(page)


def test_every_view_follows_the_next_drawing(page) -> None:
    """What is kept on the page until there is something newer gives way to it, without leaving the tab."""
    view(page, "distance")
    example(page, 7)
    of_seven, told = distances(page), page.locator("#distance-said").text_content()
    example(page, 2)
    of_two = distances(page)
    assert len(of_two) == 6 and not np.allclose(of_two, of_seven)
    assert page.locator("#distance-said").text_content() != told
    view(page, "compare")
    view(page, "distance")
    assert distances(page) == of_two

    view(page, "compare")
    page.click("#copy-b")
    seen(page, "b")
    expect(page.locator(".plain thead th")).to_have_text(["class", "first: drawing", "second: drawing"])
    of_two = answer(page)
    example(page, 7)
    of_seven = answer(page)
    assert of_two != of_seven
    rows = [row.locator("th, td").all_text_contents() for row in page.locator(".plain tbody tr").all()]
    assert {name: share for name, share, _ in rows if share != "–"} == of_seven
    assert {name: share for name, _, share in rows if share != "–"} == of_two
    one, other = page.locator("#glass-a .frame").bounding_box(), page.locator(".second .frame").bounding_box()
    assert abs(one["width"] - other["width"]) < 2


def test_convolutions_before_the_patches_are_told(drawn) -> None:
    page = drawn
    expect(page.locator("#model-facts")).to_contain_text("ViT behind 2 convolutions, 3 layers, width 24")
    view(page, "patches")
    expect(page.locator(".lead")).to_contain_text(
        "Convolutions turn its 8 × 8 pixels into a map of 4 × 4 × 16 numbers. That map is cut into 16 patches"
    )
    page.mouse.move(*at_patch(page, 6))
    expect(page.locator(".close p").first).to_contain_text("over 2 × 2 pixels of the image. The convolutions make 16")
    expect(page.locator("#panel")).to_contain_text("What the filters of the first convolution respond to")
    expect(page.locator("#panel")).not_to_contain_text("matrix E responds")
    view(page, "equations")
    page.get_by_role("button", name="Step 1").click()
    expect(page.locator("#shapes")).to_have_text("8 × 8 × 1→4 × 4 × 16→16 × 16")
    page.get_by_role("button", name="Step 2").click()
    expect(page.locator("#shapes")).to_have_text("16 × 16→16 × 24")
    page.click("#language")
    expect(page.locator("#model-facts")).to_contain_text("합성곱 2개를 앞에 둔 ViT, 레이어 3개")
    page.click("#language")


def test_the_tour_pins_nothing_and_a_pinned_patch_says_how_to_let_go(drawn) -> None:
    page = drawn
    legend = page.locator("#glass-a .what")
    page.click("#help")
    for _ in range(2):
        page.click("#tour-next")
    expect(legend).to_contain_text("token 10 (3rd row, 3rd column)")
    page.mouse.move(*at_patch(page, 1))
    expect(legend).to_contain_text("token 1 (1st row, 2nd column)")
    page.click("#tour-close")
    page.mouse.move(5, 5)
    # All patches look where there is no class token.
    expect(legend).to_have_text("where all patches look, on average · layer 0, head 0")
    expect(page.locator("#panel")).to_contain_text("How all patches look at the image, on average, in every head")
    let_go = page.locator("#glass-a .let-go")
    expect(let_go).to_be_hidden()
    page.mouse.click(*at_patch(page, 1))
    expect(page).to_have_url(re.compile("token=1$"))
    let_go.click()
    expect(let_go).to_be_hidden()
    expect(page).to_have_url(re.compile("token=read$"))


def test_the_patch_under_the_pointer_is_told_its_share(drawn) -> None:
    page = drawn
    view(page, "rollout")
    shares = shown(page)
    page.mouse.move(*at_patch(page, 6))
    share = 100 * shares[6]
    expect(page.locator("#glass-a .what")).to_have_text(
        f"token 6 (2nd row, 3rd column): {share:.{2 if share < 10 else 1}f} %"
    )
    expect(page.locator("#live")).to_contain_text("token 6")
    page.mouse.move(5, 5)
    expect(page.locator("#live")).to_have_text("all patches together")


def test_covering_marks_what_is_first_now(drawn) -> None:
    page = drawn
    view(page, "cover")
    page.get_by_role("button", name="Cover as much at random (2 of 16)").click()
    expect(page.locator("#cover-said")).to_contain_text("Covered: 2.")
    page.click("#uncover")
    # The whole image, row by row.
    page.mouse.move(*at_patch(page, 0))
    page.mouse.down()
    for patch in (3, 7, 4, 8, 11, 15, 12):
        page.mouse.move(*at_patch(page, patch), steps=4)
    page.mouse.up()
    expect(page.locator("#cover-said")).to_contain_text("and now it says")
    rows = page.locator("#answer li").all()
    best = max(rows, key=lambda row: float(row.get_attribute("data-probability") or 0))
    expect(page.locator("#answer li.best")).to_have_count(1)
    assert page.locator("#answer li.best").get_attribute("data-index") == best.get_attribute("data-index")
    assert "best" not in page.locator("#answer li").first.get_attribute("class").split()
    page.click("#uncover")


def test_every_guess_keeps_its_number_on_a_phone(drawn) -> None:
    page = drawn
    page.set_viewport_size(PHONE)
    view(page, "lens")
    page.locator("#lens").wait_for()
    holder = page.locator(".scroll:has(#lens)")
    assert holder.evaluate("one => one.scrollWidth <= one.clientWidth")


@pytest.mark.slow
def test_the_empty_pad_and_a_pinned_patch_are_no_barrier(browser, page) -> None:
    for options in ({}, {"color_scheme": "dark"}, {"locale": "ko-KR"}, {"viewport": PHONE}):
        context = browser.new_context(**options)
        other = context.new_page()
        other.goto(page.url.split("#")[0])
        other.locator(".invitation").wait_for()
        assert barriers(other) == [], options
        stroke(other)
        seen(other)
        for name in ("attention", "equations"):
            view(other, name)
            if name == "attention":
                other.mouse.click(*at_patch(other, 5))
            expect(other.locator("#glass-a .let-go")).to_be_visible()
            assert barriers(other) == [], (name, options)
        context.close()
