import dataclasses
import itertools

import numpy as np
import pytest
import torch
from torch import nn

import vitrail
from vitrail.config import ResNetConfig, VitConfig, to_json
from vitrail.errors import DataError, Notice, UsageError
from vitrail.models import VisionTransformer
from vitrail.weights.google_names import GoogleStyle

CONFIG = VitConfig(width=24, depth=3, num_heads=3, mlp_width=40, patch_size=(4, 2), image_size=(16, 8), num_classes=7)


def random_model(style: GoogleStyle | None = None, **changes) -> VisionTransformer:
    model = VisionTransformer(dataclasses.replace(CONFIG, **changes)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    if style is not None:
        model.provenance = {"layout": "google", "style": to_json(style)}
    return model


def arrays(path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def assert_equal_files(first, second) -> None:
    one, two = arrays(first), arrays(second)
    assert set(one) == set(two)
    for name in one:
        assert one[name].dtype == two[name].dtype == np.float32
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)


ORIGINAL = [
    (GoogleStyle(prefix=prefix, numbering=numbering), changes)
    for prefix, numbering, changes in itertools.product(
        ["", "opt/target/", "params/", "params/img/"],
        ["pre_linen", "linen"],
        [{}, {"pre_logits": 24}, {"pool": "mean"}, {"num_classes": 0}],
    )
]
BIG_VISION = [
    (GoogleStyle(prefix="params/", numbering="linen", scanned=scanned, position="top"), changes)
    for scanned, changes in itertools.product(
        [False, True],
        [
            {"position_class_row": False},
            {"pool": "mean"},
            {"pool": "mean", "position": "sincos_2d"},
            {"position": "sincos_2d", "position_class_row": False},
            {"pool": "mean", "pre_logits": 24},
        ],
    )
]


@pytest.mark.parametrize(("style", "changes"), [*ORIGINAL, *BIG_VISION])
def test_every_layout_comes_back_bit_equal(style, changes, tmp_path) -> None:
    """Their file to ours to theirs, names included, through memory and through a model folder."""
    model = random_model(style, **changes)
    first, folder, second = tmp_path / "first.npz", tmp_path / "ours", tmp_path / "second.npz"
    vitrail.save_model(model, first, layout="google")
    loaded = vitrail.load_model(first, image_size=(16, 8))
    assert to_json(loaded.config) == to_json(model.config)
    images = torch.randn(2, 3, 16, 8)
    assert torch.equal(loaded(images), model(images))
    vitrail.save_model(loaded, folder)
    vitrail.save_model(vitrail.load_model(folder), second, layout="google")
    assert_equal_files(first, second)


@pytest.mark.parametrize("case", ["vit_token", "bv_tok_learn"])
def test_the_originals_own_files_come_back_bit_equal(case, fixtures, tmp_path) -> None:
    source = fixtures / case / "params.npz"
    vitrail.save_model(vitrail.load_model(source), tmp_path / "back.npz", layout="google")
    assert_equal_files(source, tmp_path / "back.npz")


def test_published_names_and_shapes_of_vit_b16(tmp_path) -> None:
    model = vitrail.create_model("vit-b16", depth=2, pre_logits=768, num_classes=11)
    vitrail.save_model(model, tmp_path / "b16.npz", layout="google")
    shapes = {name: array.shape for name, array in arrays(tmp_path / "b16.npz").items()}
    block = "Transformer/encoderblock_1"
    wanted = {
        "cls": (1, 1, 768),
        "embedding/kernel": (16, 16, 3, 768),
        "embedding/bias": (768,),
        "Transformer/posembed_input/pos_embedding": (1, 197, 768),
        f"{block}/LayerNorm_0/scale": (768,),
        f"{block}/MultiHeadDotProductAttention_1/query/kernel": (768, 12, 64),
        f"{block}/MultiHeadDotProductAttention_1/value/bias": (12, 64),
        f"{block}/MultiHeadDotProductAttention_1/out/kernel": (12, 64, 768),
        f"{block}/MultiHeadDotProductAttention_1/out/bias": (768,),
        f"{block}/LayerNorm_2/bias": (768,),
        f"{block}/MlpBlock_3/Dense_0/kernel": (768, 3072),
        f"{block}/MlpBlock_3/Dense_1/kernel": (3072, 768),
        "Transformer/encoder_norm/scale": (768,),
        "pre_logits/kernel": (768, 768),
        "head/kernel": (768, 11),
    }
    assert wanted.items() <= shapes.items()
    assert len(shapes) == 2 * 16 + 10


def test_timm_reads_our_file_and_agrees(tmp_path) -> None:
    import timm

    ours = random_model(patch_size=(4, 4), image_size=(16, 16))
    vitrail.save_model(ours, tmp_path / "ours.npz", layout="google")
    theirs = timm.models.VisionTransformer(
        img_size=16, patch_size=4, embed_dim=24, depth=3, num_heads=3, mlp_ratio=40 / 24, num_classes=7,
        act_layer="gelu_tanh",
    ).eval()  # fmt: skip
    theirs.load_pretrained(str(tmp_path / "ours.npz"))
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(theirs(images), ours(images), rtol=0, atol=1e-5)


def test_a_file_without_positions_is_sincos_and_says_what_size_it_took(tmp_path) -> None:
    style = GoogleStyle(prefix="params/", numbering="linen", position="top")
    model = random_model(style, pool="mean", position="sincos_2d", patch_size=(4, 4), image_size=(16, 16))
    vitrail.save_model(model, tmp_path / "sincos.npz", layout="google")
    with pytest.warns(Notice, match="without a position array the image size is not recorded"):
        assert vitrail.load_model(tmp_path / "sincos.npz").config.image_size == (224, 224)
    loaded = vitrail.load_model(tmp_path / "sincos.npz", image_size=16)
    images = torch.randn(1, 3, 16, 16)
    assert torch.equal(loaded(images), model(images))


def test_arrays_outside_the_prefix_are_left_aside_with_a_notice(tmp_path) -> None:
    vitrail.save_model(random_model(GoogleStyle(prefix="opt/target/")), tmp_path / "a.npz", layout="google")
    np.savez(tmp_path / "b.npz", **arrays(tmp_path / "a.npz"), **{"opt/state/step": np.int64(7)})
    with pytest.warns(Notice, match=r"1 arrays outside 'opt/target/' were left aside \(opt/state/step"):
        vitrail.load_model(tmp_path / "b.npz", image_size=(16, 8))


def test_windows_separators_half_precision_and_raw_bfloat16_are_read(tmp_path) -> None:
    model = random_model(patch_size=(4, 4), image_size=(16, 16))
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().float()
    vitrail.save_model(model, tmp_path / "a.npz", layout="google")
    plain = arrays(tmp_path / "a.npz")
    raw = {name: (array.view(np.uint32) >> 16).astype(np.uint16).view("V2") for name, array in plain.items()}
    np.savez(tmp_path / "raw.npz", **{name.replace("/", "\\"): array for name, array in raw.items()})
    images = torch.randn(1, 3, 16, 16)
    assert torch.equal(vitrail.load_model(tmp_path / "raw.npz")(images), model(images))
    np.savez(tmp_path / "half.npz", **{name: array.astype(np.float16) for name, array in plain.items()})
    torch.testing.assert_close(vitrail.load_model(tmp_path / "half.npz")(images), model(images), rtol=0.02, atol=0.02)


def test_npz_means_google_preprocessing(fixtures) -> None:
    preprocessing = vitrail.load_model(fixtures / "vit_token" / "params.npz").preprocessing
    assert preprocessing.mean == preprocessing.std == (0.5, 0.5, 0.5)
    assert preprocessing.crop is None


def test_mean_pooled_network_without_provenance_can_be_written(tmp_path) -> None:
    model = random_model(pool="mean", position="sincos_2d")
    vitrail.save_model(model, tmp_path / "m.npz", layout="google")
    images = torch.randn(1, 3, 16, 8)
    assert torch.equal(vitrail.load_model(tmp_path / "m.npz", image_size=(16, 8))(images), model(images))


HYBRID_STYLES = [
    GoogleStyle(group_norm_axes=axes, numbering=numbering) for axes in (1, 4) for numbering in ("pre_linen", "linen")
]


@pytest.mark.parametrize("style", HYBRID_STYLES)
@pytest.mark.parametrize("blocks", [(), (1,), (2, 1), (1, 2, 1), (1, 1, 1, 1)])
def test_hybrids_come_back_bit_equal(style, blocks, tmp_path) -> None:
    backbone = ResNetConfig(blocks=blocks, width=32)
    size = (4 * backbone.stride, 4 * backbone.stride)
    model = random_model(style, backbone=backbone, patch_size=(1, 1), image_size=size, pre_logits=24)
    vitrail.save_model(model, tmp_path / "first.npz", layout="google")
    loaded = vitrail.load_model(tmp_path / "first.npz")
    assert loaded.config == model.config
    images = torch.randn(1, 3, *size)
    assert torch.equal(loaded(images), model(images))
    vitrail.save_model(loaded, tmp_path / "ours")
    vitrail.save_model(vitrail.load_model(tmp_path / "ours"), tmp_path / "second.npz", layout="google")
    assert_equal_files(tmp_path / "first.npz", tmp_path / "second.npz")


def test_published_names_and_shapes_of_the_hybrid(tmp_path) -> None:
    model = vitrail.create_model("r50-vit-b16", pre_logits=768, num_classes=7)
    vitrail.save_model(model, tmp_path / "r50.npz", layout="google")
    shapes = {name: array.shape for name, array in arrays(tmp_path / "r50.npz").items()}
    wanted = {
        "conv_root/kernel": (7, 7, 3, 64),
        "gn_root/scale": (1, 1, 1, 64),
        "block1/unit1/conv_proj/kernel": (1, 1, 64, 256),
        "block1/unit1/gn_proj/bias": (1, 1, 1, 256),
        "block2/unit1/conv1/kernel": (1, 1, 256, 128),
        "block2/unit4/conv2/kernel": (3, 3, 128, 128),
        "block3/unit9/conv3/kernel": (1, 1, 256, 1024),
        "block3/unit9/gn3/scale": (1, 1, 1, 1024),
        "embedding/kernel": (1, 1, 1024, 768),
    }
    assert wanted.items() <= shapes.items()
    assert len(shapes) == 358


@pytest.mark.parametrize("case", ["hybrid_stem_only", "hybrid_r111", "bit_r2121x0.5_odd"])
def test_the_originals_own_resnets_come_back_bit_equal(case, fixtures, tmp_path) -> None:
    source = fixtures / case / "params.npz"
    vitrail.save_model(vitrail.load_model(source), tmp_path / "ours")
    vitrail.save_model(vitrail.load_model(tmp_path / "ours"), tmp_path / "back.npz", layout="google")
    assert_equal_files(source, tmp_path / "back.npz")


def test_bit_files_with_numbered_convolutions_come_back_under_their_own_names(fixtures, tmp_path) -> None:
    plain = arrays(fixtures / "bit_r2121x0.5_odd" / "params.npz")
    numbered = {
        name.replace("/standardized_conv2d/", f"/standardized_conv2d_{number}/") if number % 2 else name: array
        for number, (name, array) in enumerate(plain.items())
    }
    np.savez(tmp_path / "numbered.npz", **numbered)
    model = vitrail.load_model(tmp_path / "numbered.npz")
    reference = vitrail.load_model(fixtures / "bit_r2121x0.5_odd" / "params.npz")
    images = torch.randn(1, 3, 40, 50)
    assert torch.equal(model(images), reference(images))
    vitrail.save_model(model, tmp_path / "back.npz", layout="google")
    assert_equal_files(tmp_path / "numbered.npz", tmp_path / "back.npz")


def test_published_names_of_bit(tmp_path) -> None:
    vitrail.save_model(vitrail.create_model("bit-r50x1", num_classes=5), tmp_path / "bit.npz", layout="google")
    shapes = {name: array.shape for name, array in arrays(tmp_path / "bit.npz").items()}
    wanted = {
        "resnet/root_block/standardized_conv2d/kernel": (7, 7, 3, 64),
        "resnet/block1/unit01/a/proj/standardized_conv2d/kernel": (1, 1, 64, 256),
        "resnet/block3/unit06/b/standardized_conv2d/kernel": (3, 3, 256, 256),
        "resnet/block4/unit03/c/group_norm/gamma": (512,),
        "resnet/group_norm/beta": (2048,),
        "resnet/head/conv2d/kernel": (1, 1, 2048, 5),
    }
    assert wanted.items() <= shapes.items()
    assert len(shapes) == 153


@pytest.mark.parametrize("missing", ["resnet/block3/unit02", "resnet/block2/unit01/a/proj", "resnet/head/conv2d/bias"])
def test_a_missing_part_of_a_bit_file_is_named(missing, fixtures, tmp_path) -> None:
    plain = arrays(fixtures / "bit_r2121x0.5_odd" / "params.npz")
    np.savez(tmp_path / "gap.npz", **{name: array for name, array in plain.items() if missing not in name})
    if missing == "resnet/block3/unit02":
        assert vitrail.load_model(tmp_path / "gap.npz").config.blocks == (2, 1, 1, 1)
        return
    with pytest.raises(DataError, match=f"the array '{missing}.*is missing"):
        vitrail.load_model(tmp_path / "gap.npz")


@pytest.mark.parametrize("scanned", [False, True])
@pytest.mark.parametrize("prefix", ["params/", "params/img/"])
def test_attention_pooling_comes_back_bit_equal(scanned, prefix, tmp_path) -> None:
    style = GoogleStyle(prefix=prefix, numbering="linen", scanned=scanned, position="top")
    model = random_model(style, pool="map", patch_size=(4, 4), image_size=(16, 16))
    vitrail.save_model(model, tmp_path / "first.npz", layout="google")
    stored = arrays(tmp_path / "first.npz")
    assert stored[f"{prefix}MAPHead_0/probe"].shape == (1, 1, 24)
    assert stored[f"{prefix}MAPHead_0/MultiHeadDotProductAttention_0/key/kernel"].shape == (24, 3, 8)
    loaded = vitrail.load_model(tmp_path / "first.npz")
    images = torch.randn(1, 3, 16, 16)
    assert loaded.config == model.config
    assert torch.equal(loaded(images), model(images))
    vitrail.save_model(loaded, tmp_path / "second.npz", layout="google")
    assert_equal_files(tmp_path / "first.npz", tmp_path / "second.npz")


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"registers": 2}, "register tokens"),
        ({"position": "learned_2d"}, "the position embedding 'learned_2d'"),
        ({"position": "relative"}, "the position embedding 'relative'"),
        ({"position_at": "every_layer"}, "positions at 'every_layer'"),
    ],
)
def test_what_the_layout_cannot_hold_is_refused_by_name(changes, part, tmp_path) -> None:
    with pytest.raises(UsageError, match=f"the google layout cannot hold {part}"):
        vitrail.save_model(random_model(**changes), tmp_path / "x.npz", layout="google")
    assert not (tmp_path / "x.npz").exists()


def test_numerics_that_a_npz_cannot_record_are_told(tmp_path) -> None:
    with pytest.warns(Notice, match="does not record gelu: its readers take 'tanh', this network has 'erf'"):
        vitrail.save_model(random_model(gelu="erf"), tmp_path / "x.npz", layout="google")


def test_a_class_row_changed_after_loading_picks_a_style_that_fits(tmp_path) -> None:
    model = random_model(GoogleStyle(), position_class_row=False)
    vitrail.save_model(model, tmp_path / "x.npz", layout="google")
    assert "params/pos_embedding" in arrays(tmp_path / "x.npz")
