import dataclasses

import torch

from vitrail.config import ConvLayerConfig, ConvStemConfig, VitConfig
from vitrail.models.cost import kept_bytes, measure_cost

CONFIG = VitConfig(width=24, depth=3, num_heads=3, mlp_width=40, patch_size=(4, 4), image_size=(16, 16), num_classes=7)


def test_multiply_adds_equal_the_sum_by_hand() -> None:
    tokens, width, mlp = 17, 24, 40
    block = (
        tokens * width * (3 * width) + 2 * tokens * tokens * width + tokens * width * width + 2 * tokens * width * mlp
    )
    wanted = 16 * (4 * 4 * 3) * width + 3 * block + width * 7
    assert measure_cost(CONFIG).macs == wanted
    assert measure_cost(CONFIG, batch=5).macs == 5 * wanted


def test_layers_add_up_to_the_whole() -> None:
    cost = measure_cost(CONFIG)
    assert sum(layer.parameters for layer in cost.layers) == cost.parameters
    assert sum(layer.macs for layer in cost.layers) == cost.macs
    shapes = {layer.name: layer.output for layer in cost.layers}
    assert shapes["embedding"] == (1, 16, 24)
    assert shapes["blocks.2"] == (1, 17, 24)
    assert shapes["head"] == (1, 7)


def test_inference_memory_is_the_widest_moment_of_a_block() -> None:
    """In the MLP: the block's input, what it became, the normed tokens, the hidden layer before and after GELU."""
    token, hidden = 17 * 24 * 4, 17 * 240 * 4
    image = 3 * 16 * 16 * 4
    cost = measure_cost(dataclasses.replace(CONFIG, mlp_width=240))
    widest = 3 * token + 2 * hidden + image
    # The shape checks that run in tests hold on to one more tensor.
    assert cost.inference_bytes in (widest, widest + token)


def test_training_memory_equals_what_a_real_forward_saves() -> None:
    from vitrail.models import build

    model = build(CONFIG).train()
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    saved: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(torch.randn(2, 3, 16, 16))
    real = sum(tensor.untyped_storage().nbytes() for tensor in saved.values())
    assert measure_cost(CONFIG, batch=2).training_bytes == real


def test_a_conv_stem_whose_map_has_one_cell() -> None:
    """Its BatchNorm cannot learn from one value, and what one image costs is known nevertheless."""
    stem = ConvStemConfig(layers=tuple(ConvLayerConfig(channels=8) for _ in range(4)))
    config = dataclasses.replace(CONFIG, backbone=stem, patch_size=(1, 1))
    one, two = (measure_cost(config, batch=batch) for batch in (1, 2))
    assert config.grid == (1, 1)
    assert one.training_bytes == two.training_bytes // 2
    assert kept_bytes(config) == one.training_bytes
