"""The figures: what they say and hold for every kind of network, as SVG and as PNG, with names in any script."""

import io
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import torch
from PIL import Image
from tests.inspection.networks import filled, network

import vitrail
from vitrail.config import Preprocessing, ResNetConfig
from vitrail.config.figures import FIGURES
from vitrail.data import Arrays, Labels, Preparation
from vitrail.data.sources.parts import evenly
from vitrail.inspection import attention_distance, attention_rollout, logit_lens
from vitrail.reports import glyphs
from vitrail.reports.distance import Distances, distance_figure
from vitrail.reports.figures import Figure, as_png, as_svg, png_caption
from vitrail.reports.filters import mosaic
from vitrail.reports.glyphs import Naming, is_drawable
from vitrail.reports.inspection import LeftOut, each_figure, grouped
from vitrail.reports.lens import Lens, lens_figure
from vitrail.reports.occlusion import painted
from vitrail.reports.positions import neighbour_likeness, positions_figure
from vitrail.reports.rollout import overlay_mask, rollout_figure
from vitrail.reports.shown import Shown
from vitrail.reports.three_panels import three_panels

HALF = Preprocessing(mean=(0.5,) * 3, std=(0.5,) * 3, interpolation="bilinear", antialias=False)
NAMES = ("<script>alert(1)</script>", "a $x^2$ & b", "한글", "\U0001faf6", "new\nline")


def source(model, count: int = 4) -> Arrays:
    pixels = np.random.default_rng(0).integers(0, 256, (count, *model.config.image_size, 3), dtype=np.uint8)
    return Arrays("noise", "test", ("a",), Labels.of([0] * count, 1), pixels)


def preparation(model) -> Preparation:
    return Preparation(size=model.config.image_size, preprocessing=HALF, channels=3)


def made(model, *wanted: str, **how) -> dict[str, Figure]:
    found = each_figure(model, preparation(model), source(model), wanted or None, **how)  # type: ignore[arg-type]
    return {figure.name: figure for figure in found if isinstance(figure, Figure)}


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    assert root.tag.endswith("svg")
    return ["".join(element.itertext()) for element in root.iter() if element.tag.endswith("}text")]


def test_every_figure_is_made_and_its_numbers_are_those_of_the_formulas() -> None:
    model = network()
    found = made(model, *FIGURES)
    assert tuple(found) == FIGURES
    images = torch.from_numpy(source(model).pixels).permute(0, 3, 1, 2).float() / 255 * 2 - 1
    np.testing.assert_allclose(found["distance"].numbers["distance"], attention_distance(model, images), rtol=1e-5)
    np.testing.assert_allclose(found["rollout"].numbers["rollout"], attention_rollout(model, images), atol=1e-6)
    shares = torch.softmax(logit_lens(model, images), dim=-1)
    final = shares[-1].argmax(-1)
    wanted = torch.stack([shares[:, place, final[place]] for place in range(4)], dim=1)
    np.testing.assert_allclose(found["lens"].numbers["lens_probability"], wanted, atol=1e-5)
    for figure in found.values():
        # Two sentences: what one sees, and how it is computed.
        assert figure.caption.endswith(".") and ". " in figure.caption and figure.seen and figure.title


def test_svg_and_png_can_be_read_and_stand_beside_each_other() -> None:
    found = made(network(), "distance", "positions")
    ids = []
    for figure in found.values():
        svg = as_svg(figure)
        assert svg == as_svg(figure)
        root = ElementTree.fromstring(svg)
        assert figure.title in (root.get("aria-label") or "")
        ids += [element.get("id") for element in root.iter() if element.get("id")]
        png = Image.open(io.BytesIO(as_png(figure, dpi=60)))
        assert png.format == "PNG" and png.info["Description"] == figure.caption
    assert len(ids) == len(set(ids))
    assert "var(--ink" in as_svg(found["distance"], themed=True)
    assert "var(--" not in as_svg(found["distance"])
    assert {"Network depth (layer)", "Mean attention distance (pixels)", "Head 3"} <= set(
        texts(as_svg(found["distance"]))
    )
    assert {"Input patch row", "Input patch column"} <= set(texts(as_svg(found["positions"])))


