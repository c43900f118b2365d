"""timm, torchvision and Hugging Face: read, compared in float64 and float32, written back bit-equal, loaded by them."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import vitrail
from vitrail.config import ConvLayerConfig, ConvStemConfig, ResNetConfig, VitConfig, preset
from vitrail.errors import DataError, Notice, UsageError

timm = pytest.importorskip("timm")
transformers = pytest.importorskip("transformers")
torchvision = pytest.importorskip("torchvision")

PLAIN = VitConfig(
    width=48, depth=2, num_heads=3, mlp_width=80, patch_size=(4, 4), image_size=(16, 16), num_classes=7, gelu="erf"
)


def randomise(model: nn.Module) -> nn.Module:
    """Nothing zero, so that no tensor can be lost or swapped unseen; small, so that deep networks stay in range."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            scale = 0.5 / max(parameter[0].numel(), 16) ** 0.5 if parameter.ndim > 1 else 0.1
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale + (parameter.ndim == 1) * 0.5)
        for name, buffer in model.named_buffers():
            if "running" in name:
                buffer.uniform_(0.5, 1.5, generator=generator)
    return model.eval()


def save(model: nn.Module, path) -> None:
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, path)


def largest(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours - theirs).abs().max())


def logits(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        out = model(images)
    return getattr(out, "logits", out)


def check_agreement(theirs: nn.Module, ours: nn.Module, size: int, float32: float) -> None:
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))
    assert largest(logits(ours, images), logits(theirs, images)) <= float32
    double = images.double()
    assert largest(logits(ours.double(), double), logits(theirs.double(), double)) <= 1e-6


TIMM = [
    ("vit_tiny_patch16_224", 224, 1e-5),
    ("vit_small_patch32_224", 224, 1e-5),
    pytest.param("vit_base_patch16_224", 224, 1e-5, marks=pytest.mark.slow),
    ("vit_tiny_patch16_384", 384, 1e-5),
    ("deit_tiny_patch16_224", 224, 1e-5),
    ("vit_tiny_r_s16_p8_224", 224, 1e-4),
    pytest.param("vit_small_r26_s32_224", 224, 1e-4, marks=pytest.mark.slow),
    pytest.param("vit_base_r50_s16_224", 224, 1e-4, marks=pytest.mark.slow),
    ("resnetv2_50x1_bit", 97, 1e-4),
]


@pytest.mark.parametrize(("name", "size", "float32"), TIMM)
def test_timm_networks_agree_and_come_back_bit_equal(name, size, float32, tmp_path) -> None:
    theirs = randomise(timm.create_model(name, num_classes=11))
    save(theirs, tmp_path / "theirs.safetensors")
    ours = vitrail.load_model(tmp_path / "theirs.safetensors")
    vitrail.save_model(ours, tmp_path / "back.safetensors", layout="timm")
    check_agreement(theirs, ours, size, float32)
    back, original = load_file(tmp_path / "back.safetensors"), load_file(tmp_path / "theirs.safetensors")
    assert back.keys() == original.keys()
    assert all(torch.equal(back[key], original[key]) for key in original)


def test_timm_without_a_class_row(tmp_path) -> None:
    theirs = randomise(
        timm.models.VisionTransformer(
            img_size=16, patch_size=4, embed_dim=48, depth=2, num_heads=3, num_classes=7, no_embed_class=True
        )
    )
    save(theirs, tmp_path / "x.safetensors")
    ours = vitrail.load_model(tmp_path / "x.safetensors", num_heads=3)
    assert ours.config.position_class_row is False
    check_agreement(theirs, ours, 16, 1e-5)


