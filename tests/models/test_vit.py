import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

import vitrail
from vitrail.config import VitConfig
from vitrail.errors import Notice, UsageError
from vitrail.models import VisionTransformer
from vitrail.models.pooling import AttentionPooling
from vitrail.zoo import ZOO

SMALL = VitConfig(width=24, depth=3, num_heads=3, mlp_width=40, patch_size=(4, 4), image_size=(16, 16), num_classes=7)

# Counted by instantiating the original JAX code at 224 px, with 1000 classes and no pre_logits.
PARAMETERS = {
    "vit-ti16": 5_717_416,
    "vit-s16": 22_050_664,
    "vit-s32": 22_878_952,
    "vit-b8": 86_576_872,
    "vit-b16": 86_567_656,
    "vit-b32": 88_224_232,
    "vit-l14": 304_203_752,
    "vit-l16": 304_326_632,
    "vit-l32": 306_535_400,
    "vit-h14": 632_045_800,
    "vit-h16": 632_199_400,
    "vit-g14": 1_012_611_432,
    "vit-bigg14": 1_844_440_680,
    "vit-tiny-mnist": 7_850,
}
WITHOUT_HEAD = {"vit-b16": 85_798_656, "vit-l16": 303_301_632, "vit-h14": 630_764_800}
WITH_2020_HEAD = {
    "vit-b16": 103_186_515,
    "vit-b32": 104_843_091,
    "vit-l16": 326_740_307,
    "vit-l32": 328_949_075,
    "vit-h14": 660_385_363,
}


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def randomised(config: VitConfig) -> VisionTransformer:
    """A network in which nothing is zero, so that no part can hide."""
    model = VisionTransformer(config).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def images_for(config: VitConfig, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, config.channels, *config.image_size)


def test_parameter_counts_equal_the_originals() -> None:
    with torch.device("meta"):
        assert {key: count(vitrail.create_model(key)) for key in PARAMETERS} == PARAMETERS
        assert {key: count(vitrail.create_model(key, num_classes=0)) for key in WITHOUT_HEAD} == WITHOUT_HEAD
        full = {
            key: count(vitrail.create_model(key, num_classes=21_843, pre_logits=ZOO[key].config.width))
            for key in WITH_2020_HEAD
        }
    assert full == WITH_2020_HEAD


@pytest.mark.parametrize("case", ["vit_token", "bv_tok_learn"])
def test_equals_the_original_on_its_own_fixture(case, fixtures) -> None:
    folder = fixtures / case
    model = vitrail.load_model(folder / "params.npz")
    images = torch.from_numpy(np.load(folder / "input.npy")).permute(0, 3, 1, 2)
    with torch.no_grad():
        ours = {"logits": model(images), "features": model.features(images), "tokens": model.tokens(images)}
    for name, tensor in ours.items():
        np.testing.assert_allclose(tensor.numpy(), np.load(folder / f"{name}.npy"), rtol=0, atol=2e-5)


def test_the_fixture_would_notice_the_other_gelu(fixtures) -> None:
    folder = fixtures / "vit_token"
    model = vitrail.load_model(folder / "params.npz", gelu="erf")
    images = torch.from_numpy(np.load(folder / "input.npy")).permute(0, 3, 1, 2)
    with torch.no_grad():
        difference = np.abs(model(images).numpy() - np.load(folder / "logits.npy")).max()
    assert difference > 2e-4


def test_patch_embedding_equals_the_original(fixtures) -> None:
    folder = fixtures / "vit_token"
    model = vitrail.load_model(folder / "params.npz")
    images = torch.from_numpy(np.load(folder / "input.npy")).permute(0, 3, 1, 2)
    wanted = np.load(folder / "embedding.npy").reshape(2, 64, 48)
    np.testing.assert_allclose(model.embedding(images).detach().numpy(), wanted, rtol=0, atol=2e-5)