@pytest.mark.parametrize(
    ("how", "left_out"),
    [
        ({"pool": "mean", "registers": 2}, {}),
        ({"pool": "map"}, {}),
        ({"position": "relative"}, {"positions": "are relative", "figure-7": "are relative"}),
        ({"backbone": ResNetConfig(blocks=(1,), width=32), "patch_size": 1}, {}),
        ({"num_classes": 0}, {"lens": "no head"}),
    ],
)
def test_a_network_is_shown_in_what_makes_sense_for_it(how, left_out) -> None:
    model = network(**how)
    found = list(each_figure(model, preparation(model), source(model)))
    assert {one.name: one for one in found if isinstance(one, LeftOut)}.keys() == left_out.keys()
    for one in found:
        if isinstance(one, LeftOut):
            assert left_out[one.name] in str(one.error)
    rollout = next(one for one in found if isinstance(one, Figure) and one.name == "rollout")
    assert ("for want of a class token" in rollout.caption) is (model.config.pool != "token")


def test_bit_has_filters_and_occlusion_and_no_attention() -> None:
    bit = filled(vitrail.create_model("bit-r50x1", width=32, blocks=(1, 1, 1, 1), num_classes=2, image_size=32))
    found = list(each_figure(bit, preparation(bit), source(bit, 1), FIGURES))
    assert [one.name for one in found if isinstance(one, Figure)] == ["filters", "occlusion"]
    reasons = [one for one in found if isinstance(one, LeftOut)]
    assert len(reasons) == len(FIGURES) - 2
    assert all("BitResNet has no attention" in str(one.error) for one in reasons)


def test_names_are_text_in_svg_and_numbers_in_a_png_where_no_font_has_them(monkeypatch) -> None:
    real = glyphs.font_of
    # As on a machine without Hangul and emoji, whatever is installed here.
    monkeypatch.setattr(glyphs, "font_of", lambda letter: real(letter) if ord(letter) < 0x2000 else None)
    shown = Shown(torch.zeros(5, 3, 8, 8), HALF, ("x.png",) * 5, np.arange(5), np.full(5, 0.4), NAMES)
    figure = rollout_figure(np.ones((5, 2, 2)), shown, (4, 4), "the class token")
    wanted = [name.replace("\n", " ") for name in NAMES]
    svg = as_svg(figure)
    assert [one for one in texts(svg) if "%" in one] == [f"{name}, 40%" for name in wanted]
    assert "<script>" not in svg
    assert as_png(figure, dpi=40).startswith(b"\x89PNG")
    naming = Naming(figure.labels, only_drawable=True)
    assert [naming(number) for number in range(5)] == [*wanted[:2], "class 2", "class 3", wanted[4]]
    assert png_caption(figure) == (
        f"{figure.caption} Names that the installed fonts cannot draw: class 2 is {wanted[2]}; class 3 is {wanted[3]}."
    )
    assert [one["label"] for one in figure.facts["images"]] == list(NAMES)


def test_what_a_font_lacks_is_known() -> None:
    assert is_drawable("größe 0-9 ∑") and is_drawable(" ")
    assert not is_drawable("\U0010fffd")
    assert Naming({7: "a name that is far too long to be written below a picture"}, only_drawable=True)(7).endswith("…")
    assert Naming({}, only_drawable=True)(7) == "class 7"


def test_the_mask_is_bright_where_the_weight_is_and_as_large_as_the_image() -> None:
    weights = np.full((3, 5), 0.01, np.float32)
    weights[2, 1] = 0.5
    mask = overlay_mask(weights, (12, 20), (4, 4))
    assert mask.shape == (12, 20) and mask.min() >= 0 and mask.max() == 1
    assert np.unravel_index(mask.argmax(), mask.shape)[0] >= 8 and mask[:, 12:].max() < 0.5
    # What is nearly flat stays so: nothing but the largest value is divided by.
    nearly = overlay_mask(np.array([[0.9, 1.0], [0.95, 1.0]], np.float32) / 7, (8, 8), (4, 4))
    assert nearly.min() > 0.85 and nearly.max() == 1
    # A rest that no patch covers, patches that reach beyond the image, and nothing to see at all.
    assert overlay_mask(weights, (14, 23), (4, 4)).shape == (14, 23)
    assert overlay_mask(weights, (11, 18), (4, 4)).shape == (11, 18)
    assert (overlay_mask(np.zeros((3, 5), np.float32), (12, 20), (4, 4)) == 1).all()


def test_what_shakes_nothing_stays_pale() -> None:
    grey = np.full((8, 8, 3), 0.5)
    shaken = painted(grey, np.array([[0.5, 0.0], [0.0, -0.25]]), (4, 4))
    assert shaken[0, 0, 0] > shaken[0, 0, 2] and shaken[7, 7, 2] > shaken[7, 7, 0]
    np.testing.assert_allclose(shaken[0, 7], 0.5)
    assert np.abs(painted(grey, np.array([[1e-3, 0.0], [0.0, 0.0]]), (4, 4)) - 0.5).max() < 0.01


