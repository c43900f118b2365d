"""The page in Chromium: every feature is used, and what it shows are the numbers of `vitrail.inspection`."""

import json
import re
import signal
import time
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
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
    shown,
    slide,
    small_network,
    view,
)

import vitrail
from vitrail import inspection
from vitrail.inspection.looking import probabilities
from vitrail.prediction.handed import from_objects

playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=WITHOUT_CHROMIUM)
expect = playwright.expect if CHROMIUM else None

CLOSE = 1e-6


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[SimpleNamespace]:
    """A network with a class token, the server for it, an image, and the image as the network reads it."""
    folder = tmp_path_factory.mktemp("page")
    source = small_network(folder / "tiny")
    image = picture(folder / "photo.png")
    model = vitrail.load_model(source).eval()
    predictor = vitrail.Predictor(source, backend="torch")
    pixels = torch.from_numpy(predictor.prepare(from_objects(image)[0]).pixels)[None]
    with served(source) as (address, process):
        yield SimpleNamespace(
            folder=folder,
            image=image,
            model=model,
            pixels=pixels,
            address=address,
            process=process,
            predictor=predictor,
        )


@pytest.fixture(scope="module")
def opened(browser, world) -> Iterator[SimpleNamespace]:
    """One page for the tests that only look: with an image, and with every word of its console kept."""
    with opened_page(browser, world.address, world.image) as opened:
        yield opened


def test_the_answer_is_that_of_predict_with_names_as_text(opened, world) -> None:
    page = opened.page
    rows = page.locator("#answer .bars li")
    expect(rows).to_have_count(5)
    wanted = world.predictor([str(world.image)], top_k=5)[0]
    assert [row.locator(".label").text_content() for row in rows.all()] == [name for name, _ in wanted]
    found = [float(row.get_attribute("data-probability")) for row in rows.all()]
    assert np.allclose(found, [share for _, share in wanted], atol=1e-4)
    assert len({name for name, _ in wanted} & set(LABELS[:4])) >= 3
    assert page.title() == "tiny · vitrail"
    assert page.locator("#answer script, #answer b").count() == 0


def test_the_answer_is_read_out(browser, world) -> None:
    """On a page of its own: the place where it is written has room for what was said last."""
    ((wanted, _),) = world.predictor([str(world.image)], top_k=1)[0]
    with opened_page(browser, world.address, world.image) as opened:
        expect(opened.page.locator("#live")).to_contain_text(wanted)


def test_a_patch_is_shown_with_its_pixels(opened, world) -> None:
    page = opened.page
    view(page, "patches")
    page.mouse.move(*at_patch(page, 6))
    expect(page.locator(".close p").first).to_contain_text("token 7 (2nd row, 3rd column)")
    expect(page.locator(".close p").first).to_contain_text("= 192 numbers")
    pixels = ((world.pixels[0] * 0.5 + 0.5) * 255).round().int()[:, 8:16, 16:24].permute(1, 2, 0).flatten()[:12]
    expect(page.locator(".close .values")).to_have_text(", ".join(str(int(one)) for one in pixels) + ", …")
    filters = page.locator("#filters canvas")
    wanted = inspection.embedding_filters(world.model, 28).numpy()
    expect(filters).to_have_count(len(wanted))
    found = np.array([json.loads(one.get_attribute("data-values")) for one in filters.all()])
    assert np.abs(found - wanted).max() < CLOSE
    page.uncheck("#numbers")
    page.check("#numbers")