def test_tapped_attention_equals_the_original_and_leaves_logits_alone(fixtures) -> None:
    folder = fixtures / "vit_token"
    model = vitrail.load_model(folder / "params.npz")
    images = torch.from_numpy(np.load(folder / "input.npy")).permute(0, 3, 1, 2)
    with torch.no_grad():
        logits, attention = model.forward_tapped(images, layers=[0, 1, 2])
        assert torch.equal(logits, model(images))
    wanted = np.load(folder / "attn.npy")
    np.testing.assert_allclose(torch.stack([attention[i] for i in range(3)]).numpy(), wanted, rtol=0, atol=2e-5)


def test_tapped_attention_is_the_explicit_softmax_of_chosen_layers_only() -> None:
    model = randomised(SMALL)
    images = images_for(SMALL)
    with torch.no_grad():
        logits, attention = model.forward_tapped(images, layers=[-1])
        assert set(attention) == {-1}
        z = model.embed(images)
        for block in model.blocks[:2]:
            z = block(z)
        block = model.blocks[2]
        qkv = block.attention.qkv(block.attention_norm(z)).reshape(2, 17, 3, 3, 8)
        scores = torch.einsum("bqhd,bkhd->bhqk", qkv[:, :, 0], qkv[:, :, 1]) / 8**0.5
    torch.testing.assert_close(attention[-1], scores.softmax(-1), rtol=0, atol=1e-6)
    torch.testing.assert_close(attention[-1].sum(-1), torch.ones(2, 3, 17), rtol=0, atol=1e-6)
    assert torch.equal(logits, model(images))


@pytest.mark.parametrize("layer", [3, -4, 100])
def test_tapping_a_layer_that_is_not_there_names_the_range(layer) -> None:
    with pytest.raises(UsageError, match=f"layer {layer} is not there; wanted a number from 0 to 2"):
        randomised(SMALL).forward_tapped(images_for(SMALL), layers=[layer])


def test_q_k_and_v_are_views_of_one_product() -> None:
    attention = randomised(SMALL).blocks[0].attention
    q, k, v = attention.project(torch.randn(2, 17, 24))
    assert q.untyped_storage().data_ptr() == k.untyped_storage().data_ptr() == v.untyped_storage().data_ptr()
    assert q.shape == (2, 3, 17, 8)


def test_a_plain_forward_never_holds_a_tokens_by_tokens_matrix() -> None:
    """4,097 tokens and 3 heads: one attention matrix alone would be 3 * 4097^2 * 4 = 201 MB."""
    from vitrail.models.cost import measure_cost

    config = dataclasses.replace(ZOO["vit-ti16"].config, image_size=(1024, 1024), depth=2)
    assert config.tokens == 4097
    cost = measure_cost(config)
    one_matrix = 3 * 4097**2 * 4
    assert cost.inference_bytes < one_matrix / 4
    assert cost.training_bytes < one_matrix