def test_rows_and_columns_are_told_from_other_patches() -> None:
    model = network(position="learned_2d", image_size=(16, 16))
    found = neighbour_likeness(vitrail.inspection.position_similarity(model).numpy())
    assert found["same_row_or_column"] > found["other"]
    assert neighbour_likeness(np.ones((1, 1, 1, 1))) == {}
    large = np.zeros((20, 16, 20, 16), np.float32)
    assert "14x14 of the 20x16 are drawn" in positions_figure(large).caption


@pytest.mark.parametrize("heads", [1, 12])
def test_one_layer_and_many_heads_are_drawn(heads) -> None:
    found = Distances(np.random.default_rng(0).uniform(5, 90, (2, 1, heads)), (3,), 60.0, (16, 16))
    assert {"Head 1", "equal attention"} <= set(texts(as_svg(distance_figure(found))))


def test_images_are_spread_over_all() -> None:
    assert evenly(5, 6).tolist() == [0, 1, 2, 3, 4]
    assert evenly(101, 3).tolist() == [0, 50, 100]
    model = network()
    shown = made(model, "rollout", "lens", most_shown=2)
    assert [one["image"] for one in shown["rollout"].facts["images"]] == ["noise, test image 0", "noise, test image 3"]
    assert shown["lens"].numbers["lens_probability"].shape == (4, 4)


def test_names_in_a_drawing_stay_as_they_are() -> None:
    names = ('id="boo" url(#zap) href="#x"', "fill: #1b2130")
    shown = Shown(torch.zeros(2, 3, 8, 8), HALF, ("x.png",) * 2, np.arange(2), np.full(2, 0.4), names)
    svg = as_svg(rollout_figure(np.ones((2, 2, 2)), shown, (4, 4), "the class token"), themed=True)
    assert [one for one in texts(svg) if "40%" in one] == [f"{name}, 40%" for name in names]
    assert "var(--ink" in svg


@pytest.mark.parametrize("fallback", [None, "A font with Hangul"])
def test_each_image_is_named_with_what_it_is(monkeypatch, fallback) -> None:
    # Whatever fonts are installed here: ours has the letters below, and another has the rest or none does.
    monkeypatch.setattr(
        "vitrail.reports.shown.font_of", lambda letter: glyphs.FIRST_FONT if ord(letter) < 0x2000 else fallback
    )
    names = ("/p/sample 1.png", "/p/" + "long" * 10 + ".jpg", "/p/한글.png")
    shown = Shown(torch.zeros(3, 3, 8, 8), HALF, names, np.array([0, 1, 1]), np.full(3, 0.28), ("3", "5"), (0, 0, 1))
    svg = texts(as_svg(rollout_figure(np.ones((3, 2, 2)), shown, (4, 4), "the class token")))
    assert {"sample 1.png", "3, 28%", "is 3, taken for 5, 28%", "image 3", "5, 28%"} <= set(svg)
    assert any(one.startswith("…") and one.endswith("long.jpg") for one in svg)


def test_a_network_without_a_head_guesses_nothing() -> None:
    found = made(network(num_classes=0), "rollout")["rollout"].facts["images"][0]
    assert (found["guess"], found["label"], found["probability"]) == (None, None, None)


def test_classes_that_were_learnt_by_themselves_are_read_so() -> None:
    model = network()
    model.provenance = {"loss": "sigmoid"}
    found = made(model, "rollout", "lens", "occlusion")
    images = torch.from_numpy(source(model).pixels).permute(0, 3, 1, 2).float() / 255 * 2 - 1
    sure = model(images).detach().sigmoid().max(dim=1).values
    told = [one["probability"] for one in found["rollout"].facts["images"]]
    np.testing.assert_allclose(told, sure, atol=1e-5)
    np.testing.assert_allclose(found["lens"].numbers["lens_probability"][-1], sure, atol=1e-5)
    assert "sigmoid(head(LN(z_l)))" in found["lens"].caption
    covered = images.clone()
    covered[:, :, :4, :4] = 0
    places = torch.arange(4), model(images).argmax(dim=1)
    drop = sure - model(covered).detach().sigmoid()[places]
    np.testing.assert_allclose(found["occlusion"].numbers["occlusion"][:, 0, 0], drop, atol=1e-5)


def test_covers_of_a_small_grid_are_no_larger_than_the_image() -> None:
    small = made(network(image_size=(8, 8)), "occlusion")["occlusion"]
    assert small.facts["cover"] == [4, 4] and "cover of 4x4 pixels" in small.caption