def test_attention_equals_inspect_for_every_way_of_looking(opened, world) -> None:
    page = opened.page
    view(page, "attention")
    maps = inspection.attention_maps(world.model, world.pixels)[:, 0].numpy()
    page.click("#class-token")
    for layer, head in ((0, 0), (2, 1)):
        slide(page, "layer", layer)
        slide(page, "head", head)
        expect(page.locator(".legend .what").first).to_contain_text(f"layer {layer}")
        assert np.abs(shown(page) - maps[layer, head, 0, 1:]).max() < CLOSE
    slide(page, "head", -1)
    expect(page.locator(".legend .what").first).to_contain_text("mean of all heads")
    assert np.abs(shown(page) - maps[2, :, 0, 1:].mean(0)).max() < CLOSE
    # Under the pointer, pinned by a click, and let go by another.
    slide(page, "head", 1)
    page.mouse.move(*at_patch(page, 9))
    expect(page.locator(".legend .what").first).to_contain_text("token 10")
    assert np.abs(shown(page) - maps[2, 1, 10, 1:]).max() < CLOSE
    expect(page.locator("#to-prefix")).to_contain_text(f"{100 * maps[2, 1, 10, 0]:.1f} %")
    page.mouse.click(*at_patch(page, 9))
    page.mouse.move(*at_patch(page, 3))
    assert np.abs(shown(page) - maps[2, 1, 10, 1:]).max() < CLOSE
    assert "token=10" in page.url and "layer=2" in page.url and "head=1" in page.url
    page.mouse.click(*at_patch(page, 9))
    page.mouse.move(5, 5)
    expect(page.locator(".legend .what").first).to_contain_text("class token")
    expect(page.locator("#most li")).to_have_count(5)


def test_the_grid_of_heads_is_that_of_inspect_and_chooses(opened, world) -> None:
    page = opened.page
    view(page, "attention")
    wanted = inspection.reading_maps(world.model, world.pixels)[:, 0].numpy()
    cells = page.locator("#heads button")
    expect(cells).to_have_count(6)
    for layer in range(3):
        for head in range(2):
            canvas = page.get_by_role("button", name=f"Layer {layer}, head {head}").locator("canvas")
            found = np.array(json.loads(canvas.get_attribute("data-values"))).reshape(4, 4)
            assert np.abs(found - wanted[layer, head]).max() < CLOSE
    page.get_by_role("button", name="Layer 1, head 0").click()
    expect(page.locator("#layer-value")).to_contain_text("1")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("button", name="Layer 1, head 1")).to_be_focused()
    assert "layer=1" in page.url and "head=1" in page.url
    page.locator("#attention-table summary").click()
    first = page.locator("#attention-table td:nth-child(2)").first
    expect(first).to_have_text(f"{wanted[1, 1, 0, 0]:.5f}")
    page.locator("#attention-table summary").click()


def test_keys_do_what_the_mouse_does(opened, world) -> None:
    page = opened.page
    view(page, "attention")
    maps = inspection.attention_maps(world.model, world.pixels)[:, 0].numpy()
    slide(page, "layer", 0)
    slide(page, "head", 0)
    page.mouse.move(*at_patch(page, 0))
    page.mouse.move(5, 5)
    page.locator("#canvas-a").focus()
    for key in ("ArrowRight", "ArrowDown", "PageUp"):
        page.keyboard.press(key)
    expect(page.locator(".legend .what").first).to_contain_text("token 6 (2nd row, 2nd column)")
    assert np.abs(shown(page) - maps[1, 0, 6, 1:]).max() < CLOSE
    expect(page.locator("#live")).to_contain_text("token 6")
    page.keyboard.press("Enter")
    assert "token=6" in page.url
    page.keyboard.press("Escape")
    assert "token=read" in page.url
    page.locator("#tab-attention").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-distance")).to_be_focused()
    expect(page.locator("#panel")).to_have_attribute("data-view", "distance")


def test_rollout_positions_distance_and_lens_equal_inspect(opened, world) -> None:
    page, model, pixels = opened.page, world.model, world.pixels
    view(page, "rollout")
    rollout = inspection.attention_rollout(model, pixels)[0].numpy()
    assert np.abs(shown(page) - rollout.flatten()).max() < CLOSE

    view(page, "positions")
    page.mouse.move(*at_patch(page, 5))
    expect(page.locator(".legend .what").first).to_contain_text("token 6")
    similarity = inspection.position_similarity(model).numpy()
    assert np.abs(shown(page) - similarity[1, 1].flatten()).max() < CLOSE
    own = json.loads(page.locator("#position-map").get_attribute("data-values"))
    assert np.abs(np.array(own) - similarity[1, 1].flatten()).max() < CLOSE
    page.mouse.move(5, 5)

    view(page, "distance")
    wanted = inspection.attention_distance(model, pixels).numpy()
    dots = page.locator("#distance circle")
    found = np.array([float(dot.get_attribute("data-value")) for dot in dots.all()]).reshape(wanted.shape)
    assert np.abs(found - wanted).max() < 1e-5 * wanted.max()
    dots.nth(4).click()
    assert "layer=2" in page.url and "head=0" in page.url

    view(page, "lens")
    lens = probabilities(model, inspection.logit_lens(model, pixels)[:, 0]).numpy()
    rows = page.locator("#lens tbody tr")
    expect(rows).to_have_count(4)
    for row, wanted in zip(rows.all(), lens, strict=True):
        cells = row.locator("td").all()
        best = np.argsort(-wanted)[:3]
        assert [cell.locator(".label").text_content() for cell in cells] == [LABELS[one] for one in best]
        found = [float(cell.get_attribute("data-probability")) for cell in cells]
        assert np.allclose(found, wanted[best], atol=CLOSE)