def test_timm_folder_brings_preprocessing_and_activation(tmp_path) -> None:
    theirs = randomise(timm.create_model("vit_tiny_patch16_224", num_classes=3, act_layer="gelu_tanh", depth=2))
    save(theirs, tmp_path / "model.safetensors")
    settings = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "interpolation": "bilinear", "crop_pct": 0.95}
    config = {
        "architecture": "vit_tiny_patch16_224",
        "model_args": {"act_layer": "gelu_tanh"},
        "pretrained_cfg": settings,
        "label_names": ["one", "둘", "<3>"],
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    ours = vitrail.load_model(tmp_path, num_heads=3)
    assert ours.config.gelu == "tanh"
    assert ours.labels == ("one", "둘", "<3>")
    assert ours.preprocessing.crop == 0.95
    assert ours.preprocessing.mean == (0.1, 0.2, 0.3)
    check_agreement(theirs, ours, 224, 1e-5)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("deit_tiny_distilled_patch16_224", "a distillation token"),
        ("deit3_small_patch16_224", "LayerScale"),
        ("vit_base_patch16_siglip_224", "timm's attention pooling"),
        ("vit_base_patch16_clip_224", "a norm before the blocks"),
    ],
)
def test_timm_parts_that_no_network_here_has_are_named(name, part, tmp_path) -> None:
    with torch.device("meta"):
        theirs = timm.create_model(name, depth=1)
    save(theirs.to_empty(device="cpu"), tmp_path / "x.safetensors")
    with pytest.raises(DataError, match=f"belongs to {part}.*, which no network here has"):
        vitrail.load_model(tmp_path / "x.safetensors")


def tv_vit(**changes) -> nn.Module:
    from torchvision.models.vision_transformer import VisionTransformer

    arguments = {
        "image_size": 32, "patch_size": 8, "num_layers": 2, "num_heads": 4, "hidden_dim": 256, "mlp_dim": 300,
        "num_classes": 5,
    }  # fmt: skip
    return randomise(VisionTransformer(**(arguments | changes)))


def test_torchvision_of_an_unusual_width_agrees_with_a_notice(tmp_path) -> None:
    theirs = tv_vit()
    save(theirs, tmp_path / "x.safetensors")
    with pytest.warns(Notice, match="the number of heads is not recorded; 4 is taken"):
        ours = vitrail.load_model(tmp_path / "x.safetensors")
    check_agreement(theirs, ours, 32, 1e-5)


@pytest.mark.parametrize("changes", [{}, {"representation_size": 9}])
def test_torchvision_comes_back_bit_equal_and_loads_there(changes, tmp_path) -> None:
    theirs = tv_vit(**changes)
    torch.save(theirs.state_dict(), tmp_path / "x.pth")
    ours = vitrail.load_model(tmp_path / "x.pth", num_heads=4)
    vitrail.save_model(ours, tmp_path / "back.safetensors", layout="torchvision")
    back = load_file(tmp_path / "back.safetensors")
    assert back.keys() == theirs.state_dict().keys()
    assert all(torch.equal(back[key], tensor) for key, tensor in theirs.state_dict().items())
    fresh = tv_vit(**changes)
    fresh.load_state_dict(back)
    check_agreement(fresh, ours, 32, 1e-5)


def test_torchvision_convolutional_stem_agrees_and_comes_back(tmp_path) -> None:
    from torchvision.models.vision_transformer import ConvStemConfig as TheirStem

    stem = [TheirStem(out_channels=width, kernel_size=3, stride=2) for width in (8, 16, 24)]
    theirs = tv_vit(conv_stem_configs=stem)
    save(theirs, tmp_path / "x.safetensors")
    ours = vitrail.load_model(tmp_path / "x.safetensors", num_heads=4)
    vitrail.save_model(ours, tmp_path / "back.safetensors", layout="torchvision")
    back = load_file(tmp_path / "back.safetensors")
    assert all(torch.equal(back[key], tensor) for key, tensor in theirs.state_dict().items())
    check_agreement(theirs, ours, 32, 1e-5)


def test_old_torchvision_names_are_read(tmp_path) -> None:
    theirs = tv_vit()
    state = {
        name.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2."): tensor
        for name, tensor in theirs.state_dict().items()
    }
    torch.save({"model": {f"module.{name}": tensor for name, tensor in state.items()}, "epoch": 3}, tmp_path / "x.pth")
    check_agreement(theirs, vitrail.load_model(tmp_path / "x.pth", num_heads=4), 32, 1e-5)


def hf_vit(**changes):
    from transformers import ViTConfig, ViTForImageClassification

    arguments = {
        "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 80,
        "image_size": 16, "patch_size": 4, "num_labels": 7,
    }  # fmt: skip
    return randomise(ViTForImageClassification(ViTConfig(**(arguments | changes))))


