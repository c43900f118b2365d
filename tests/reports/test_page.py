"""The page of a run: what it says, for runs that went well and for ugly ones, and that every name is text."""

import base64
import hashlib
import io
import re
import shutil
import xml.etree.ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.reports.reader import Reader
from tests.reports.runs import (
    FULL,
    NAMES,
    done,
    evaluated,
    make_run,
    predictions,
    run_config,
    source,
    trained,
)

import vitrail
from vitrail.config import BitConfig, ConvLayerConfig, ConvStemConfig, ScheduleConfig
from vitrail.data import Arrays, Labels
from vitrail.errors import DataError, DiskError, Notice, UsageError, VitrailError, plain
from vitrail.evaluation import Predictions
from vitrail.reports import write_report
from vitrail.reports.answers import read_answers
from vitrail.reports.curves import charts, planned_rates
from vitrail.reports.story import gather
from vitrail.training.folder import RunFolder

WRONG = {1: 0, 4: 2, 6: 1}


def read(folder: RunFolder, images: Arrays | None = None, said: Predictions | None = None) -> Reader:
    text = write_report(folder, images, said).read_text(encoding="utf-8")
    reader = Reader(text)
    assert reader.open == []
    return reader


@pytest.fixture
def full(tmp_path) -> tuple[RunFolder, Arrays, Predictions]:
    images = source()
    return make_run(tmp_path / "run", FULL), images, predictions(images.labels.values, 3, WRONG)


def test_it_says_what_was_measured_and_how_the_model_was_chosen(full) -> None:
    reader = read(*full)
    assert "75.0%of 12 test images are right at the first guess (9)" in reader.words
    assert "95 % interval: 46.8 % to 91.1 %" in reader.words
    assert (
        "Selected on 10 held-out training images as the best of 2 evaluations; the test split was looked at once"
        in reader.words
    )
    assert "90.0 %best on 10 held-out images, epoch 1.0" in reader.words
    assert "finished" in reader.words
    assert reader.sections() == [
        *("curves", "classes", "mistakes", "calibration", "learnt"),
        *("data", "events", "again", "next"),
    ]


def test_nothing_is_fetched_and_only_our_script_may_run(full) -> None:
    folder, *_ = full
    reader = read(*full)
    text = folder.report.read_text(encoding="utf-8")
    assert not re.search(r"https?:|@import|url\(", text)
    pictures = reader.attributes("src")
    # Three mistakes, and the twelve images of the cells.
    assert len(pictures) == 3 + 12
    assert all(address.startswith("data:image/png;base64,") for address in pictures)
    # Whatever is linked to is on this page, once.
    ids = reader.attributes("id")
    assert len(set(ids)) == len(ids)
    assert {address[1:] for address in reader.attributes("href")} <= set(ids)
    assert not [name for _, attributes in reader.tags for name in attributes if name.startswith("on")]
    # No style attributes either: the policy would refuse them.
    assert reader.attributes("style") == []
    (policy,) = [tag["content"] for _, tag in reader.tags if tag.get("http-equiv") == "Content-Security-Policy"]
    for kind, (content,) in {"script": reader.scripts, "style": reader.styles}.items():
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; img-src data:;")


def test_names_are_text_and_never_markup(full) -> None:
    reader = read(*full)
    assert len(reader.scripts) == 1
    assert "alert" not in reader.scripts[0]
    assert not {"iframe", "object", "link", "form", "input"} & {tag for tag, _ in reader.tags}
    for name in (*NAMES, "vit-<i>test</i>", "vitrail train '<b>x</b>' --data pictures"):
        assert name in reader.words


def test_classes_and_confusions(full) -> None:
    words = read(*full).words
    # Image 1 is of class 1 and was taken for class 0; so the class has 3 of 4, less image 4.
    assert f"{NAMES[1]}, taken for {NAMES[0]}: 1 of 4 (25.0 %)" in words
    assert f"{NAMES[0]}, taken for itself: 3 of 4 (75.0 %)" in words
    assert f"{NAMES[2]}, taken for itself: 4 of 4 (100.0 %)" in words
    assert "Every class, the worst first" in words
    table = words[words.index("Every class, the worst first") :]
    assert table.index(NAMES[1]) < table.index(NAMES[0]) < table.index(NAMES[2])


