"""One answer everywhere: prediction gives what evaluation sees, whatever the batch, the backend or the input."""

import time

import numpy as np
import pytest
import torch
from PIL import Image
from tests.evaluation.small import model_folder, network

import vitrail
from vitrail.config import BitConfig, Preprocessing, preset
from vitrail.data import Preparation
from vitrail.data.loading.loader import evaluation_batches
from vitrail.data.sources.loose import open_images
from vitrail.errors import DataError, DiskError, UsageError
from vitrail.prediction import Predictor
from vitrail.prediction.handed import Handed, from_names


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def model(tmp_path):
    return model_folder(tmp_path / "model")


@pytest.fixture
def photos(tmp_path):
    """Of all sizes and kinds: colour, grey, transparent, turned."""
    folder = tmp_path / "photos"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for number, (height, width) in enumerate([(20, 30), (8, 8), (31, 17), (90, 12), (9, 40)]):
        pixels = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    Image.fromarray(generator.integers(0, 256, (15, 15), dtype=np.uint8)).save(folder / "grey.png")
    Image.fromarray(generator.integers(0, 256, (15, 15, 4), dtype=np.uint8)).save(folder / "see-through.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(generator.integers(0, 256, (12, 24, 3), dtype=np.uint8)).save(folder / "turned.jpg", exif=exif)
    return folder


def paths(photos):
    return [handed.name for handed in from_names([str(photos)])]


def test_logits_are_those_of_evaluation(model, photos) -> None:
    living = vitrail.load_model(model)
    preparation = Preparation(size=(8, 8), preprocessing=living.preprocessing)
    expected = []
    for batch in evaluation_batches(open_images([photos]), preparation, batch_size=3):
        with torch.inference_mode():
            expected.append(living(batch.images).numpy())
    found = Predictor(model)(paths(photos), top_k=3)
    logits = Predictor(model, batch_size=3).logits(paths(photos))
    assert np.abs(logits - np.concatenate(expected)).max() < 1e-6
    for answers, row in zip(found, logits, strict=True):
        chances = torch.from_numpy(row).double().softmax(0)
        assert [label for label, _ in answers] == [str(index) for index in chances.argsort(descending=True).tolist()]
        assert sum(chance for _, chance in answers) == pytest.approx(1)


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_the_size_of_batches_changes_nothing(model, photos, batch_size) -> None:
    expected = Predictor(model, batch_size=4).logits(paths(photos))
    assert np.abs(Predictor(model, batch_size=batch_size).logits(paths(photos)) - expected).max() < 1e-5


def test_features_are_what_the_head_reads(model, photos) -> None:
    predictor = Predictor(model)
    features, logits = predictor.embed(paths(photos)), predictor.logits(paths(photos))
    head = network().head
    assert np.abs(features @ head.weight.detach().numpy().T + head.bias.detach().numpy() - logits).max() < 1e-5


def test_names_travel_with_the_weights(tmp_path, photos) -> None:
    named = network()
    named.labels = ("고양이", "<script>", 'a "quoted" dog')
    vitrail.save_model(named, tmp_path / "named")
    [answers] = Predictor(tmp_path / "named")(photos / "0.png")
    assert {label for label, _ in answers} == set(named.labels)


def test_classes_that_were_learnt_on_their_own_do_not_sum_to_one(tmp_path, photos) -> None:
    independent = network()
    independent.provenance = {"loss": "sigmoid"}
    vitrail.save_model(independent, tmp_path / "independent")
    predictor = Predictor(tmp_path / "independent")
    [answers] = predictor(photos / "0.png")
    [logits] = predictor.logits(photos / "0.png")
    assert sorted(chance for _, chance in answers) == pytest.approx(sorted(1 / (1 + np.exp(-logits))), abs=1e-6)


def test_no_images(model) -> None:
    assert Predictor(model)([]) == []
    assert Predictor(model).logits([]).shape == (0, 3)


def test_a_bad_image_is_an_error_in_python_and_an_answer_among_others(model, photos) -> None:
    (photos / "cut.png").write_bytes((photos / "0.png").read_bytes()[:60])
    with pytest.raises(DataError, match=r"cut\.png"):
        Predictor(model)(paths(photos))
    answers = list(Predictor(model, batch_size=4).answers(from_names([str(photos)])))
    assert [answer.name for answer in answers if answer.error] == [str(photos / "cut.png")]
    fine = Predictor(model).logits([path for path in paths(photos) if "cut" not in path])
    assert np.abs(np.stack([answer.logits for answer in answers if answer.logits is not None]) - fine).max() < 1e-5


def test_another_size_resizes_positions(model, photos) -> None:
    found = Predictor(model, image_size=(8, 16)).logits(photos / "0.png")
    living = vitrail.load_model(model, image_size=(8, 16))
    from vitrail.data.transforms.fit_image import fit_image, normalised

    image = Image.open(photos / "0.png")
    prepared = normalised(fit_image(image, (8, 16), living.preprocessing), living.preprocessing)
    with torch.inference_mode():
        assert np.abs(found - living(torch.from_numpy(prepared)[None]).numpy()).max() < 1e-5


def test_without_known_preparation_there_are_no_answers(tmp_path, photos) -> None:
    bare = network()
    bare.preprocessing = None
    vitrail.save_model(bare, tmp_path / "bare")
    with pytest.raises(UsageError, match="with preprocessing"):
        Predictor(tmp_path / "bare")
    named = Predictor(tmp_path / "bare", preprocessing="google")
    assert named.described.preprocessing == preset("google")
    assert len(named(photos / "0.png")) == 1


def test_a_network_without_classes_has_features_alone(tmp_path, photos) -> None:
    headless = vitrail.create_model("vit-test", num_classes=0, image_size=32)
    headless.preprocessing = preset("google")
    vitrail.save_model(headless, tmp_path / "headless")
    predictor = Predictor(tmp_path / "headless")
    with pytest.raises(UsageError, match="--embed"):
        predictor(photos / "0.png")
    assert predictor.embed(photos / "0.png").shape == (1, headless.config.width)


def test_weights_that_are_no_numbers(tmp_path, photos) -> None:
    broken = network()
    with torch.no_grad():
        broken.head.weight.fill_(float("nan"))
    vitrail.save_model(broken, tmp_path / "broken")
    with pytest.raises(DataError, match="not finite"):
        Predictor(tmp_path / "broken")(photos / "0.png")


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"backend": "onxx"}, "Did you mean 'onnx'"), ({"batch_size": 0}, "batch_size"), ({"device": "tpu"}, "device")],
)
def test_options_that_do_not_exist(model, options, reason) -> None:
    with pytest.raises(UsageError, match=reason):
        Predictor(model, **options)