@pytest.mark.parametrize("activation", ["gelu", "gelu_pytorch_tanh"])
def test_hugging_face_folder_agrees(activation, tmp_path) -> None:
    theirs = hf_vit(hidden_act=activation, layer_norm_eps=1e-3)
    theirs.save_pretrained(tmp_path)
    ours = vitrail.load_model(tmp_path)
    assert ours.config.layer_norm_epsilon == 1e-3
    check_agreement(theirs, ours, 16, 1e-5)


def test_hugging_face_names_in_memory_are_read(tmp_path) -> None:
    theirs = hf_vit()
    save(theirs, tmp_path / "memory.safetensors")
    ours = vitrail.load_model(tmp_path / "memory.safetensors", num_heads=3)
    check_agreement(theirs, ours, 16, 1e-5)


def test_hugging_face_network_without_a_head_has_its_pooler_as_pre_logits(tmp_path) -> None:
    from transformers import ViTModel

    theirs = randomise(ViTModel(hf_vit().config))
    theirs.save_pretrained(tmp_path)
    ours = vitrail.load_model(tmp_path)
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        out = theirs(images)
        torch.testing.assert_close(ours(images), out.pooler_output, rtol=0, atol=1e-5)
        torch.testing.assert_close(ours.tokens(images), out.last_hidden_state, rtol=0, atol=1e-5)


def test_hugging_face_labels_and_preprocessing_travel(tmp_path) -> None:
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    ours = randomise(vitrail.create_model(dataclasses.replace(PLAIN, gelu="tanh", layer_norm_epsilon=1e-5)))
    ours.labels = ("고양이", "dog", "<b>", "d", "e", "f", "g")
    ours.preprocessing = dataclasses.replace(preset("imagenet"), crop=None)
    vitrail.save_model(ours, tmp_path / "hf", layout="huggingface")
    theirs = AutoModelForImageClassification.from_pretrained(tmp_path / "hf").eval()
    assert [theirs.config.id2label[index] for index in range(7)] == list(ours.labels)
    assert tuple(AutoImageProcessor.from_pretrained(tmp_path / "hf").image_mean) == (0.485, 0.456, 0.406)
    check_agreement(theirs, vitrail.load_model(tmp_path / "hf"), 16, 1e-5)
    loaded = vitrail.load_model(tmp_path / "hf")
    assert (loaded.labels, loaded.preprocessing, loaded.config) == (ours.labels, ours.preprocessing, ours.config)


def test_around_the_world_is_bit_equal(fixtures, tmp_path) -> None:
    """npz to timm to Hugging Face to torchvision to npz, names included; numerics ride along in the metadata."""
    source = fixtures / "vit_token" / "params.npz"
    model = vitrail.load_model(source)
    for step, (layout, name) in enumerate(
        [("timm", "a.safetensors"), ("huggingface", "b"), ("torchvision", "c.safetensors"), ("google", "d.npz")]
    ):
        told = {"timm": "does not record gelu", "torchvision": "does not record gelu", "huggingface": "smooth images"}
        if layout in told:
            with pytest.warns(Notice, match=told[layout]):
                vitrail.save_model(model, tmp_path / name, layout=layout)
        else:
            vitrail.save_model(model, tmp_path / name, layout=layout)
        model = vitrail.load_model(tmp_path / name)
        assert model.config.gelu == "tanh", step
    with np.load(source) as before, np.load(tmp_path / "d.npz") as after:
        assert set(before.files) == set(after.files)
        assert all(np.array_equal(before[name], after[name]) for name in before.files)