def test_the_worst_mistakes_come_first_with_their_pictures(full) -> None:
    folder, images, said = full
    reader = read(folder, images, said)
    pictures = reader.inside("mistakes", "src")
    shown = [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(address.split(",")[1])))).tolist() for address in pictures
    ]
    assert shown == [images.pixels[index].tolist() for index in (6, 4, 1)]
    assert "pictures, test image 6" in reader.words
    assert "3 images of 12 wrong" in reader.words
    assert reader.inside("mistakes", "class").count("pixels") == 3


def test_large_pictures_are_made_small(tmp_path) -> None:
    images = source(side=400)
    reader = read(make_run(tmp_path, FULL), images, predictions(images.labels.values, 3, {0: 1}))
    (address,) = reader.inside("mistakes", "src")
    assert Image.open(io.BytesIO(base64.b64decode(address.split(",")[1]))).size == (160, 160)
    assert {
        Image.open(io.BytesIO(base64.b64decode(address.split(",")[1]))).size
        for address in reader.inside("classes", "src")
    } == {(80, 80)}
    assert "pixels" not in reader.attributes("class")


def test_a_picture_that_cannot_be_read_is_told(tmp_path) -> None:
    class Damaged(Arrays):
        def read(self, index):
            raise DataError("gone", where=self.where(index))

    images = source()
    damaged = Damaged(images.name, images.split, images.classes, images.labels, images.pixels)
    said = predictions(images.labels.values, 3, WRONG)
    assert read(make_run(tmp_path, FULL), damaged, said).words.count("no longer readable") == 3 + 12


def test_nothing_wrong(tmp_path) -> None:
    images = source()
    reader = read(make_run(tmp_path, FULL), images, predictions(images.labels.values, 3, {}))
    assert "100.0%of 12 test images" in reader.words
    assert "No image is wrong." in reader.words
    assert "mistakes" not in reader.sections()


def test_pictures_are_files_of_their_own(full) -> None:
    folder, *_ = full
    read(*full)
    names = {"loss", "accuracy", "learning-rate", "speed", "data-wait", "confusion"}
    assert {path.name for path in (folder.path / "figures").iterdir()} == {f"{name}.svg" for name in names}
    for name in names:
        svg = (folder.path / "figures" / f"{name}.svg").read_text(encoding="utf-8")
        assert xml.etree.ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"


def test_many_classes_become_a_table_and_the_page_stays_small(tmp_path) -> None:
    classes = tuple(f"class {number} 이름" for number in range(1000))
    images = source(classes, images=3000, side=200)
    wrong = {index: (index + 1) % 1000 for index in range(0, 3000, 3)}
    lines = [trained(step, loss=5 - step / 1e4) for step in range(1, 20_001)]
    folder = make_run(tmp_path, [*lines, done(20_000, images=3000)], classes=classes, config=run_config(1000))
    reader = read(folder, images, predictions(images.labels.values, 1000, wrong))
    assert "1,000 classes are too many for a map" in reader.words
    assert "class 999 이름" in reader.words
    assert len(reader.inside("mistakes", "src")) == 20
    assert folder.report.stat().st_size < 4_000_000
    assert not (tmp_path / "figures" / "confusion.svg").exists()


def test_forty_classes_fit_and_a_class_without_images_does_no_harm(tmp_path) -> None:
    classes = tuple(f"a rather long name of number {number}" for number in range(40))
    whole = source(classes, images=39)
    folder = make_run(tmp_path, FULL, classes=classes, config=run_config(40))
    reader = read(folder, whole, predictions(whole.labels.values, 40, {0: 39}))
    assert "matrix" in " ".join(reader.attributes("class"))
    assert "1 class has no image here." in reader.words
    assert "nan" not in reader.words


