"""A file is kept only when it says what torch says."""

import resource

import numpy as np
import pytest
import torch
from tests.exporting.conftest import FILES, lively, prepared_for
from tests.exporting.networks import NETWORKS

import vitrail
from vitrail.data import Arrays, Labels
from vitrail.errors import DataError, DiskError, UsageError
from vitrail.exporting import open_exported, write
from vitrail.exporting.samples import gather_samples
from vitrail.exporting.weights_hash import weights_hash
from vitrail.exporting.write import export_model


class Broken(torch.nn.Module):
    """What an exporter's mistake looks like from outside."""

    def __init__(self, network, change) -> None:
        super().__init__()
        self.network, self.model, self.change = network, network.model, change

    def forward(self, images):
        logits, features = self.network(images)
        return self.change(logits), features


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda logits: logits + 0.01, r"differ from torch's by up to 0\.01.*wanted at most 1\.\de-04"),
        (lambda logits: logits * float("nan"), "differ from torch's by up to nan"),
        (lambda logits: logits[:, :9], "its logits are"),
    ],
)
def test_one_that_disagrees_is_deleted(toy, tmp_path, monkeypatch, change, match) -> None:
    made = write.exportable
    monkeypatch.setattr(write, "exportable", lambda *words, **options: Broken(made(*words, **options), change))
    with pytest.raises(DataError, match=match):
        export_model(toy, tmp_path / "exports" / "model.pt2", "torch", *prepared_for(toy))
    assert list(tmp_path.iterdir()) == []


def test_the_old_file_stays_when_the_new_one_disagrees(toy, tmp_path, monkeypatch) -> None:
    (tmp_path / "model.pt2").write_text("old")
    made = write.exportable
    monkeypatch.setattr(write, "exportable", lambda *a, **o: Broken(made(*a, **o), lambda logits: -logits))
    with pytest.raises(DataError):
        export_model(toy, tmp_path / "model.pt2", "torch", *prepared_for(toy), overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt2"]
    assert (tmp_path / "model.pt2").read_text() == "old"


def test_places_it_cannot_take(toy, tmp_path) -> None:
    samples = prepared_for(toy)
    (tmp_path / "model.bin").write_text("of somebody")
    with pytest.raises(UsageError, match=r"model\.bin: is there already.*overwrite"):
        export_model(toy, tmp_path / "model.xml", "openvino", *samples)
    with pytest.raises(UsageError, match=r"ends in '\.onnx'; wanted \.pt2 for torch"):
        export_model(toy, tmp_path / "model.onnx", "torch", *samples)
    with pytest.raises(UsageError, match="Did you mean 'onnx'"):
        export_model(toy, tmp_path / "model.onnx", "onxx", *samples)
    (tmp_path / "folder.pt2").mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        export_model(toy, tmp_path / "folder.pt2", "torch", *samples, overwrite=True)
    with pytest.raises(DiskError, match="could not be written"):
        export_model(toy, tmp_path / "model.bin" / "model.pt2", "torch", *samples)
    assert (tmp_path / "model.bin").read_text() == "of somebody"


def test_both_accuracies(toy, tmp_path) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (80, 40, 40, 3), dtype=np.uint8)
    source = Arrays("mine", "test", toy.labels, Labels.of([7] * 80, 10), pixels)
    samples = gather_samples(toy, source, labelled=True, count=64)
    found = export_model(toy, tmp_path / "model.pt2", "torch", prepared_for(toy)[0], samples)
    assert (found.count, found.labelled) == (64, 64)
    images = samples.prepared(prepared_for(toy)[0], 64)
    with torch.inference_mode():
        assert found.right_torch == found.right_exported == int((toy(images).argmax(1) == 7).sum())
    assert found.images == "64 test images of mine"


@pytest.mark.filterwarnings("ignore::vitrail.errors.Notice")
def test_few_images_are_filled_up_with_photographs(toy) -> None:
    source = Arrays("mine", "test", ("other",), Labels.of([0] * 5, 1), np.zeros((5, 40, 40, 3), np.uint8))
    samples = gather_samples(toy, source, labelled=True)
    assert samples.about == "5 test images of mine and 59 crops of the two photographs that scikit-learn carries"
    assert samples.targets is None, "the model does not know this class"
    images = samples.prepared(prepared_for(toy)[0], 64)
    assert len(images) == 64
    assert len(np.unique(images[5:].numpy(), axis=0)) == 59


@pytest.mark.filterwarnings("ignore::vitrail.errors.Notice")
def test_any_size_of_patches_of_sixteen(tmp_path) -> None:
    model = lively(vitrail.create_model("vit-test", patch_size=16, image_size=224))
    vitrail.save_model(model, tmp_path / "model")
    export_model(model, tmp_path / "model.onnx", "onnx", *prepared_for(model), any_size=True)
    exported = open_exported(tmp_path / "model.onnx")
    assert exported.any_size
    for size in ((224, 224), (384, 384), (224, 448), (230, 250)):
        images = torch.randn(2, 3, *size)
        with torch.inference_mode():
            expected = vitrail.load_model(tmp_path / "model", image_size=size)(images).numpy()
        np.testing.assert_allclose(exported.run(images.numpy())[0], expected, atol=1e-5)
    with pytest.raises(UsageError, match="8x300 pixels; wanted at least 16x16"):
        exported.run(np.zeros((1, 3, 8, 300), np.float32))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::vitrail.errors.Notice")
@pytest.mark.parametrize("any_size", [False, True])
@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_as_every_kind(tmp_path, name, kind, any_size) -> None:
    model = NETWORKS[name]()
    found = export_model(model, tmp_path / FILES[kind], kind, *prepared_for(model), any_size=any_size)
    assert found.same_top1 == 64
    assert len(found.sizes) == (3 if any_size else 1)


def test_a_bit_with_zeros_around_its_pooling(tmp_path) -> None:
    """onnxruntime would join padding and pooling, and pad with minus infinity."""
    model = NETWORKS["bit"]()
    assert export_model(model, tmp_path / "model.onnx", "onnx", *prepared_for(model)).difference < 1e-4


def test_weights_that_are_no_numbers(tmp_path) -> None:
    model = lively(vitrail.create_model("vit-test"))
    with torch.no_grad():
        model.head.weight[0, 0] = float("nan")
    with pytest.raises(DataError, match=r"not finite\. Its weights are damaged"):
        export_model(model, tmp_path / "model.pt2", "torch", *prepared_for(model))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_and_not_the_end_of_the_process(toy, tmp_path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(DiskError, match="could not be written"):
            export_model(toy, tmp_path / "model.pt2", "torch", *prepared_for(toy))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_a_hash_of_weights_whatever_the_image_size(toy, tmp_path) -> None:
    vitrail.save_model(toy, tmp_path / "model")
    states = [vitrail.load_model(tmp_path / "model", image_size=size).state_dict() for size in (32, 48)]
    assert weights_hash(states[0]) == weights_hash(states[1])
    states[1]["head.bias"][0] += 1
    assert weights_hash(states[0]) != weights_hash(states[1])
