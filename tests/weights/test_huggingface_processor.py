"""Processors of Hugging Face, against transformers' own on images that are made here."""

import dataclasses
import json
import math
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vitrail
from vitrail.config import PRESETS, Preprocessing, VitConfig, preset
from vitrail.data.transforms.fit_image import fit_image, normalised
from vitrail.errors import DataError, Notice
from vitrail.weights import library
from vitrail.weights.huggingface_processor import PROCESSOR_FILE, processor_settings, read_processor
from vitrail.weights.library_config import Hints
from vitrail.weights.load import read_checkpoint
from vitrail.weights.record import Described

transformers = pytest.importorskip("transformers")

SIZE = 48
NETWORK = VitConfig(
    width=24, depth=1, num_heads=3, mlp_width=48, patch_size=8, image_size=SIZE, num_classes=4, gelu="erf"
)
HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
# Levels of 255. A pixel to the side and one up are up to nine apart in the pictures: room for a centre that is rounded
# to the other side, and far below what another resize does.
_ROUNDING = 10


def picture(width: int, height: int) -> Image.Image:
    """Soft waves, so that a pixel to the side is nearly the same and another shape is not."""
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    waves = [np.sin(2 * x + y), np.cos(2 * y - x), np.sin(2 * (x - y))]
    return Image.fromarray(np.round(127.5 + 120 * np.stack(waves, axis=2)).astype(np.uint8))


PICTURES = [picture(180, 131), picture(97, 210), picture(160, 160), picture(301, 150)]