def test_several_classes_per_image(tmp_path) -> None:
    labels = Labels.of_many([[0, 1], [2], []], 3)
    images = Arrays("pictures", "test", NAMES, labels, source(images=3).pixels)
    guesses = np.array([[1, 0, 2], [0, 2, 1], [0, 1, 2]])
    right = np.array([[True, True, False], [False, True, False], [False] * 3])
    said = Predictions(guesses, np.full((3, 3), 0.5, np.float32), right, np.ones(3, np.float32))
    reader = read(make_run(tmp_path, FULL), images, said)
    assert "No confusion matrix: an image of this data may show several classes" in reader.words
    assert "none of the classes" in reader.words
    assert "of 3 test images have a right first guess (1)" in reader.words
    assert "matrix" not in " ".join(reader.attributes("class"))


def test_an_empty_log(tmp_path) -> None:
    reader = read(make_run(tmp_path, []))
    assert "at step 0 of 20" in reader.words
    assert "The log holds no step yet." in reader.words
    assert "has not been measured yet" in reader.words
    assert f"vitrail train --resume {tmp_path}" in reader.words
    assert reader.sections() == ["curves", "data", "events", "again", "next"]


def test_no_log_at_all(tmp_path) -> None:
    folder = make_run(tmp_path, [])
    folder.log.unlink()
    assert "at step 0 of 20" in read(folder).words


@pytest.mark.parametrize("lines", [FULL[:1], FULL[:3], [evaluated(1)], [trained(1, loss=0.0)]])
def test_a_few_lines(lines, tmp_path) -> None:
    reader = read(make_run(tmp_path, lines))
    assert "plot" in reader.attributes("class")
    assert "nan" not in "".join(reader.attributes("d") + reader.attributes("cy"))


def test_numbers_that_are_not_finite_are_left_out_of_the_curves(tmp_path) -> None:
    lines = [trained(1), trained(2, loss=float("nan")), trained(3, loss=float("inf")), trained(4, loss=None)]
    reader = read(make_run(tmp_path, lines))
    assert not re.search("nan|inf", "".join(reader.attributes("d") + reader.attributes("cy")))
    assert "step 1, epoch 0.10\ntraining 1" in reader.words


def test_losses_of_very_different_size(tmp_path) -> None:
    reader = read(make_run(tmp_path, [trained(step, loss=14_000 / step**2) for step in range(1, 60)]))
    # Ticks of a logarithmic axis.
    assert "1101001k10k100k" in reader.words


def test_what_happened_is_told_in_sentences(tmp_path) -> None:
    lines = [
        *({"event": "skipped", "step": step, "reason": "x"} for step in range(1, 13)),
        {"event": "micro_batch", "step": 3, "from": 10, "micro_batch": 5},
        {"event": "rollback", "step": 5, "from": 8, "rate_factor": 0.5},
        {"event": "length", "step": 6, "steps": 1500},
        {"event": "moved", "step": 7, "why": "<u>later</u>"},
        trained(10),
    ]
    words = read(make_run(tmp_path, lines)).words
    assert "12 updates were skipped because the loss or the gradient was not finite: steps 1, 2, 3" in words
    assert "8 and 4 more." in words
    assert "from there on 5 images at a time instead of 10" in words
    assert "went back to its checkpoint at step 5 and went on with 50.0 % of the learning rate" in words
    assert "set the length of the run to 1,500 steps" in words
    assert "at step 12 of 1,500" in words
    assert 'Step 7: moved {"why": "<u>later</u>"}.' in words


def test_a_run_that_diverged(tmp_path) -> None:
    folder = make_run(tmp_path, [trained(1), {"event": "skipped", "step": 2}])
    (tmp_path / "diverged.json").write_text("{}")
    words = read(folder).words
    assert "diverged at step 2" in words
    assert "diverged.json names the last files" in words
    assert "--resume" not in words