def test_what_is_missing_for_one_reason_is_told_once() -> None:
    bit = filled(vitrail.create_model("bit-r50x1", width=32, blocks=(1, 1, 1, 1), num_classes=2, image_size=32))
    left = [one for one in each_figure(bit, preparation(bit), source(bit, 1)) if isinstance(one, LeftOut)]
    (one,) = grouped(left)
    assert one.name == "positions, distance, figure-7, rollout, lens"
    assert str(one.error).startswith("BitResNet has no attention; wanted a Vision Transformer")
    assert grouped(left[:1]) == left[:1]


def test_captions_say_what_this_network_shows() -> None:
    def distance(low: float, high: float, layers: int = 1) -> str:
        spans = np.tile(np.array([low, high]), (2, layers, 1))
        return distance_figure(Distances(spans, tuple(range(layers)), 60.0, (16, 16))).caption

    assert "2 images, 4.1 in layer 0; equal" in distance(4.12, 4.13)
    assert "4.1 to 50 in layer 0 and 4.1 to 50 in layer 2" in distance(4.12, 50, 3)
    assert "1 of 2 heads looks less than half as far" in distance(4.12, 50)
    assert "about as far as that: none has learnt" in distance(59, 61)
    alike = np.full((3, 3, 3, 3), 0.2, np.float32)
    assert "0.20 between neighbours and 0.20" in positions_figure(alike).caption
    assert "hardly anything of that is seen" in positions_figure(alike).caption
    found = made(network(), "filters", "figure-7", "maps", layers=[1])
    assert "all there are of so few filters" in found["filters"].caption and "100%" not in found["filters"].seen
    assert "3 heads of 1 layer looks" in found["maps"].caption and "of layer 1 on" in found["maps"].seen
    large = np.zeros((9, 14, 9, 14), np.float32)
    filters = vitrail.inspection.principal_filters(network())
    panels = three_panels(filters, large, Distances(np.ones((1, 1, 1)), (0,), 60.0, (16, 16)))
    assert "each of 7x7 of the 9x14 patches" in panels.caption


def test_when_the_answer_is_found() -> None:
    shown = Shown(torch.zeros(1, 3, 8, 8), HALF, ("x.png",), np.zeros(1, int), np.full(1, 0.4), None)

    def caption(*guesses: int) -> tuple[str, str]:
        found = Lens(np.zeros((len(guesses), 9)), np.tile(np.array(guesses)[:, None], 9))
        figure = lens_figure(found, shown, np.zeros(1, int))
        return figure.caption, figure.seen

    assert "Before the first layer half" in caption(1, 1, 1)[0] and "0 of" not in caption(1, 1, 1)[1]
    assert "After 1 of 2 layers" in caption(0, 1, 1)[0]
    assert "Only after the last of 2 layers" in caption(0, 0, 1)[0]
    assert "Each coloured line is an image" in caption(0, 1)[0] and "the dashed one" in caption(0, 1)[0]


@pytest.mark.parametrize(("count", "across", "rows"), [(1, 1, 1), (4, 4, 1), (7, 7, 1), (9, 7, 2)])
def test_filters_stand_in_no_more_columns_than_there_are(count: int, across: int, rows: int) -> None:
    whole = mosaic(np.ones((count, 32, 32, 3), np.float32))
    assert whole.shape == (rows * 34 - 2, across * 34 - 2, 4)
    # What is seen is all of them and nothing else.
    assert whole[..., 3].sum() == count * 32 * 32


@pytest.mark.parametrize(("letters", "columns"), [(3, 2), (16, 1)])
def test_long_names_below_the_lens_have_a_line_each(letters: int, columns: int) -> None:
    labels = ("n" * letters, "m" * letters)
    names = tuple(f"{'f' * letters}{number}.jpg" for number in range(4))
    shown = Shown(torch.zeros(4, 3, 8, 8), HALF, names, np.array([0, 1, 0, 1]), np.full(4, 0.5), labels)
    found = Lens(np.linspace(0, 1, 12).reshape(3, 4), np.tile([0, 1, 0, 1], (3, 1)))
    canvas = lens_figure(found, shown, np.arange(4)).draw(Naming(dict(enumerate(labels)), only_drawable=False))
    (legend,) = canvas.legends
    assert [one.get_text() for one in legend.get_texts()] == [f"{n}: {labels[i % 2]}" for i, n in enumerate(names)]
    assert legend._ncols == columns  # type: ignore[attr-defined]
