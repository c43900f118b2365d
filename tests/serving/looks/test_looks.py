"""Every number that is served is the number that the Python API gives."""

import base64
import io
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from tests.serving.looks.served import EXPORTED, LABELS, logits_of, model_folder, network, photo

import vitrail
from vitrail import inspection
from vitrail.config import ConvLayerConfig, ConvStemConfig
from vitrail.config.serve import ServeConfig
from vitrail.errors import DataError, UsageError
from vitrail.prediction import Predictor
from vitrail.prediction.handed import from_objects
from vitrail.serving.http.schemas import SCHEMAS
from vitrail.serving.looks.answers import answer
from vitrail.serving.looks.loaded import load
from vitrail.serving.looks.look import look
from vitrail.serving.looks.prepare import prepare
from vitrail.serving.looks.reply import NotAvailable


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("looks") / "pets")


@pytest.fixture(scope="module")
def loaded(folder):
    return load(ServeConfig(source=str(folder), backend="torch"), generation=7)


@pytest.fixture(scope="module")
def image(loaded):
    return prepare(loaded, photo())


@pytest.fixture(scope="module")
def tensor(image):
    return torch.from_numpy(image.pixels)[None]


@pytest.fixture(scope="module")
def living(folder):
    return vitrail.load_model(folder)


def asked(loaded, kind, image=None, **options):
    return json.loads(look(loaded, kind, options, image).body)


def same(found, expected: torch.Tensor) -> bool:
    return np.array_equal(np.array(found, dtype=np.float32), expected.numpy())


@pytest.mark.parametrize("encoded", [photo(), photo(1, (9, 31), "JPEG"), photo(2, (16, 16), "PNG", "L")])
def test_an_image_is_prepared_as_prediction_does(loaded, encoded) -> None:
    expected = loaded.predictor.prepare(from_objects(encoded)[0])
    found = prepare(loaded, encoded)
    assert np.array_equal(found.pixels, expected.pixels)
    assert found.seen.shape == (16, 16, 3)


def test_predictions_are_those_of_the_predictor(folder, loaded, image) -> None:
    predictor = Predictor(folder, backend="torch")
    [expected], logits = predictor(photo(), top_k=2), predictor.logits(photo())[0]
    outputs = [rows[0] for rows in loaded.run(image.pixels[None])]
    found = json.loads(json.dumps(answer(loaded, "predictions", {"top_k": 2, "logits": True}, *outputs, 4)))
    assert [(one["label"], one["probability"]) for one in found["top"]] == expected
    assert np.array_equal(np.array(found["logits"], dtype=np.float32), logits)
    assert [np.float32(one["logit"]) for one in found["top"]] == [logits[one["index"]] for one in found["top"]]
    assert (found["frames"], found["generation"]) == (4, 7)
    assert "logits" not in answer(loaded, "predictions", {}, *outputs, 1)


def test_embeddings_are_those_of_the_predictor(folder, loaded, image) -> None:
    outputs = [rows[0] for rows in loaded.run(image.pixels[None])]
    found = answer(loaded, "embeddings", {}, *outputs, 1)["features"]
    assert np.array_equal(np.array(found, dtype=np.float32), Predictor(folder, backend="torch").embed(photo())[0])


def test_an_inspection_is_what_inspect_gives(loaded, image, living, tensor) -> None:
    found = asked(loaded, "inspections", image, top_k=2)
    assert same(found["rollout"], inspection.attention_rollout(living, tensor)[0])
    assert same(found["maps"], inspection.reading_maps(living, tensor)[:, 0])
    assert same(found["distance"], inspection.attention_distance(living, tensor))
    lens = inspection.logit_lens(living, tensor)[:, 0].double()
    assert [row["layer"] for row in found["lens"]] == [0, 1, 2]
    for row, logits in zip(found["lens"], lens, strict=True):
        best = logits.argsort(descending=True)[:2].tolist()
        assert [one["index"] for one in row["top"]] == best
        chances = logits.softmax(0)
        assert [one["probability"] for one in row["top"]] == pytest.approx(chances[best].tolist(), abs=1e-12)
        assert set(row["top"][0]) == {"index", "label", "probability"}
    with torch.no_grad():
        logits = living(tensor)[0]
    assert [np.float32(one["logit"]) for one in found["top"]] == sorted(logits.numpy(), reverse=True)[:2]
    assert {one["label"] for one in found["top"]} < set(LABELS)
    assert found["generation"] == 7


