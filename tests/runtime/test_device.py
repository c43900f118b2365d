"""Names of devices, on machines with and without a GPU."""

import pytest
import torch

from vitrail.errors import Notice, UsageError
from vitrail.runtime.device import find_device


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch):
    """A function that says how many CUDA GPUs torch believes to see."""

    def pretend(number: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: number > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: number)

    return pretend


def test_auto_takes_a_gpu_where_there_is_one(gpus) -> None:
    gpus(0)
    assert find_device() == torch.device("cpu")
    gpus(1)
    assert find_device().type == "cuda"


@pytest.mark.parametrize("name", ["cpu", "cuda", "cuda:1"])
def test_a_name_is_taken_at_its_word(name, gpus) -> None:
    gpus(2)
    assert find_device(name) == torch.device(name)


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:7"])
@pytest.mark.parametrize(("built", "told"), [("13.2", "is built for CUDA 13.2"), (None, "is built without CUDA")])
def test_no_gpu_is_told_with_what_torch_was_built_for(name, built, told, gpus, monkeypatch) -> None:
    gpus(0)
    monkeypatch.setattr(torch.version, "cuda", built)
    with pytest.raises(UsageError, match="torch finds no CUDA GPU here") as caught:
        find_device(name)
    assert told in str(caught.value)
    assert "device=cpu" in str(caught.value)


def test_a_gpu_beyond_the_last(gpus) -> None:
    gpus(2)
    with pytest.raises(UsageError, match="there is no GPU number 2; wanted a number below 2"):
        find_device("cuda:2")


@pytest.mark.parametrize("name", ["nonsense", "", "gpu", "CUDA", "cuda:x", "cuda:-1", "cpu:", "meta", "xla", "cuda 0"])
def test_what_is_no_device_is_one_sentence(name, gpus) -> None:
    gpus(1)
    with pytest.raises(UsageError, match="wanted auto, cpu, cuda, cuda:1 or mps"):
        find_device(name)


def test_apple_gpus_are_untested_and_said_to_be(monkeypatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.warns(Notice, match="untested"):
        assert find_device("mps").type == "mps"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UsageError, match="no Apple GPU"):
        find_device("mps")