def test_no_test_split_is_said_with_what_it_means(tmp_path) -> None:
    images = source(images=10, split="train, held-out 10%")
    said = predictions(images.labels.values, 3, {0: 1})
    counts = {"train": 100, "held-out": 10}
    lines = [*FULL[:-1], done(split="held_out", images=10)]
    words = read(make_run(tmp_path / "a", lines, counts=counts), images, said).words
    assert "of 10 held-out images" in words
    assert (
        "the model is the best of 2 evaluations on the same 10 held-out training images (the last one had 80.0 %), "
        "so its number is a little too good"
    ) in words
    once = [trained(10), evaluated(10), done(split="held_out", images=10)]
    words = read(make_run(tmp_path / "c", once, counts=counts), images, said).words
    assert "with nothing to choose from" in words
    assert "too good" not in words
    last = run_config(keep="last")
    words = read(make_run(tmp_path / "b", lines, counts=counts, config=last), images, said).words
    assert "which chose nothing" in words


def test_nothing_measured(tmp_path) -> None:
    reader = read(make_run(tmp_path, [trained(20), done(split=None)], counts={"train": 100}))
    assert "nothing here says how good the model is" in reader.words
    assert reader.sections() == ["curves", "learnt", "data", "events", "again", "next"]
    assert "The model (model/ in its folder) is not there any more." in reader.words
    assert "held-out" not in "".join(reader.attributes("aria-label"))


def test_data_that_has_gone_leaves_the_number_and_says_so(full) -> None:
    folder, _, said = full
    np.savez(folder.path / "predictions.npz", **vars(said))
    reader = read(folder)
    assert "75.0%of 12 test images" in reader.words
    assert "The images that were measured cannot be shown." in reader.words
    assert "Without their labels this part is left out." in reader.words
    assert reader.sections()[1:3] == ["classes", "calibration"]
    assert "/nowhere/pictures" in reader.words
    assert reader.attributes("src") == []


def test_data_that_has_changed_is_not_shown_beside_old_numbers(full) -> None:
    folder, images, said = full
    more = read(folder, source(images=13), said)
    assert "there are 13 images now, and 12 were measured" in more.words
    other = Arrays("pictures", "test", NAMES, Labels.of(images.labels.values[::-1].copy(), 3), images.pixels)
    assert "the labels are not those that were measured" in read(folder, other, said).words
    renamed = source(("a", "b", "c"))
    assert "the classes are not those of the run" in read(folder, renamed, said).words


def test_the_best_evaluation_has_its_words_at_the_foot_of_a_line(full) -> None:
    svg = charts(gather(*full))["accuracy"].svg()
    (star,) = re.findall(r'<circle class="star" cx="([\d.]+)" cy="([\d.]+)"', svg)
    (foot,) = re.findall(r'<path class="foot" d="M([\d.]+) ([\d.]+)V([\d.]+)"/>', svg)
    assert foot[0] == star[0] and float(star[1]) < float(foot[1]) < float(foot[2])
    assert "best 90.0 %" in svg


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 cut off", b"text"])
def test_damaged_predictions(damage, full) -> None:
    folder, images, _ = full
    (folder.path / "predictions.npz").write_bytes(damage)
    reader = read(folder, images)
    assert "predictions.npz: cannot be read" in reader.words
    assert "75.0%of 12 test images" in reader.words


def test_predictions_of_another_shape(full) -> None:
    folder, images, said = full
    np.savez(folder.path / "predictions.npz", **{**vars(said), "guesses": said.guesses + 3})
    assert "holds other arrays than those of a run" in read(folder, images).words


def test_old_predictions_of_a_run_that_goes_on_are_not_shown(full) -> None:
    folder, _, said = full
    np.savez(folder.path / "predictions.npz", **vars(said))
    make_run(folder.path, FULL[:-1])
    assert "classes" not in read(folder).sections()


def test_how_to_do_it_again(full) -> None:
    folder, images, said = full
    words = read(folder, images, said).words
    assert "sha256 " + "ab" * 32 in words
    assert "train 100, held-out 10, test 12" in words
    assert "1 min 23 s" in words
    assert "optim.lr0.001" in words
    assert f"vitrail info {folder.path}" in words
    assert "vitrail convert" in words
    assert "--layout timm" in words
    assert "vitrail data check /nowhere/pictures --page check.html" in words


