import dataclasses

import pytest
import torch
from torch import nn

import vitrail
from vitrail.config import Preprocessing, VitConfig
from vitrail.errors import DataError, Notice, UsageError
from vitrail.models import VisionTransformer
from vitrail.weights import resize_positions

CONFIG = VitConfig(width=24, depth=2, num_heads=3, mlp_width=40, patch_size=(4, 4), image_size=(16, 16), num_classes=3)


def random_model(**changes) -> VisionTransformer:
    model = VisionTransformer(dataclasses.replace(CONFIG, **changes)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


@pytest.fixture
def npz(tmp_path):
    path = tmp_path / "model.npz"
    vitrail.save_model(random_model(pre_logits=24), path, layout="google")
    return path


def test_another_image_size_resamples_the_grid_and_keeps_the_class_row(npz) -> None:
    small, large = vitrail.load_model(npz), vitrail.load_model(npz, image_size=(24, 32))
    wanted = resize_positions(small.positions[0].table, (4, 4), (6, 8))
    assert torch.equal(large.positions[0].table, wanted)
    assert torch.equal(large.positions[0].table[0], small.positions[0].table[0])
    assert large(torch.randn(1, 3, 24, 32)).shape == (1, 3)


def test_an_equal_token_count_on_another_grid_is_resampled(npz) -> None:
    """14x14 to 7x28 keeps the count; others keep the table too, silently."""
    square, flat = vitrail.load_model(npz), vitrail.load_model(npz, image_size=(8, 32))
    assert square.positions[0].table.shape == flat.positions[0].table.shape
    assert not torch.equal(square.positions[0].table, flat.positions[0].table)


def test_pixels_over_are_dropped_with_one_notice(npz) -> None:
    with pytest.warns(Notice, match="reads its first 20x20 pixels") as told:
        model = vitrail.load_model(npz, image_size=23)
    assert len(told) == 1
    assert model(torch.randn(1, 3, 23, 23)).shape == (1, 3)


def test_smaller_than_a_patch_is_an_error(npz) -> None:
    with pytest.raises(UsageError, match="an image of 3x3 pixels is smaller than a 4x4 patch"):
        vitrail.load_model(npz, image_size=3)


def test_another_number_of_classes_gives_a_zero_linear_head_without_pre_logits(npz) -> None:
    model = vitrail.load_model(npz, num_classes=5)
    assert model.pre_logits is None
    assert model.labels is None
    assert torch.equal(model(torch.randn(2, 3, 16, 16)), torch.zeros(2, 5))


def test_an_equal_number_of_classes_keeps_the_head(npz) -> None:
    model = vitrail.load_model(npz, num_classes=3)
    assert model.pre_logits is not None
    assert model.head.weight.any()


def test_a_rectangular_table_needs_its_size(tmp_path) -> None:
    path = tmp_path / "flat.npz"
    model = random_model(image_size=(8, 16))
    vitrail.save_model(model, path, layout="google")
    with pytest.raises(DataError, match=r"8 rows for patches, which make no square\. Say which .*source_image_size="):
        vitrail.load_model(path)
    images = torch.randn(1, 3, 8, 16)
    assert torch.equal(vitrail.load_model(path, image_size=(8, 16))(images), model(images))
    assert torch.equal(vitrail.load_model(path, source_image_size=(8, 16))(images), model(images))
    with pytest.raises(DataError, match="image_size 12x12 gives a 3x3 grid of 9 patches; wanted the 8"):
        vitrail.load_model(path, image_size=12)
    resized = vitrail.load_model(path, image_size=12, source_image_size=(8, 16))
    assert torch.equal(resized.positions[0].table, resize_positions(model.positions[0].table, (2, 4), (3, 3)))


def test_source_image_size_overrides_the_square(tmp_path) -> None:
    path = tmp_path / "flat.npz"
    model = random_model(image_size=(8, 32))
    vitrail.save_model(model, path, layout="google")
    images = torch.randn(1, 3, 8, 32)
    loaded = vitrail.load_model(path, source_image_size=(8, 32))
    assert loaded.config.grid == (2, 8)
    assert torch.equal(loaded(images), model(images))


def test_our_folder_remembers_a_rectangular_grid_labels_metrics_and_preprocessing(tmp_path) -> None:
    model = random_model(image_size=(8, 16), dropout=0.1, gelu="erf", layer_norm_epsilon=1e-12)
    model.labels = ("가위", "<script>", "../../etc/passwd")
    model.preprocessing = Preprocessing(mean=(0.1,) * 3, std=(0.2,) * 3, interpolation="bicubic", crop=0.875)
    model.metrics = {"top1": 0.5}
    model.provenance = {"source": "test"}
    vitrail.save_model(model, tmp_path / "ours")
    loaded = vitrail.load_model(tmp_path / "ours")
    for name in ("config", "labels", "preprocessing", "metrics", "provenance"):
        assert getattr(loaded, name) == getattr(model, name)
    images = torch.randn(1, 3, 8, 16)
    assert torch.equal(loaded(images), model(images))
    lone = vitrail.load_model(tmp_path / "ours" / "model.safetensors")
    assert (lone.config, lone.labels) == (model.config, model.labels)


def test_overrides_and_preprocessing_are_applied_or_refused(npz) -> None:
    model = vitrail.load_model(npz, dropout=0.2, preprocessing="imagenet")
    assert model.config.dropout == model.blocks[0].dropout.p == 0.2
    assert model.preprocessing.mean == (0.485, 0.456, 0.406)
    values = {"mean": [0.5], "std": [0.25], "interpolation": "bilinear"}
    assert vitrail.load_model(npz, preprocessing=values).preprocessing.std == (0.25,)
    with pytest.raises(UsageError, match=r"Unknown preprocessing preset 'imagenot'\. Did you mean 'imagenet'"):
        vitrail.load_model(npz, preprocessing="imagenot")
    with pytest.raises(UsageError, match=r"Unknown model field 'dropot'\. Did you mean 'dropout'"):
        vitrail.load_model(npz, dropot=0.2)
    with pytest.raises(DataError, match=r"Unknown field 'men'\. Did you mean 'mean'"):
        vitrail.load_model(npz, preprocessing={**values, "men": 1})


def test_an_override_that_does_not_fit_the_weights_names_the_tensor(npz) -> None:
    with pytest.raises(DataError, match=r"'blocks.0.mlp.expand.weight' has shape \(40, 24\); wanted \(41, 24\)"):
        vitrail.load_model(npz, mlp_width=41)


def test_loaded_models_are_in_eval_mode_and_trainable(npz) -> None:
    model = vitrail.load_model(npz)
    assert not model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_sincos_positions_follow_the_grid(tmp_path) -> None:
    vitrail.save_model(random_model(position="sincos_2d"), tmp_path / "ours")
    resized = vitrail.load_model(tmp_path / "ours", image_size=24)
    fresh = vitrail.create_model(resized.config)
    assert torch.equal(resized.positions[0](), fresh.positions[0]())


def test_saving_over_a_model_keeps_other_files_and_never_takes_a_strangers_folder(tmp_path) -> None:
    target = tmp_path / "ours"
    vitrail.save_model(random_model(), target)
    (target / "notes.md").write_text("mine")
    second = random_model()
    vitrail.save_model(second, target)
    assert (target / "notes.md").read_text() == "mine"
    assert torch.equal(vitrail.load_model(target).head.weight, second.head.weight)
    stranger = tmp_path / "photos"
    stranger.mkdir()
    (stranger / "cat.jpg").write_bytes(b"meow")
    with pytest.raises(UsageError, match="is there already and is not a model folder"):
        vitrail.save_model(second, stranger)
    assert [file.name for file in stranger.iterdir()] == ["cat.jpg"]
