"""Torch as a backend: all of its float32, and a compiler that is trusted only after a look."""

import numpy as np
import pytest
import torch
from tests.evaluation.small import model_folder, network

from vitrail.errors import DataError, UsageError
from vitrail.prediction import Predictor
from vitrail.prediction.backend import _all_of_float32, _compiled_size, torch_backend

IMAGES = np.random.default_rng(0).standard_normal((5, 3, 8, 8), dtype=np.float32)


@pytest.mark.parametrize(
    ("count", "largest", "size"),
    [(32, 32, 32), (31, 32, 32), (16, 32, 16), (3, 32, 4), (1, 32, 1), (5, 7, 7), (1, 1, 1)],
)
def test_few_sizes_are_compiled(count, largest, size) -> None:
    assert _compiled_size(count, largest) == size


def test_batches_are_filled_up_and_cut_again(monkeypatch) -> None:
    seen = []

    def compiled(compute, dynamic):
        assert not dynamic
        return lambda images: (seen.append(len(images)), compute(images))[1]

    monkeypatch.setattr(torch, "compile", compiled)
    plain, filled = torch_backend(network(), "cpu"), torch_backend(network(), "cpu", compiled=True, batch_size=8)
    for count in (1, 3, 5):
        for expected, found in zip(plain.run(IMAGES[:count]), filled.run(IMAGES[:count]), strict=True):
            assert np.abs(expected - found).max() < 1e-6
    assert seen == [1, 4, 8]


def _fails(_compute, dynamic):
    def run(_images):
        raise RuntimeError("no working C++ compiler\nmore")

    return run


@pytest.mark.parametrize(
    ("compiler", "error", "match"),
    [
        (_fails, UsageError, "cannot compile this network here .no working C.. compiler.. Use backend=torch"),
        (
            lambda compute, dynamic: lambda images: [1.01 * one for one in compute(images)],
            DataError,
            "differs from torch",
        ),
    ],
)
def test_a_compiler_that_fails_or_errs(tmp_path, monkeypatch, compiler, error, match) -> None:
    monkeypatch.setattr(torch, "compile", compiler)
    with pytest.raises(error, match=match):
        Predictor(model_folder(tmp_path / "model"), backend="compiled")


def test_convolutions_on_a_gpu_keep_all_bits() -> None:
    convolution = torch.backends.cudnn.conv
    assert convolution.fp32_precision == "tf32", "torch's default, which this is about"
    with _all_of_float32(torch.device("cuda")):
        assert convolution.fp32_precision != "tf32"
    assert convolution.fp32_precision == "tf32"
    with _all_of_float32(torch.device("cpu")):
        assert convolution.fp32_precision == "tf32"


def test_memory_that_runs_out(monkeypatch) -> None:
    backend = torch_backend(model := network(), "cpu")

    def full(_images):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(model, "features", full)
    with pytest.raises(UsageError, match=r"5 images at a time do not fit.*batch_size"):
        backend.run(IMAGES)