def test_a_network_that_no_other_library_holds_is_not_offered_for_conversion(tmp_path) -> None:
    config = run_config()
    model = replace(config.model, registers=2)
    words = read(make_run(tmp_path, [done(split=None)], config=replace(config, model=model))).words
    assert "vitrail convert" not in words
    assert "vitrail info" in words


def test_paths_in_commands_are_quoted(tmp_path) -> None:
    words = read(make_run(tmp_path / "my run", [])).words
    assert f"vitrail train --resume '{tmp_path}/my run'" in words


def test_patches_behind_convolutions_are_counted_in_pixels_of_the_image(tmp_path) -> None:
    config = run_config()
    stem = ConvStemConfig(layers=(ConvLayerConfig(channels=4), ConvLayerConfig(channels=4)))
    model = replace(config.model, backbone=stem, patch_size=(1, 1), image_size=(16, 16))
    words = read(make_run(tmp_path, [], config=replace(config, model=model))).words
    assert "1 block of width 8, 4x4 patches of 4x4 px behind convolutions, 16x16 px, 3 classes" in words


def test_the_learning_rate_is_drawn_from_the_first_step_on(tmp_path) -> None:
    config = run_config(steps=20, epochs=None)
    config = replace(config, schedule=ScheduleConfig(decay="constant", warmup_steps=2))

    def rates(*events) -> dict[int, float]:
        folder = make_run(tmp_path, [*events, trained(10), trained(20)], config=config)
        return {int(step): value for step, value in planned_rates(gather(folder, None, None))}

    assert rates() == {0: 0.0, 1: 0.0005, **dict.fromkeys(range(2, 21), 0.001)}
    # Back to step 8 with half of the rate, and later to 5 with a quarter: the half was then undone.
    back = rates(
        *({"event": "rollback", "step": step, "rate_factor": factor} for step, factor in ((8, 0.5), (5, 0.25)))
    )
    assert (back[4], back[5], back[7], back[20]) == (0.001, 0.00025, 0.00025, 0.00025)
    unknown = rates({"event": "rollback", "step": 8}, {"event": "length", "step": 9, "steps": None})
    assert unknown[20] == 0.001


def test_a_shorter_length_is_seen_in_the_learning_rate(tmp_path) -> None:
    lines = [{"event": "length", "step": 4, "steps": 10}, trained(10), done(10, split=None)]
    config = run_config(steps=1000, epochs=None)
    found = dict(planned_rates(gather(make_run(tmp_path, lines, config=config), None, None)))
    assert found[3] == pytest.approx(1e-3, rel=1e-3)
    assert found[10] == 0