def test_the_class_token_alone_is_what_the_whole_last_block_gives() -> None:
    """Logits and gradients of the short way through the last block equal those of the long one."""
    model = randomised(dataclasses.replace(SMALL, pre_logits=9)).double()
    images = images_for(SMALL).double()
    short = torch.autograd.grad(model(images).sum(), list(model.parameters()))
    long = torch.autograd.grad(model.head(model.read(model.tokens(images))).sum(), list(model.parameters()))
    torch.testing.assert_close(model(images), model.head(model.read(model.tokens(images))), rtol=1e-12, atol=1e-12)
    for one, other in zip(short, long, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_mean_pooling_has_no_class_token_and_reads_the_mean_after_the_norm() -> None:
    config = dataclasses.replace(SMALL, pool="mean")
    model = randomised(config)
    images = images_for(config)
    assert model.class_token is None
    assert model.tokens(images).shape == (2, 16, 24)
    torch.testing.assert_close(model.features(images), model.tokens(images).mean(1))


@pytest.mark.parametrize("keys", [17, 64, 576])
def test_attention_pooling_takes_the_guarded_attention_and_nothing_else(keys, monkeypatch) -> None:
    """On a GPU some numbers of keys need another kernel (decision 10); on a CPU it is torch's call, to the last bit."""
    seen = []

    def watched(q, k, v, bias, dropout):
        seen.append((tuple(q.shape), tuple(k.shape), bias, dropout))
        return functional.scaled_dot_product_attention(q, k, v)

    torch.manual_seed(0)
    pooling, tokens = AttentionPooling(SMALL), torch.randn(2, keys, SMALL.width)
    wanted = pooling(tokens)
    monkeypatch.setattr("vitrail.models.pooling.attend", watched)
    assert torch.equal(pooling(tokens), wanted)
    assert seen == [((2, 3, 1, 8), (2, 3, keys, 8), None, 0.0)]


def test_no_network_of_ours_calls_the_fused_kernel_past_the_guard() -> None:
    folder = Path(vitrail.__file__).parent
    calling = [path.name for path in folder.rglob("*.py") if "scaled_dot_product_attention(" in path.read_text("utf-8")]
    assert calling == ["attention.py"]


def test_pre_logits_go_through_tanh() -> None:
    config = dataclasses.replace(SMALL, pre_logits=11)
    model = randomised(config)
    images = images_for(config)
    wanted = torch.tanh(model.pre_logits(model.tokens(images)[:, 0]))
    torch.testing.assert_close(model.features(images), wanted)
    assert model(images).shape == (2, 7)


def test_no_classes_means_features() -> None:
    model = randomised(dataclasses.replace(SMALL, num_classes=0))
    images = images_for(SMALL)
    assert torch.equal(model(images), model.features(images))


@torch.no_grad()
def test_initialisation_is_the_originals() -> None:
    torch.manual_seed(0)
    config = dataclasses.replace(ZOO["vit-b16"].config, depth=1, pre_logits=768, head_bias=-10.0)
    model = VisionTransformer(config)
    block = model.blocks[0]
    xavier = (6 / (768 + 768)) ** 0.5
    for kernel in (*block.attention.qkv.weight.chunk(3), block.attention.output.weight):
        assert kernel.abs().max() <= xavier
        assert kernel.std() == pytest.approx(xavier / 3**0.5, rel=0.01)
    assert not block.attention.qkv.bias.any()
    mlp_bound = (6 / (768 + 3072)) ** 0.5
    assert block.mlp.expand.weight.abs().max() <= mlp_bound
    assert block.mlp.expand.weight.std() == pytest.approx(mlp_bound / 3**0.5, rel=0.01)
    assert block.mlp.expand.bias.std() == pytest.approx(1e-6, rel=0.1)
    patch = model.embedding.projection
    assert patch.weight.std() == pytest.approx((1 / 768) ** 0.5, rel=0.01)
    assert patch.weight.abs().max() <= 2 * (1 / 768) ** 0.5 / 0.8796
    assert not patch.bias.any()
    assert not model.class_token.any()
    assert model.positions[0].table.std() == pytest.approx(0.02, rel=0.02)
    assert model.pre_logits.weight.std() == pytest.approx((1 / 768) ** 0.5, rel=0.01)
    assert not model.head.weight.any()
    assert model.head.bias.eq(-10).all()


def test_a_zero_head_gives_zero_logits_and_gradients_in_the_head_alone() -> None:
    model = VisionTransformer(SMALL)
    logits = model(images_for(SMALL))
    assert not logits.any()
    nn.functional.cross_entropy(logits, torch.tensor([1, 2])).backward()
    touched = {
        name for name, parameter in model.named_parameters() if parameter.grad is not None and parameter.grad.any()
    }
    assert touched == {"head.weight", "head.bias"}


def test_dropout_is_in_the_papers_places() -> None:
    """After positions, after the attention output, after GELU and after the second dense layer; nowhere else."""
    model = VisionTransformer(dataclasses.replace(SMALL, dropout=0.5)).train()
    calls = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout):
            module.register_forward_hook(lambda _m, args, _out, name=name: calls.append((name, args[0].shape[-1])))
    model(images_for(SMALL))
    block = [("dropout", 24), ("mlp.dropout", 40), ("mlp.dropout", 24)]
    wanted = [("dropout", 24)] + [(f"blocks.{i}.{name}", width) for i in range(3) for name, width in block]
    assert calls == wanted