def test_covered_patches_change_the_answer_as_they_should(opened, world) -> None:
    page = opened.page
    view(page, "cover")
    before = [float(row.get_attribute("data-probability")) for row in page.locator("#answer li").all()]
    page.mouse.click(*at_patch(page, 5))
    # Painted over: pressed on one patch, moved over the next.
    page.mouse.move(*at_patch(page, 10))
    page.mouse.down()
    page.mouse.move(*at_patch(page, 11), steps=4)
    page.mouse.up()
    expect(page.locator("#cover-said")).to_contain_text("Covered: 3.")
    assert "cover=5%2C10%2C11" in page.url
    covered = world.pixels.clone()
    for patch in (5, 10, 11):
        row, column = divmod(patch, 4)
        covered[..., row * 8 : row * 8 + 8, column * 8 : column * 8 + 8] = 0
    with torch.no_grad():
        wanted = probabilities(world.model, world.model(covered))[0].numpy()
    rows = page.locator("#answer li").all()
    found = {int(row.get_attribute("data-index")): float(row.get_attribute("data-probability")) for row in rows}
    assert all(abs(share - wanted[index]) < 1e-4 for index, share in found.items())
    assert list(found.values())[:5] != before
    page.locator("#canvas-a").focus()
    page.mouse.click(*at_patch(page, 11))
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.locator("#cover-said")).to_contain_text("Covered: 3.")
    assert "cover=5%2C7%2C10" in page.url
    page.click("#cover-seen")
    expect(page.locator("#cover-said")).to_contain_text("Covered: 2.")
    page.click("#cover-random")
    page.click("#uncover")
    expect(page.locator("#cover-said")).to_have_text("Nothing is covered.")
    assert "cover" not in page.url.replace("view=cover", "")


def test_two_images_are_compared(opened, world) -> None:
    page = opened.page
    other = picture(world.folder / "other.png", seed=2)
    view(page, "compare")
    page.click("#class-token")
    slide(page, "layer", 2)
    slide(page, "head", 0)
    with page.expect_file_chooser() as chooser:
        page.click("#choose-b")
    chooser.value.set_files(other)
    seen(page, "b")
    pixels = torch.from_numpy(world.predictor.prepare(from_objects(other)[0]).pixels)[None]
    maps = inspection.reading_maps(world.model, pixels)[:, 0].numpy()
    assert np.abs(shown(page, "b") - maps[2, 0].flatten()).max() < CLOSE
    page.click("#by-rollout")
    expect(page.locator("#by-rollout")).to_have_attribute("aria-pressed", "true")
    assert np.abs(shown(page, "b") - inspection.attention_rollout(world.model, pixels).numpy().flatten()).max() < CLOSE
    expect(page.locator("#answer-b li")).to_have_count(5)
    with torch.no_grad():
        one, two = world.model.features(world.pixels)[0], world.model.features(pixels)[0]
    cosine = torch.nn.functional.cosine_similarity(one, two, dim=0)
    expect(page.locator("#compare-said")).to_contain_text(f"{float(cosine):.3f}")
    page.click("#by-attention")
    page.click("#copy-b")
    seen(page, "b")
    expect(page.locator("#compare-said")).to_contain_text("1.000")