def test_a_folder_that_is_no_run(tmp_path) -> None:
    with pytest.raises(UsageError, match="there is no config"):
        write_report(RunFolder(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_page_that_cannot_be_written_leaves_the_old_one(full) -> None:
    folder, images, said = full
    read(folder, images, said)
    before = folder.report.read_bytes()
    (folder.path / "figures" / "loss.svg").unlink()
    (folder.path / "figures" / "loss.svg").mkdir()
    with pytest.raises(DiskError):
        write_report(folder, images, said)
    assert folder.report.read_bytes() == before


def test_a_line_of_a_log_that_is_no_record_is_left_out(tmp_path: Path) -> None:
    folder = make_run(tmp_path, FULL)
    whole = read(folder).words
    folder.log.write_text("{}\n" + folder.log.read_text())
    with pytest.warns(Notice, match="left out"):
        assert read(folder).words == whole


def test_a_run_that_was_stopped_says_so_first(tmp_path) -> None:
    folder = make_run(tmp_path / "run", [trained(5), {"event": "resumed", "step": 5}, trained(10)])
    words = read(folder).words
    assert "stopped at step 10 of 20" in words
    top, happened = words.rsplit("How it went", 1)[0], words.rsplit("What happened", 1)[1]
    for part in (top, happened):
        assert (
            f"It was stopped at step 10, by a signal or by the machine. To go on: {plain(folder.resume_command)}"
            in part
        )
    assert "The run was stopped, and went on from step 5." in happened
    assert "Every update was made as planned" not in words


@pytest.mark.parametrize(
    "lines",
    [
        [{**evaluated(0), "accuracy": 0.1}],
        [{**evaluated(10), "accuracy": None, "images": None}],
        [trained(20), {**done(), "metrics": {"images": 12, "accuracy": 0.75, "top5": 1.0, "loss": None}}],
        [trained(20), {**done(), "metrics": {"images": None, "accuracy": None}}],
        [{"event": "length", "step": 3, "steps": "many"}, trained(5)],
    ],
)
def test_whatever_the_log_holds_there_is_a_page(tmp_path, lines) -> None:
    reader = read(make_run(tmp_path / "run", lines))
    assert "nan" not in reader.words.replace("finance", "")
    if lines[-1].get("metrics"):
        assert "predictions.npz: is not there any more" in reader.words
    if (lines[-1].get("metrics") or {}).get("accuracy"):
        assert "75.0%of 12 test images" in reader.words and "not finitetest loss" in reader.words


def test_a_model_that_cannot_be_read_is_told(full) -> None:
    folder, *_ = full
    folder.model.mkdir()
    (folder.model / "config.json").write_text("{}", encoding="utf-8")
    assert "This part is left out." in read(*full).words.rsplit("What it has learnt", 1)[1][:60]
    shutil.rmtree(folder.model)
    model = vitrail.create_model("vit-test", num_classes=3, position="none")
    model.preprocessing = run_config().preprocessing
    vitrail.save_model(model, folder.model)
    words = read(*full).words
    assert "Not shown:positions: this network has no position embedding" in words


def test_answers_that_are_no_numbers(full) -> None:
    folder, images, said = full
    said.confidence[3:, 0] = np.nan
    reader = read(folder, images, said)
    assert "nan" not in reader.words
    assert "The model gave answers that are no numbers" in reader.words
    np.savez(folder.path / "predictions.npz", **{**vars(said), "guesses": said.guesses - 2})
    with pytest.raises(VitrailError, match="holds other arrays"):
        read_answers(folder.path / "predictions.npz", 3)
    np.savez(folder.path / "predictions.npz", **{**vars(said), "confidence": said.confidence + 2})
    with pytest.raises(VitrailError, match="holds other probabilities"):
        read_answers(folder.path / "predictions.npz", 3)


@pytest.mark.parametrize(
    ("sure", "told"),
    [(0.999, "It is too sure of itself"), (0.75, "its word is about right"), (0.3, "It is too modest")],
)
def test_whether_its_word_can_be_taken(tmp_path, sure, told) -> None:
    images = source(images=200)
    said = predictions(images.labels.values, 3, {index: (index + 1) % 3 for index in range(50)})
    said.confidence[:, 0] = sure
    assert told in read(make_run(tmp_path / "run", FULL), images, said).words


def test_the_best_is_named_at_the_ground_and_inspect_comes_next(full) -> None:
    folder, *_ = full
    assert f"vitrail inspect {folder.path} IMAGES" in read(*full).words
    chart = charts(gather(*full))["accuracy"].svg()
    (low,) = re.findall(r'class="told" x="[\d.]+" y="([\d.]+)"', chart)
    ground = max(float(y) for y in re.findall(r'class="grid" d="M[\d.]+ ([\d.]+)h', chart))
    assert ground - 10 < float(low) < ground


def test_a_run_is_called_by_its_name_and_its_data_in_short(full) -> None:
    reader = read(*full)
    assert "run: vit-<i>test</i> on pictures" in reader.words
    assert "on /nowhere/pictures" not in reader.words


@pytest.mark.parametrize("has_attention", [True, False])
def test_where_it_looks_is_offered_where_there_is_attention(tmp_path, has_attention) -> None:
    config = run_config()
    if not has_attention:
        config = replace(config, model=BitConfig(blocks=(1, 1, 1, 1), width=32, num_classes=3, image_size=(32, 32)))
    words = read(make_run(tmp_path / "run", FULL, config=config)).words
    assert ("with where it looks" in words) == has_attention
    assert ("where it looks and what it has learnt" in words) == has_attention
    assert "the same in a browser" in words