def test_each_written_file_loads_in_its_own_library(tmp_path) -> None:
    ours = randomise(vitrail.create_model(PLAIN))
    vitrail.save_model(ours, tmp_path / "timm.safetensors", layout="timm")
    theirs = timm.models.VisionTransformer(
        img_size=16, patch_size=4, embed_dim=48, depth=2, num_heads=3, mlp_ratio=80 / 48, num_classes=7
    ).eval()
    theirs.load_state_dict(load_file(tmp_path / "timm.safetensors"))
    images = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(logits(theirs, images), logits(ours, images), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("layout", "changes", "part"),
    [
        ("timm", {"pool": "map"}, "attention pooling"),
        ("timm", {"pool": "mean"}, "mean pooling"),
        ("timm", {"pre_logits": 8}, "a pre_logits layer"),
        ("timm", {"registers": 2}, "register tokens"),
        ("torchvision", {"position_class_row": False}, "positions without a row"),
        ("torchvision", {"backbone": ResNetConfig(blocks=(1,), width=32), "image_size": (64, 64)}, "a ResNet backbone"),
        ("huggingface", {"pre_logits": 8}, "a pre_logits layer"),
        ("huggingface", {"position": "learned_2d"}, "the position embedding 'learned_2d'"),
        (
            "timm",
            {"backbone": ConvStemConfig(layers=(ConvLayerConfig(channels=8),)), "image_size": (32, 32)},
            "a convolutional stem",
        ),
    ],
)
def test_what_a_layout_cannot_hold_is_refused_by_name(layout, changes, part, tmp_path) -> None:
    model = vitrail.create_model(dataclasses.replace(PLAIN, **changes))
    target = tmp_path / ("x" if layout == "huggingface" else "x.safetensors")
    with pytest.raises(UsageError, match=f"the {layout} layout cannot hold {part}"):
        vitrail.save_model(model, target, layout=layout)
    assert not target.exists()


@pytest.mark.parametrize(
    ("layout", "name"), [("timm", "x"), ("torchvision", "x.npz"), ("huggingface", "x.safetensors")]
)
def test_a_target_that_does_not_fit_its_layout_is_refused(layout, name, tmp_path) -> None:
    with pytest.raises(UsageError, match=f"the {layout} layout cannot be written to"):
        vitrail.save_model(vitrail.create_model(PLAIN), tmp_path / name, layout=layout)


def test_heads_that_cannot_be_guessed_are_asked_for(tmp_path) -> None:
    vitrail.save_model(vitrail.create_model(PLAIN), tmp_path / "x.safetensors", layout="timm")
    save_file(load_file(tmp_path / "x.safetensors"), tmp_path / "bare.safetensors")
    with pytest.raises(DataError, match=r"a width of 48 is no multiple of 64\. Say it with num_heads=\."):
        vitrail.load_model(tmp_path / "bare.safetensors")
    assert vitrail.load_model(tmp_path / "bare.safetensors", num_heads=3).config.num_heads == 3


def test_a_bare_library_file_has_no_preprocessing_until_told(tmp_path) -> None:
    vitrail.save_model(vitrail.create_model(PLAIN), tmp_path / "x.safetensors", layout="timm")
    save_file(load_file(tmp_path / "x.safetensors"), tmp_path / "bare.safetensors")
    assert vitrail.load_model(tmp_path / "bare.safetensors", num_heads=3).preprocessing is None
    told = vitrail.load_model(tmp_path / "bare.safetensors", num_heads=3, preprocessing="augreg")
    assert told.preprocessing == preset("augreg")


def test_a_torch_file_with_code_is_refused_unread(tmp_path) -> None:
    import os

    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    torch.save({"state_dict": Bomb()}, tmp_path / "bomb.pth")
    with pytest.raises(DataError, match="holds Python objects beside tensors, which are never loaded"):
        vitrail.load_model(tmp_path / "bomb.pth")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("blob", [b"", b"hello", b"PK\x03\x04broken"])
def test_a_torch_file_that_is_none(blob, tmp_path) -> None:
    (tmp_path / "x.pth").write_bytes(blob)
    with pytest.raises(DataError, match=r"x\.pth: (is not a complete torch file|holds)"):
        vitrail.load_model(tmp_path / "x.pth")