def test_the_equations_have_the_shapes_of_this_model(opened) -> None:
    page = opened.page
    view(page, "equations")
    expect(page.locator("#equations math")).to_have_count(4)
    shapes, tokens = [], []
    for _ in range(9):
        shapes.append(page.locator("#shapes").text_content())
        tokens.append(page.locator(".yours").text_content())
        if page.locator("#step-next").is_enabled():
            page.click("#step-next")
    assert shapes == [
        "32 × 32 × 3→16 × 192",
        "16 × 192→16 × 24",
        "16 × 24→17 × 24",
        "17 × 24→17 × 24",
        "17 × 24→2 × 17 × 17",
        "17 × 24→17 × 24",
        "17 × 24→17 × 32→17 × 24",
        "17 × 24→24",
        "24→6",
    ]
    # The class token is put in front in the third step, and nobody can follow it before.
    assert ["Not here yet: class token" in said for said in tokens[:2]] == [True, True]
    assert tokens[2:4] == ["You follow: class token."] * 2
    expect(page.locator(".equation.now .lit").last).to_contain_text("head")
    assert page.locator("#step-next").is_disabled()
    page.click("#step-back")
    assert "step=7" in page.url


def test_what_is_seen_can_be_taken_along(opened, world) -> None:
    page = opened.page
    view(page, "rollout")
    shown(page)
    with page.expect_download() as download:
        page.click("#save-numbers")
    kept = json.loads(download.value.path().read_text(encoding="utf-8"))
    wanted = inspection.attention_rollout(world.model, world.pixels)[0].numpy()
    assert np.abs(np.array(kept["rollout"]) - wanted).max() < CLOSE
    assert np.abs(np.array(kept["values"]) - wanted.flatten()).max() < CLOSE
    assert kept["view"] == "rollout" and kept["model"]["grid"] == [4, 4] and kept["image"]["name"] == "photo.png"
    for name in ("rollout", "distance"):
        view(page, name)
        with page.expect_download() as download:
            page.click("#save-picture")
        with Image.open(download.value.path()) as saved:
            assert saved.format == "PNG" and min(saved.size) > 500
            assert len(saved.convert("RGB").resize((64, 64)).getcolors(4096) or []) > 8


def test_a_link_brings_back_the_view(browser, world) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{world.address}/#view=attention&layer=2&head=1&token=10")
    page.locator("#panel[data-view=attention]").wait_for()
    give(page, world.image)
    maps = inspection.attention_maps(world.model, world.pixels, [2])[0, 0].numpy()
    expect(page.locator(".legend .what").first).to_contain_text("token 10")
    assert np.abs(shown(page) - maps[1, 10, 1:]).max() < CLOSE
    # What the model does not have is brought into its range.
    page.goto(f"{world.address}/#view=attention&layer=99&head=77&token=5000")
    page.reload()
    expect(page.locator("#layer-value")).to_contain_text("2")
    expect(page.locator("#head-value")).to_have_text("mean of all heads")
    context.close()


def test_the_tour_teaches_in_six_steps(opened) -> None:
    page = opened.page
    page.click("#help")
    views = []
    for step in range(6):
        expect(page.locator("#tour .quiet").first).to_have_text(f"Step {step + 1} of 6")
        views.append(page.locator("#panel").get_attribute("data-view"))
        # There is one way on at a time.
        assert page.locator("button.main:visible", has_text="Next").count() == (step < 5)
        if step < 5:
            page.click("#tour-next")
    assert views == ["patches", "patches", "attention", "rollout", "lens", "cover"]
    expect(page.locator("#tour h2")).to_have_text("Attention is not proof")
    page.keyboard.press("Escape")
    expect(page.locator("#tour")).to_be_hidden()


def test_languages_and_themes_are_switched_and_kept(opened) -> None:
    page = opened.page
    view(page, "attention")
    page.click("#language")
    expect(page.locator("html")).to_have_attribute("lang", "ko")
    expect(page.locator("#tab-attention")).to_have_text("어텐션")
    expect(page.locator("#choose")).to_have_text("이미지 선택")
    assert not re.search(r"\{\w+\}", page.locator("body").inner_text())
    page.click("#language")
    expect(page.locator("#tab-attention")).to_have_text("Attention")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == light