def test_what_was_seen_is_the_fitted_image(loaded, image) -> None:
    found = asked(loaded, "inspections", image, parts=["seen"])
    assert set(found) == {"seen", "top", "frames", "generation"}
    kind, _, text = found["seen"]["png"].partition(",")
    assert kind == "data:image/png;base64"
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(base64.b64decode(text)))), image.seen)
    assert (found["seen"]["height"], found["seen"]["width"]) == (16, 16)


@pytest.mark.parametrize("layer", [0, 1])
def test_attention_is_what_inspect_gives(loaded, image, living, tensor, layer) -> None:
    reply = look(loaded, "attention", {"layer": layer}, image)
    assert (reply.content_type, reply.headers) == (
        "application/octet-stream",
        {"X-Shape": "2,17,17", "X-Generation": "7"},
    )
    found = np.frombuffer(reply.body, "<f4").reshape(2, 17, 17)
    assert np.array_equal(found, inspection.attention_maps(living, tensor, [layer])[0, 0].numpy())
    for query in (0, 5, 16):
        one = look(loaded, "attention", {"layer": layer, "query": query}, image)
        assert one.headers["X-Shape"] == "2,17"
        assert np.abs(np.frombuffer(one.body, "<f4").reshape(2, 17) - found[:, query]).max() < 1e-6


def test_attention_that_is_too_large_is_refused_before_it_is_computed(loaded, image, monkeypatch) -> None:
    monkeypatch.setattr("vitrail.serving.looks.arrays.MOST_BYTES", 2 * 17 * 17 * 4 - 1)
    with pytest.raises(UsageError, match="query=0"):
        look(loaded, "attention", {"layer": 0}, image)
    assert look(loaded, "attention", {"layer": 0, "query": 3}, image).status == 200


def test_covered_patches_are_the_mean_colour(loaded, image, living, tensor) -> None:
    covered = tensor.clone()
    covered[:, :, 0:4, 12:16] = 0  # patch 3 of four a row
    covered[:, :, 4:8, 4:8] = 0  # patch 5
    with torch.no_grad():
        expected = living(covered)[0]
    found = asked(loaded, "occlusions", image, patches=[5, 3, 5], top_k=3)
    assert found["covered"] == [3, 5]
    assert [np.float32(one["logit"]) for one in found["top"]] == sorted(expected.numpy(), reverse=True)
    assert asked(loaded, "occlusions", image)["top"] != found["top"]
    assert np.array_equal(image.pixels, tensor[0].numpy()), "the image itself stays as it was"


def test_positions_and_filters_are_what_inspect_gives(loaded, living) -> None:
    reply = look(loaded, "positions", {})
    assert reply.headers["X-Shape"] == "4,4,4,4"
    expected = inspection.position_similarity(living).numpy()
    assert np.array_equal(np.frombuffer(reply.body, "<f4").reshape(4, 4, 4, 4), expected)
    for count in (3, 28):
        found, filters = asked(loaded, "filters", components=count), inspection.principal_filters(living, count)
        assert same(found["components"], filters.components)
        assert same(found["shares"], filters.shares)
        assert (found["layer"], found["count"]) == (filters.layer, filters.count)


