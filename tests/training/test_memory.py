"""What fits into memory: estimates, and errors that say it ran out."""

from dataclasses import replace

import pytest
import torch

from vitrail.config import BitConfig, ResNetConfig, TrainConfig, VitConfig
from vitrail.errors import UsageError
from vitrail.models import build
from vitrail.runtime.out_of_memory import is_out_of_memory
from vitrail.runtime.out_of_memory import release_memory as release
from vitrail.training import memory
from vitrail.training.memory import OutOfMemory, first_micro_batch
from vitrail.zoo import ZOO

CPU = torch.device("cpu")
VIT = VitConfig(width=64, depth=4, num_heads=4, mlp_width=128, patch_size=4, image_size=32, num_classes=10)


def train(**changes) -> TrainConfig:
    return TrainConfig(**({"batch_size": 512, "steps": 1, "loss": "softmax"} | changes))


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (MemoryError(), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("shape mismatch"), False),
        (ValueError("can't allocate memory"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_which_errors_mean_that_memory_ran_out(error, wanted) -> None:
    assert is_out_of_memory(error) == wanted


def test_what_torch_raises_on_a_cpu_is_known() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**58, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
    release()


def test_memory_that_ran_out_has_its_exit_code() -> None:
    assert OutOfMemory("x").exit_code == 6


def test_the_config_decides_and_is_rounded_down_to_a_divisor() -> None:
    assert first_micro_batch(VIT, train(micro_batch=200), CPU, 1) == 128
    assert first_micro_batch(VIT, train(micro_batch=10**6), CPU, 1) == 512
    with pytest.raises(UsageError, match="micro_batch is 1"):
        first_micro_batch(VIT, train(micro_batch=1), CPU, 2)


def test_a_cpu_takes_few_at_a_time_however_much_memory_there_is(monkeypatch) -> None:
    monkeypatch.setattr(memory, "_free_bytes", lambda _device: 1e15)
    assert first_micro_batch(VIT, train(), CPU, 1) == 64
    assert first_micro_batch(VIT, train(batch_size=24), CPU, 1) == 24
    assert first_micro_batch(VIT, train(), torch.device("meta"), 1) == 512


@pytest.mark.parametrize("smallest", [1, 2])
def test_no_memory_at_all_still_tries_the_smallest_piece(smallest, monkeypatch) -> None:
    monkeypatch.setattr(memory, "_free_bytes", lambda _device: 0.0)
    assert first_micro_batch(VIT, train(), CPU, smallest) == smallest


def test_more_is_needed_for_larger_networks_and_less_with_recomputation(monkeypatch) -> None:
    each = memory._bytes_per_image
    base = each(VIT, train())
    assert each(replace(VIT, depth=8), train()) > base
    assert each(replace(VIT, image_size=(64, 64)), train()) > 3 * base
    assert each(VIT, train(precision="bfloat16")) < base
    assert each(replace(VIT, depth=24), train(checkpoint_activations=True)) < each(replace(VIT, depth=24), train()) / 3


@pytest.mark.parametrize(
    "config",
    [
        VIT,
        replace(VIT, width=192, mlp_width=768, patch_size=8, image_size=64),
        replace(VIT, patch_size=1, image_size=64, backbone=ResNetConfig(blocks=(1, 1))),
        BitConfig(blocks=(1, 1, 1, 1), width=64, image_size=64, num_classes=10),
    ],
    ids=["vit", "wider", "hybrid", "bit"],
)
def test_the_estimate_is_of_the_order_of_what_autograd_keeps(config) -> None:
    model = build(config).train()

    def kept(batch: int) -> int:
        sizes = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            logits = model(torch.randn(batch, config.channels, *config.image_size))
        assert logits.shape == (batch, 10)
        return sum(sizes.values())

    # The difference, because weights are kept too, and those of standardised convolutions twice.
    each = (kept(4) - kept(2)) / 2
    assert each / 3 < memory._bytes_per_image(config, train()) < 6 * each


@pytest.mark.parametrize("key", ["vit-b16", "r50-vit-b16", "bit-r50x1", "vit-h14"])
def test_real_networks_get_a_piece_that_divides_the_batch(key, monkeypatch) -> None:
    monkeypatch.setattr(memory, "_free_bytes", lambda _device: 16e9)
    size = first_micro_batch(ZOO[key].config, train(batch_size=4096), torch.device("meta"), 1)
    assert 4096 % size == 0
    assert 1 <= size <= 512