def test_what_cannot_be_read_is_said(opened, world) -> None:
    page = opened.page
    broken = world.folder / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\nnothing more")
    page.set_input_files("#file", broken)
    expect(page.locator("#glass-a .empty.error")).to_contain_text("“broken.png” is no image that can be read here.")
    cut = world.folder / "cut.png"
    cut.write_bytes(world.image.read_bytes()[:-200])
    page.set_input_files("#file", cut)
    expect(page.locator("#glass-a .empty.error")).to_contain_text("“cut.png” is damaged or cut off")
    give(page, world.image)
    expect(page.locator("#glass-a .empty")).to_be_hidden()
    # The browser itself notes an answer of 400; nothing else may be in the console.
    opened.said[:] = [line for line in opened.said if "400 (Bad Request)" not in line]


def test_it_comes_in_by_drop_and_paste(opened, world) -> None:
    page = opened.page
    code = """([name, bytes, kind]) => {
        const transfer = new DataTransfer();
        transfer.items.add(new File([new Uint8Array(bytes)], name, { type: "image/png" }));
        const init = { bubbles: true, cancelable: true };
        document.body.dispatchEvent(kind === "paste"
            ? new ClipboardEvent("paste", { ...init, clipboardData: transfer })
            : new DragEvent("drop", { ...init, dataTransfer: transfer }));
    }"""
    for kind, seed in (("drop", 3), ("paste", 4)):
        image = picture(world.folder / f"{kind}.png", seed=seed)
        page.evaluate(code, [f"{kind}.png", list(image.read_bytes()), kind])
        wanted = world.predictor([str(image)], top_k=1)[0][0]
        first = page.locator("#answer li").first
        expect(page.locator("#canvas-a")).to_have_attribute("aria-label", re.compile(f"^{kind}.png"))
        seen(page)
        expect(first.locator(".label")).to_have_text(wanted[0])
        assert abs(float(first.get_attribute("data-probability")) - wanted[1]) < 1e-4
    give(page, world.image)


def test_no_view_has_a_serious_barrier_and_the_console_is_empty(opened, world) -> None:
    page = opened.page
    for name in ("patches", "positions", "attention", "distance", "rollout", "lens", "cover", "compare", "equations"):
        view(page, name)
        assert barriers(page) == [], name
    assert opened.said == []
    assert {url for url in opened.asked if not url.startswith((world.address, "data:", "blob:"))} == set()


@pytest.mark.slow
def test_dark_and_korean_have_no_barrier_either(browser, world) -> None:
    for options in ({"color_scheme": "dark"}, {"locale": "ko-KR"}, {"viewport": {"width": 390, "height": 844}}):
        context = browser.new_context(**options)
        page = context.new_page()
        page.goto(world.address)
        give(page, world.image)
        for name in ("patches", "positions", "attention", "distance", "lens", "cover", "compare", "equations"):
            view(page, name)
            assert barriers(page) == [], (name, options)
            # Nothing is wider than the window.
            assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), name
        context.close()


@pytest.mark.slow
def test_a_photo_from_the_camera(opened, world) -> None:
    page = opened.page
    page.click("#camera")
    page.locator("#camera-dialog button.main:enabled").click()
    expect(page.locator("#canvas-a")).to_have_attribute("aria-label", re.compile("^photo"))
    seen(page)
    give(page, world.image)


@pytest.mark.slow
def test_a_large_file_is_shrunk_here_and_that_is_said(browser, world, tmp_path) -> None:
    source = small_network(tmp_path / "tiny")
    large = picture(tmp_path / "large.png", size=(2600, 2100))
    with served(source, "--max-pixels", "5000000") as (address, _):
        page = browser.new_page()
        page.goto(address)
        give(page, large)
        expect(page.locator("#answer .note")).to_contain_text("from 2,600 × 2,100 to 2,048 × 1,654 pixels")
        expect(page.locator("#answer li")).to_have_count(5)
        page.close()