@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        ("attention", {}, "layer is None"),
        ("attention", {"layer": 2}, "from 0 to 1"),
        ("attention", {"layer": 0, "query": 17}, "from 0 to 16"),
        ("attention", {"layer": True}, "layer"),
        ("occlusions", {"patches": [16]}, "from 0 to 15"),
        ("occlusions", {"patches": ["1"]}, "patch '1'"),
        ("inspections", {"parts": ["rolout"]}, "Did you mean 'rollout'"),
        ("inspections", {"parts": []}, "the parts are"),
        ("inspections", {"top_k": 0}, "top_k"),
        ("filters", {"components": 0}, "components"),
        ("dreams", {}, "question"),
    ],
)
def test_options_that_cannot_be(loaded, image, kind, options, reason) -> None:
    with pytest.raises(UsageError, match=reason):
        look(loaded, kind, options, image)


def test_the_facts_of_a_transformer(loaded) -> None:
    expected = {
        "name": "pets",
        "generation": 7,
        "network": "ViT, 2 layers, width 16, patches of 4x4",
        "kind": "vit",
        "labels": list(LABELS),
        "num_classes": 3,
        "channels": 3,
        "image_size": [16, 16],
        "patch_size": [4, 4],
        "grid": [4, 4],
        "tokens": 17,
        "prefix_tokens": 1,
        "class_token": True,
        "registers": 0,
        "width": 16,
        "depth": 2,
        "num_heads": 2,
        "head_dim": 8,
        "mlp_width": 64,
        "pool": "token",
        "loss": "softmax",
        "limits": {"bytes": 20 * 2**20, "pixels": 50_000_000, "seconds": 5.0},
    }
    assert expected.items() <= loaded.facts.items()
    assert all(loaded.facts["can"].values())
    assert loaded.facts["preprocessing"]["interpolation"] == "bilinear"
    assert loaded.network.parameters() == sum(parameter.numel() for parameter in network().parameters())


def test_what_reads_the_image_before_it_is_cut_is_told(tmp_path, loaded) -> None:
    stem = ConvStemConfig(layers=(ConvLayerConfig(channels=8), ConvLayerConfig(channels=12)))
    folder = model_folder(tmp_path / "stem", patch_size=1, backbone=stem)
    facts = load(ServeConfig(source=str(folder), backend="torch")).facts
    assert facts["network"].startswith("ViT behind 2 convolutions, 2 layers")
    assert facts["stem"] == {"convolutions": 2, "map": [4, 4, 12], "patch_size": [1, 1]}
    assert (facts["kind"], facts["patch_size"], facts["grid"]) == ("vit", [4, 4], [4, 4])
    assert loaded.facts["stem"] is None


def test_a_named_network_has_its_name_and_size(tmp_path) -> None:
    model = vitrail.create_model("vit-test")
    model.preprocessing = network().preprocessing
    vitrail.save_model(model, tmp_path / "runs" / "model")
    facts = load(ServeConfig(source=str(tmp_path / "runs" / "model"), backend="torch")).facts
    assert (facts["network"], facts["parameters"], facts["name"]) == ("ViT for tests", 24_234, "runs")


def test_a_network_without_attention(tmp_path) -> None:
    folder = model_folder(tmp_path / "bit", key="bit-r50x1", blocks=(1, 1, 1, 1), width=32, image_size=40)
    bit = load(ServeConfig(source=str(folder), backend="torch"))
    image = prepare(bit, photo())
    assert bit.facts["can"] == {
        "predictions": True,
        "embeddings": True,
        "attention": False,
        "rollout": False,
        "lens": False,
        "distance": False,
        "positions": False,
        "filters": True,
        "occlusion": True,
    }
    assert (bit.facts["patch_size"], bit.facts["grid"], bit.facts["depth"]) == (None, [2, 2], None)
    for kind, options in [("attention", {"layer": 0}), ("positions", {}), ("inspections", {"parts": ["lens"]})]:
        with pytest.raises(NotAvailable):
            look(bit, kind, options, image)
    assert len(asked(bit, "inspections", image, parts=["seen"])["top"]) == 3
    covered = image.pixels.copy()
    covered[:, 20:, :20] = 0
    expected = bit.run(covered[None])[0][0]
    assert np.float32(asked(bit, "occlusions", image, patches=[2])["top"][0]["logit"]) == expected.max()