@pytest.mark.parametrize("kind", ["onnx", "openvino"])
def test_a_copy_is_made_once_agrees_and_is_then_taken(model, photos, kind, tmp_path) -> None:
    expected = Predictor(model, backend="torch").logits(paths(photos))
    asked = Predictor(model, backend=kind)
    assert np.abs(asked.logits(paths(photos)) - expected).max() < 1e-4
    later = Predictor(model)
    assert later.backend.name == asked.backend.name
    assert "torch" not in later.backend.name
    assert np.abs(later.embed(paths(photos)) - Predictor(model, backend="torch").embed(paths(photos))).max() < 1e-4


@pytest.mark.filterwarnings("ignore::vitrail.errors.Notice")
def test_where_no_copy_can_be_made_torch_answers(model, photos, monkeypatch) -> None:
    def full(*_words, **_options) -> None:
        raise DiskError("could not be written (No space left on device)")

    monkeypatch.setattr("vitrail.exporting.write.write_unverified", full)
    monkeypatch.setattr("vitrail.prediction.fastest._MANY_IMAGES", 3)
    assert "torch" in Predictor(model, images=5).backend.name


@pytest.mark.parametrize(
    ("channels", "means", "error", "match"),
    [(4, 4, UsageError, "reads 4 channels; wanted 1 for grey or 3"), (3, 2, DataError, "of 2 channels; wanted 3")],
)
def test_channels_that_no_image_has(tmp_path, channels, means, error, match) -> None:
    odd = vitrail.create_model("vit-test", channels=channels)
    odd.preprocessing = Preprocessing(mean=(0.5,) * means, std=(0.5,) * means, interpolation="bilinear")
    vitrail.save_model(odd, tmp_path / "odd")
    with pytest.raises(error, match=match):
        Predictor(tmp_path / "odd")


def test_a_size_beyond_all_images_is_refused_before_memory_is_taken(tmp_path) -> None:
    small = vitrail.create_model(BitConfig(blocks=(1, 1, 1, 1), width=32, image_size=(32, 32), num_classes=3))
    small.preprocessing = preset("google")
    vitrail.save_model(small, tmp_path / "bit")
    with pytest.raises(UsageError, match=r"65536x65536; wanted at most [\d,]+ pixels"):
        Predictor(tmp_path / "bit", image_size=65_536)


def test_who_stops_waits_for_no_image(model) -> None:
    begun = []

    def slow(_mode, _policy):
        begun.append(1)
        time.sleep(0.01)
        raise DataError("no image")

    answers = Predictor(model, batch_size=200).answers([Handed(str(number), slow) for number in range(600)])
    next(answers)
    answers.close()
    assert len(begun) < 500