def test_resize_modes_are_each_librarys_own() -> None:
    from timm.layers import resample_abs_pos_embed
    from torchvision.models.vision_transformer import interpolate_embeddings
    from transformers.models.vit.modeling_vit import ViTEmbeddings

    table = torch.randn(1, 197, 24)
    for side in (24, 7):
        wanted = {
            "timm": resample_abs_pos_embed(table, [side, side], [14, 14]),
            "torchvision": interpolate_embeddings(side * 16, 16, {"encoder.pos_embedding": table.clone()})[
                "encoder.pos_embedding"
            ],
        }
        embeddings = ViTEmbeddings(transformers.ViTConfig(hidden_size=24, num_attention_heads=1))
        embeddings.position_embeddings.data = table
        wanted["huggingface"] = embeddings.interpolate_pos_encoding(
            torch.zeros(1, side * side + 1, 24), side * 16, side * 16
        ).detach()
        for mode, theirs in wanted.items():
            ours = vitrail.weights.resize_positions(table, 14, side, mode=mode)
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("mode", ["timm", "torchvision", "huggingface"])
def test_loading_at_another_size_uses_the_named_mode(mode, tmp_path) -> None:
    model = randomise(vitrail.create_model(PLAIN))
    vitrail.save_model(model, tmp_path / "x")
    larger = vitrail.load_model(tmp_path / "x", image_size=24, resize=mode)
    wanted = vitrail.weights.resize_positions(model.positions[0].table, 4, 6, mode=mode)
    assert torch.equal(larger.positions[0].table, wanted)


def timm_folder(tmp_path, config: dict) -> None:
    theirs = randomise(timm.create_model("vit_tiny_patch16_224", num_classes=3, depth=1))
    save(theirs, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "vit_tiny_patch16_224", **config}))


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"global_pool": "avg"}, "the config records the pooling 'avg'; wanted 'token'"),
        ({"model_args": {"block_fn": "ResPostBlock"}}, "blocks of another kind"),
        ({"model_args": {"act_layer": []}}, "the activation is"),
        ({"model_args": {"num_heads": "x"}}, "wanted a number"),
        ({"model_args": {"img_size": {}}}, "the image size in config.json is"),
        ({"pretrained_cfg": {"mean": 0.5, "std": [1, 1, 1], "interpolation": "bicubic"}}, "wanted a list"),
        ({"pretrained_cfg": {"mean": [0], "std": [0], "interpolation": "bicubic"}}, "std is"),
        (
            {"pretrained_cfg": {"mean": [0], "std": [1], "interpolation": "bicubic", "crop_pct": "a"}},
            "wanted a value of type float",
        ),
    ],
)
def test_a_timm_config_that_makes_no_sense_is_one_sentence(config, told, tmp_path) -> None:
    timm_folder(tmp_path, config)
    with pytest.raises(DataError) as caught:
        vitrail.load_model(tmp_path, num_heads=None if "num_heads" in str(config) else 3)
    assert told in str(caught.value)


def test_heads_and_rectangles_that_a_timm_config_records_are_used(tmp_path) -> None:
    theirs = randomise(
        timm.models.VisionTransformer(
            img_size=(16, 64), patch_size=8, embed_dim=64, depth=2, num_heads=4, num_classes=3, dynamic_img_size=False
        )
    )
    save(theirs, tmp_path / "model.safetensors")
    config = {"architecture": "x", "model_args": {"img_size": [16, 64], "num_heads": 4}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    ours = vitrail.load_model(tmp_path)
    assert (ours.config.image_size, ours.config.num_heads) == ((16, 64), 4)
    images = torch.randn(1, 3, 16, 64)
    torch.testing.assert_close(logits(ours, images), logits(theirs, images), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"num_attention_heads": "x"}, "wanted a number"),
        ({"hidden_act": []}, "the activation is"),
        ({"layer_norm_eps": "a"}, "layer_norm_eps in config.json is 'a'; wanted a number"),
        ({"hidden_dropout_prob": None}, "hidden_dropout_prob in config.json is None; wanted a number"),
        ({"image_size": {}}, "the image size in config.json is {}"),
    ],
)
def test_a_hugging_face_config_that_makes_no_sense_is_one_sentence(change, told, tmp_path) -> None:
    hf_vit().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(DataError) as caught:
        vitrail.load_model(tmp_path)
    assert told in str(caught.value)


def test_a_pooler_that_the_classifier_does_not_read_is_left_aside(tmp_path) -> None:
    theirs = hf_vit()
    theirs.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors |= {"vit.pooler.dense.weight": torch.randn(48, 48), "vit.pooler.dense.bias": torch.randn(48)}
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.warns(Notice, match="the pooler is left aside"):
        ours = vitrail.load_model(tmp_path)
    check_agreement(theirs, ours, 16, 1e-5)