def test_a_network_of_another_package(tmp_path) -> None:
    folder = model_folder(tmp_path / "peer", key="timm:test_efficientnet", image_size=40)
    peer = load(ServeConfig(source=str(folder), backend="torch"))
    can = {name for name, is_so in peer.facts["can"].items() if is_so}
    assert can == {"predictions", "embeddings", "filters", "occlusion"}
    said = ("network", "kind", "grid", "width", "depth", "patch_size")
    assert [peer.facts[name] for name in said] == ["timm:test_efficientnet", "peer", [3, 3], None, None, None]
    assert set(peer.facts) == set(SCHEMAS["Model"]["properties"])
    image = prepare(peer, photo())
    with pytest.raises(NotAvailable):
        look(peer, "attention", {"layer": 0}, image)
    covered = image.pixels.copy()
    covered[:, 14:28, :14] = 0
    expected = peer.run(covered[None])[0][0]
    assert np.float32(asked(peer, "occlusions", image, patches=[3])["top"][0]["logit"]) == expected.max()


def test_a_network_without_classes(tmp_path) -> None:
    bare = load(ServeConfig(source=str(model_folder(tmp_path / "bare", num_classes=0)), backend="torch"))
    image = prepare(bare, photo())
    assert not bare.facts["can"]["predictions"]
    assert bare.facts["can"]["rollout"]
    with pytest.raises(NotAvailable, match="embeddings"):
        answer(bare, "predictions", {}, *[rows[0] for rows in bare.run(image.pixels[None])], 1)
    assert "top" not in asked(bare, "inspections", image, parts=["rollout"])


def test_an_image_that_is_none(loaded) -> None:
    for body, reason in [(b"", "empty"), (b"<html>", "HTML page"), (photo()[:70], "damaged or cut off")]:
        with pytest.raises(DataError, match=reason):
            prepare(loaded, body)


def test_a_network_that_gives_no_numbers_gives_no_answer(tmp_path) -> None:
    broken = network()
    with torch.no_grad():
        broken.head.weight.fill_(float("nan"))
    vitrail.save_model(broken, tmp_path / "broken")
    loaded = load(ServeConfig(source=str(tmp_path / "broken"), backend="torch"))
    with pytest.raises(DataError, match="not finite"):
        loaded.run(prepare(loaded, photo()).pixels[None])


def test_an_exported_file_answers_without_torch(tmp_path) -> None:
    (tmp_path / "photo.png").write_bytes(photo())
    program = f"""
import json, pathlib, sys
from vitrail.config.serve import ServeConfig
from vitrail.serving.looks.answers import answer
from vitrail.serving.looks.loaded import load
from vitrail.serving.looks.look import look
from vitrail.serving.looks.prepare import prepare
from vitrail.serving.looks.reply import NotAvailable
loaded = load(ServeConfig(source={str(EXPORTED[0])!r}))
image = prepare(loaded, pathlib.Path({str(tmp_path / "photo.png")!r}).read_bytes())
found = answer(loaded, "predictions", {{"logits": True}}, *[rows[0] for rows in loaded.run(image.pixels[None])], 1)
seen = json.loads(look(loaded, "inspections", {{"parts": ["seen"]}}, image).body)
covered = json.loads(look(loaded, "occlusions", {{"patches": []}}, image).body)
for kind in ("attention", "positions", "filters"):
    try:
        look(loaded, kind, {{"layer": 0}}, image)
    except NotAvailable:
        continue
    sys.exit(kind)
print(json.dumps([found["logits"], seen["top"], covered["top"], loaded.facts["can"], "torch" in sys.modules]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert not done.returncode, done.stderr
    logits, seen, covered, can, has_torch = json.loads(done.stdout)
    assert np.abs(np.array(logits) - logits_of(0, photo())).max() < 1e-4
    assert seen == covered
    assert [name for name, there in can.items() if there] == ["predictions", "embeddings", "occlusion"]
    assert not has_torch


def test_where_torch_computes_the_network_is_loaded_once(loaded) -> None:
    assert loaded.network() is loaded.predictor.backend.network