def levels_apart(folder: Path, preprocessing: Preprocessing, size: int = SIZE) -> float:
    """How far transformers' own processor is from what we feed the network, in levels of 255."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    apart = []
    for image in PICTURES:
        theirs = processor(image, return_tensors="np")["pixel_values"][0]
        ours = normalised(fit_image(image, (size, size), preprocessing), preprocessing)
        assert theirs.shape == ours.shape
        apart.append(np.abs(theirs - ours).max() * min(preprocessing.std) * 255)
    return max(apart)


def network(preprocessing: Preprocessing | None, labels: tuple[str, ...] | None = None) -> vitrail.VisionTransformer:
    model = vitrail.create_model(NETWORK)
    model.preprocessing, model.labels = preprocessing, labels
    return model


@pytest.mark.parametrize(
    "preprocessing",
    [
        preset("augreg"),
        preset("imagenet"),
        dataclasses.replace(preset("imagenet"), crop=0.875, interpolation="bilinear"),
        dataclasses.replace(preset("augreg"), crop=1.0),
        dataclasses.replace(preset("augreg"), crop=None),
        dataclasses.replace(preset("augreg"), crop=0.8, squash=True),
    ],
)
def test_the_processor_that_is_written_prepares_as_the_network_wants(preprocessing, tmp_path) -> None:
    vitrail.save_model(network(preprocessing), tmp_path / "hf", layout="huggingface")
    assert levels_apart(tmp_path / "hf", preprocessing) < _ROUNDING
    squashed = dataclasses.replace(preprocessing, crop=None, squash=False)
    if preprocessing.crop is not None:  # the bound would see what was wrong
        assert levels_apart(tmp_path / "hf", squashed) > 3 * _ROUNDING
    assert vitrail.load_model(tmp_path / "hf").preprocessing == preprocessing
    # Without our record in the weights, as from anybody else, it says the same.
    settings = json.loads((tmp_path / "hf" / PROCESSOR_FILE).read_text())
    assert read_processor(settings, "x").agrees(preprocessing, (SIZE, SIZE), channels=3)


def grid() -> Iterator[tuple[VitConfig, Preprocessing]]:
    """Every geometry, size and number of channels with as many or one value of each statistic."""
    sizes, channels, crops = [(48, 48), (48, 64), (40, 104)], [1, 3], [None, 1.0, 0.99, 0.9, 0.875, 2 / 3, 0.3, 0.01]
    for size, number, crop, squash in product(sizes, channels, crops, [False, True]):
        for known in (
            PRESETS["imagenet"],
            PRESETS["google"],
            Preprocessing(mean=(0.4,), std=(0.3,), interpolation="bilinear"),
        ):
            config = dataclasses.replace(NETWORK, image_size=size, channels=number)
            yield config, dataclasses.replace(known, crop=crop, squash=squash)


def recorded(config: VitConfig, preprocessing: Preprocessing | None, settings: dict) -> Preprocessing | None:
    """What counts of a record in weights with a processor beside them."""
    described = Described(config=config, preprocessing=preprocessing)
    return library._edited(library.HUGGINGFACE, described, Hints(preprocessor=settings), Path("x")).preprocessing


def test_what_is_written_reads_back_as_it_was_and_nothing_is_told() -> None:
    seen = 0
    for config, preprocessing in grid():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Notice)
            settings = processor_settings(config, preprocessing)
        if settings is None:
            assert preprocessing.crop is not None
            assert config.image_size[0] != config.image_size[1]
            continue
        settings = json.loads(json.dumps(settings))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert recorded(config, preprocessing, settings) == preprocessing
            # By what it says too, as when somebody else wrote it.
            read = read_processor(settings, "x")
            assert read is not None
            assert read.agrees(preprocessing, config.image_size, config.channels)
            assert recorded(config, preprocessing, settings | {"do_pad": None}) == preprocessing
        seen += 1
    assert seen == 3 * 2 * 3 * 2 * 8 - 2 * 2 * 3 * 7


def test_what_version_0_1_wrote_beside_a_crop_is_no_edit() -> None:
    """It wrote a squash to the size of the network for each, and read its own record."""
    for config, preprocessing in grid():
        height, width = config.image_size
        before = {
            "image_processor_type": "ViTImageProcessor",
            "do_resize": True,
            "do_rescale": True,
            "do_normalize": True,
            "rescale_factor": 1 / 255,
            "size": {"height": height, "width": width},
            "resample": 2 if preprocessing.interpolation == "bilinear" else 3,
            "image_mean": list(preprocessing.mean),
            "image_std": list(preprocessing.std),
        }
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert recorded(config, preprocessing, before) == preprocessing
        with pytest.warns(Notice, match="is followed"):
            edited = recorded(config, preprocessing, before | {"image_mean": [0.1] * len(preprocessing.mean)})
        assert edited is not None
        assert edited.mean == (0.1,) * len(preprocessing.mean)


ODD = [
    *(None, True, False, 0, -1, 3, 3.0, 48, 10**6, 10**400, -(10**400), 0.5, 1e308, math.inf, -math.inf, math.nan),
    *(
        "",
        "48",
        [],
        [3],
        [48, 48],
        [48, None],
        [0, -1],
        [1e9, 2],
        [10**400] * 2,
        [[]],
        [{}],
        ["a", "b", "c"],
        [0.5] * 3,
    ),
    *({}, {"height": 48}, {"height": 10**400, "width": 1}, {"shortest_edge": 48.5}, {"shortest_edge": {}}),
    *({"shortest_edge": 10**9}, {"height": 60, "width": 60}, {"height": True, "width": 48}, {"a": [{}]}),
]
FIELDS = [
    *("image_processor_type", "feature_extractor_type", "do_resize", "do_rescale", "do_normalize", "do_center_crop"),
    *("size", "crop_size", "crop_pct", "resample", "rescale_factor", "image_mean", "image_std"),
]


@pytest.mark.filterwarnings("ignore::vitrail.errors.Notice")
@pytest.mark.parametrize("kind", ["ViT", "DeiT", "CLIP", "ConvNext"])
@pytest.mark.parametrize("name", FIELDS)
def test_odd_values_are_followed_told_or_refused(name, kind) -> None:
    good = {"image_processor_type": f"{kind}ImageProcessor", "size": 60, "crop_size": 48} | HALF
    for crops, odd in product(({}, {"do_center_crop": True}), ODD):
        try:
            read = read_processor(good | crops | {name: odd}, "x")
        except DataError:
            continue
        assert read is None or recorded(NETWORK, preset("augreg"), good | crops | {name: odd}) is not None


@pytest.mark.parametrize(
    "changed",
    [{"resample": [3]}, {"resample": {}}, {"size": 10**400}, {"size": -1}, {"size": 48.5}, {"crop_size": 48.5}],
)
def test_values_of_another_type_are_told_by_name(changed) -> None:
    with pytest.warns(Notice, match=f"x: {next(iter(changed))} in"):
        assert read_processor({"size": 60, "crop_size": 48, "do_center_crop": True} | HALF | changed, "x") is None


@pytest.mark.parametrize(
    "settings",
    [
        {"image_processor_type": "ViTImageProcessor", "size": {"height": SIZE, "width": SIZE}, "resample": 2},
        {"image_processor_type": "ViTImageProcessorFast", "size": SIZE},
        {"feature_extractor_type": "ViTFeatureExtractor", "size": SIZE, "resample": 3},
        {
            "image_processor_type": "ViTImageProcessor",
            "size": {"shortest_edge": 60},
            "do_center_crop": True,
            "crop_size": {"height": SIZE, "width": SIZE},
            "resample": 3,
        },
        {"feature_extractor_type": "DeiTFeatureExtractor", "size": 56, "crop_size": SIZE, "resample": 3},
        {"image_processor_type": "DeiTImageProcessor", "size": {"height": 60, "width": 60}, "crop_size": SIZE},
        {"image_processor_type": "DeiTImageProcessor", "size": SIZE, "do_center_crop": False, "crop_size": None},
        {"image_processor_type": "CLIPImageProcessor", "size": SIZE, "crop_size": SIZE},
        {"feature_extractor_type": "CLIPFeatureExtractor", "size": SIZE, "crop_size": SIZE, "do_center_crop": True},
        {
            "image_processor_type": "BitImageProcessor",
            "size": {"shortest_edge": 55},
            "crop_size": {"height": SIZE, "width": SIZE},
        },
        {
            "image_processor_type": "ConvNextImageProcessor",
            "size": {"shortest_edge": SIZE},
            "crop_pct": 0.8,
            "resample": 2,
        },
    ],
)
def test_processors_of_others_are_followed(settings, tmp_path) -> None:
    (tmp_path / PROCESSOR_FILE).write_text(json.dumps(settings | HALF))
    read = read_processor(settings | HALF, "x")
    assert read is not None
    assert levels_apart(tmp_path, read) < _ROUNDING


def test_the_largest_of_convnext_are_squashed(tmp_path) -> None:
    settings = {
        "image_processor_type": "ConvNextImageProcessor",
        "size": {"shortest_edge": 384},
        "crop_pct": 0.8,
    } | HALF
    (tmp_path / PROCESSOR_FILE).write_text(json.dumps(settings))
    assert levels_apart(tmp_path, read_processor(settings, "x"), size=384) < _ROUNDING


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"resample": 1}, "resample"),
        ({"do_normalize": False}, "do_normalize"),
        ({"rescale_factor": 1 / 127.5}, "rescale_factor"),
        ({"image_processor_type": "LevitImageProcessor"}, "LevitImageProcessor"),
        ({"size": {"shortest_edge": 56}}, "do_center_crop"),
        ({"size": {"longest_edge": 56}}, "size"),
        ({"size": "large"}, "size"),
        ({"size": True}, "size"),
        ({"size": {"shortest_edge": 40}, "do_center_crop": True, "crop_size": 48}, "crop_size"),
        ({"size": {"height": 60, "width": 56}, "do_center_crop": True, "crop_size": 48}, "size"),
    ],
)
def test_what_is_not_followed_is_told(changed, named) -> None:
    with pytest.warns(Notice, match=named):
        assert read_processor({"size": SIZE} | HALF | changed, "x") is None


def test_an_unknown_preprocessing_writes_no_processor_and_says_how_to_get_one(tmp_path) -> None:
    with pytest.warns(Notice, match=r"no preprocessor_config\.json is written.*with preprocessing"):
        vitrail.save_model(network(None), tmp_path / "hf", layout="huggingface")
    assert not (tmp_path / "hf" / PROCESSOR_FILE).exists()


def test_a_centre_that_no_processor_takes_is_told() -> None:
    wide = dataclasses.replace(NETWORK, image_size=(48, 64))
    with pytest.warns(Notice, match="48x64"):
        assert processor_settings(wide, preset("augreg")) is None
    assert processor_settings(wide, dataclasses.replace(preset("augreg"), crop=None))["size"] == {
        "height": 48,
        "width": 64,
    }


def test_a_grey_network_has_one_mean() -> None:
    grey = dataclasses.replace(NETWORK, channels=1)
    settings = processor_settings(grey, preset("imagenet"))
    assert settings["image_mean"] == [pytest.approx(0.449)]
    assert len(settings["image_std"]) == 1


def test_an_edited_processor_and_edited_names_win_over_the_record_in_the_weights(tmp_path) -> None:
    folder = tmp_path / "hf"
    vitrail.save_model(network(preset("augreg"), tuple("abcd")), folder, layout="huggingface")
    assert read_checkpoint(folder).preprocessing == preset("augreg")  # as it was written, nothing is told
    settings = json.loads((folder / PROCESSOR_FILE).read_text())
    settings["image_mean"] = [0.1, 0.2, 0.3]
    (folder / PROCESSOR_FILE).write_text(json.dumps(settings))
    for source in (folder, folder / "model.safetensors"):
        with pytest.warns(Notice, match=r"preprocessor_config\.json is followed"):
            assert read_checkpoint(source).preprocessing.mean == (0.1, 0.2, 0.3)
    (folder / PROCESSOR_FILE).unlink()
    config = json.loads((folder / "config.json").read_text())
    config["id2label"]["3"] = "z"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.warns(Notice, match="class names"):
        assert read_checkpoint(folder).labels == ("a", "b", "c", "z")