def test_stochastic_depth_grows_linearly_and_keeps_the_mean() -> None:
    model = VisionTransformer(dataclasses.replace(SMALL, stochastic_depth=0.4))
    assert [block.skip.rate for block in model.blocks] == pytest.approx([0.0, 0.2, 0.4])
    skip = model.blocks[2].skip.train()
    torch.manual_seed(0)
    out = skip(torch.ones(20_000, 3, 2))
    assert out.unique().tolist() == pytest.approx([0.0, 1 / 0.6])
    assert torch.equal(out.amax((1, 2)), out.amin((1, 2)))
    assert out.mean() == pytest.approx(1.0, abs=0.02)
    assert torch.equal(skip.eval()(out), out)


@given(
    patch=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    grid=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    rest=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    channels=st.integers(1, 5),
    pool=st.sampled_from(["token", "mean"]),
    batch=st.integers(1, 3),
)
@settings(max_examples=40, deadline=None)
def test_any_rectangle_any_patch_any_channels(patch, grid, rest, channels, pool, batch) -> None:
    size = tuple(g * p + min(r, p - 1) for g, p, r in zip(grid, patch, rest, strict=True))
    config = VitConfig(
        width=8, depth=1, num_heads=2, mlp_width=8, patch_size=patch, image_size=size, channels=channels,
        num_classes=3, pool=pool,
    )  # fmt: skip
    model = randomised(config)
    images = images_for(config, batch)
    tokens = grid[0] * grid[1] + (pool == "token")
    assert model.tokens(images).shape == (batch, tokens, 8)
    assert model(images).shape == (batch, 3)
    full = images[:, :, : grid[0] * patch[0], : grid[1] * patch[1]]
    assert torch.equal(model(full), model(images))


def test_patches_are_in_raster_order_and_equal_unfold_and_matmul() -> None:
    config = dataclasses.replace(SMALL, image_size=(8, 12))
    model = randomised(config)
    images = images_for(config)
    patches = images.reshape(2, 3, 2, 4, 3, 4).permute(0, 2, 4, 1, 3, 5).reshape(2, 6, 48)
    projection = model.embedding.projection
    wanted = patches @ projection.weight.reshape(24, 48).T + projection.bias
    torch.testing.assert_close(model.embedding(images), wanted, rtol=1e-5, atol=1e-5)


def test_an_image_of_another_size_is_one_sentence_with_the_remedy() -> None:
    with pytest.raises(UsageError) as caught:
        randomised(SMALL)(torch.randn(1, 3, 20, 16))
    assert str(caught.value) == (
        "the images are 20x16 pixels; wanted 16x16. Resize them, or load the model with image_size=(20, 16)."
    )


def test_wrong_channels_are_named() -> None:
    with pytest.raises(UsageError, match="the images have 1 channels; wanted 3"):
        randomised(SMALL)(torch.randn(1, 1, 16, 16))


def test_create_model_takes_overrides_and_suggests() -> None:
    model = vitrail.create_model("vit-test", num_classes=3, image_size=(16, 24), dropout=0.1, gelu="erf")
    assert (model.config.num_classes, model.config.image_size, model.config.dropout) == (3, (16, 24), 0.1)
    with pytest.raises(UsageError, match=r"Unknown model field 'drop_out'\. Did you mean 'dropout'"):
        vitrail.create_model("vit-test", drop_out=0.1)
    with pytest.raises(UsageError, match=r"Unknown model 'vit-b15'\. Did you mean"):
        vitrail.create_model("vit-b15")
    with pytest.raises(UsageError, match=r"Unknown position 'learned1d'\. Did you mean 'learned_1d'\?"):
        vitrail.create_model("vit-test", position="learned1d")


def test_pixels_that_fill_no_patch_are_told_once() -> None:
    with torch.device("meta"), pytest.warns(Notice, match="reads its first 378x378 pixels, a 27x27 grid") as told:
        model = vitrail.create_model("vit-h14", image_size=384)
    assert len(told) == 1
    assert model.config.grid == (27, 27)


