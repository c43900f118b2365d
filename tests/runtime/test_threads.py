import pytest
import torch
from torch import nn

from vitrail.runtime.threads import is_tiny, one_thread


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("when", "inside"), [(True, 1), (False, 3)])
def test_one_thread_inside_and_as_many_as_before_after_it(three_threads, when, inside) -> None:
    with one_thread(when):
        assert torch.get_num_threads() == inside
    assert torch.get_num_threads() == 3


def test_threads_come_back_after_an_error(three_threads) -> None:
    with pytest.raises(ZeroDivisionError), one_thread():
        raise ZeroDivisionError
    assert torch.get_num_threads() == 3


def test_a_network_is_tiny_on_a_cpu_alone() -> None:
    small, large = nn.Linear(10, 10), nn.Linear(1000, 1000)
    assert is_tiny(small, torch.device("cpu"))
    assert not is_tiny(large, torch.device("cpu"))
    assert not is_tiny(small, torch.device("cuda"))