@pytest.mark.slow
def test_a_network_of_ink_is_answered_while_someone_draws(browser, tmp_path) -> None:
    source = small_network(
        tmp_path / "ink", channels=1, image_size=8, patch_size=2, pool="mean", num_classes=6, registers=1
    )
    with served(source) as (address, _):
        page = browser.new_page()
        page.goto(address)
        asked: list[str] = []
        under_way, most = 0, 0

        def begin(request) -> None:
            nonlocal under_way, most
            if "/v1/" in request.url and request.method == "POST":
                asked.append(request.url)
                under_way += 1
                most = max(most, under_way)

        def end(request) -> None:
            nonlocal under_way
            if "/v1/" in request.url and request.method == "POST":
                under_way -= 1

        page.on("request", begin)
        page.on("requestfinished", end)
        page.on("requestfailed", end)
        pad = page.locator("#pad")
        pad.wait_for()
        box = pad.bounding_box()
        page.mouse.move(box["x"] + 60, box["y"] + 60)
        begun = time.monotonic()
        page.mouse.down()
        for step in range(40):
            page.mouse.move(box["x"] + 60 + 2 * step, box["y"] + 60 + 3 * step)
            page.wait_for_timeout(30)
        # Before the pen is lifted there is an answer, and never more than one request at a time.
        expect(page.locator("#answer li")).to_have_count(5)
        assert 2 <= len(asked) <= 2 + 5 * (time.monotonic() - begun) and most == 1
        page.mouse.up()
        seen(page)
        view(page, "attention")
        expect(page.locator("#class-token")).to_have_text("All patches together")
        assert shown(page).shape == (16,)
        page.get_by_role("button", name="register 1").click()
        expect(page.locator(".legend .what").first).to_contain_text("register 1")
        for name in ("Draw a 7 for me", "Draw a 2 for me"):
            page.get_by_role("button", name=name).click()
            seen(page)
        page.click("#pad-undo")
        page.click("#pad-clear")
        expect(page.locator("#answer li")).to_have_count(0)
        page.close()


@pytest.mark.slow
def test_the_server_may_go_away_and_come_back(browser, tmp_path) -> None:
    source = small_network(tmp_path / "tiny")
    image = picture(tmp_path / "photo.png")
    page = browser.new_page()
    with served(source, "--drain", "0.1") as (address, process):
        page.goto(address)
        give(page, image)
        port = int(address.rsplit(":", 1)[1])
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        view(page, "attention")
        slide(page, "layer", 1)
        page.mouse.move(*at_patch(page, 5))
        expect(page.locator("#connection")).to_contain_text("Reconnecting", timeout=15_000)
    with served(source, port=port):
        expect(page.locator("#connection")).to_be_hidden(timeout=20_000)
        seen(page)
        page.mouse.move(*at_patch(page, 6))
        expect(page.locator(".legend .what").first).to_contain_text("token 7", timeout=20_000)
        assert shown(page).shape == (16,)
    page.close()


@pytest.mark.slow
def test_a_busy_server_is_asked_again(browser, world) -> None:
    page = browser.new_page()
    page.goto(world.address)
    page.locator("#tabs [role=tab]").first.wait_for()
    refused = 0

    def refuse(route) -> None:
        nonlocal refused
        refused += 1
        body = json.dumps({"error": {"code": "busy", "message": "Ask again in 1 s."}})
        if refused <= 2:
            route.fulfill(status=503, headers={"Retry-After": "1"}, content_type="application/json", body=body)
        else:
            route.continue_()

    page.route("**/v1/predictions*", refuse)
    page.set_input_files("#file", world.image)
    expect(page.locator("#connection")).to_contain_text("busy")
    expect(page.locator("#answer li")).to_have_count(5)
    expect(page.locator("#connection")).to_be_hidden()
    assert refused == 3
    page.close()


@pytest.mark.slow
def test_a_token_is_asked_for_and_kept(browser, tmp_path) -> None:
    source = small_network(tmp_path / "tiny")
    with served(source, "--token", "a-long-secret-of-some-kind-1234567890") as (address, _):
        page = browser.new_page()
        page.goto(address)
        page.locator("#token").wait_for()
        expect(page.locator("main")).to_be_hidden()
        page.fill("#token", "wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#token-dialog p")).to_contain_text("not accepted")
        page.fill("#token", "a-long-secret-of-some-kind-1234567890")
        page.keyboard.press("Enter")
        give(page, picture(tmp_path / "photo.png"))
        page.reload()
        page.locator("#tabs [role=tab]").first.wait_for()
        page.close()