def test_a_position_of_your_own() -> None:
    class Checkerboard(nn.Module):
        def forward(self) -> torch.Tensor:
            return torch.arange(17.0)[:, None].expand(17, 24) % 2

    model = VisionTransformer(SMALL, position=Checkerboard())
    images = images_for(SMALL)
    bare = model.embedding(images)
    torch.testing.assert_close(model.embed(images)[:, 1:], bare + (torch.arange(1, 17) % 2)[:, None])


def test_sincos_table_equals_big_visions(fixtures) -> None:
    from vitrail.models.fixed_table import sincos_2d

    wanted = np.load(fixtures / "sincos2d" / "h7_w5_d48.npy").reshape(35, 48)
    np.testing.assert_allclose(sincos_2d((7, 5), 48).numpy(), wanted, rtol=0, atol=1e-6)


def test_sincos_positions_are_fixed_and_zero_for_the_class_token() -> None:
    model = VisionTransformer(dataclasses.replace(SMALL, position="sincos_2d"))
    assert "positions.0.table" not in model.state_dict()
    assert not model.positions[0]()[0].any()
    assert model.positions[0]().shape == (17, 24)


def test_attention_that_starts_as_if_it_were_trained() -> None:
    config = dataclasses.replace(ZOO["vit-ti16"].config, depth=1, attention_start="mimetic")
    torch.manual_seed(0)
    attention = VisionTransformer(config).blocks[0].attention
    width, heads = config.width, config.num_heads
    q, k, v = attention.qkv.weight.detach().chunk(3)
    # Each head's `W_q W_k^T` is the best of its rank to 0.7 (chance + identity), so it keeps the larger half of both.
    products = torch.einsum("hda,hdb->hab", q.unflatten(0, (heads, -1)), k.unflatten(0, (heads, -1)))
    likeness = products.diagonal(dim1=1, dim2=2).mean(dim=1)
    assert (likeness > 0.3).all()
    assert (torch.linalg.matrix_rank(products, rtol=1e-4) == width // heads).all()
    assert not torch.allclose(products[0], products[1], atol=0.1)
    # `W_v W_o` is 0.4 (chance - identity), as exactly as a decomposition gives it.
    copied = (attention.output.weight.detach() @ v).T
    assert copied.diagonal().mean().item() == pytest.approx(-0.4, abs=0.02)
    rest = copied + 0.4 * torch.eye(width)
    assert rest.std().item() == pytest.approx(0.4 * width**-0.5, rel=0.05)
    assert not attention.qkv.bias.any()
    assert not attention.output.bias.any()


def test_attention_starts_the_same_however_many_threads_there_are(monkeypatch) -> None:
    config = dataclasses.replace(ZOO["vit-ti16"].config, depth=1, attention_start="mimetic")
    before, starts, threads = torch.get_num_threads(), [], []
    decompose = torch.linalg.svd
    monkeypatch.setattr(torch.linalg, "svd", lambda m: (threads.append(torch.get_num_threads()), decompose(m))[1])
    for count in (1, 4):
        torch.set_num_threads(count)
        torch.manual_seed(0)
        starts.append(VisionTransformer(config).blocks[0].attention.qkv.weight.detach())
    torch.set_num_threads(before)
    assert torch.equal(*starts)
    # On a machine with few cores several threads may give the same numbers; they would take minutes on a busy one.
    assert set(threads) == {1}


def test_a_start_that_nobody_knows() -> None:
    with pytest.raises(UsageError, match="attention_start"):
        dataclasses.replace(ZOO["vit-ti16"].config, attention_start="random")


def test_a_start_as_if_trained_in_half_precision() -> None:
    config = dataclasses.replace(SMALL, attention_start="mimetic")
    torch.set_default_dtype(torch.bfloat16)
    try:
        model = VisionTransformer(config)
    finally:
        torch.set_default_dtype(torch.float32)
    assert model.blocks[0].attention.qkv.weight.dtype == torch.bfloat16
    assert model.blocks[0].attention.qkv.weight.isfinite().all()
