"""Features: every image once, in its order, whatever the batch, the workers, the processes and the memory."""

from multiprocessing.connection import Connection

import numpy as np
import pytest
import torch
from PIL import Image
from tests.evaluation.small import Numbers, levels, network, subject
from tests.training.several import Group
from torch import Tensor

from vitrail.data import Source, open_data
from vitrail.errors import DataError
from vitrail.evaluation.features import extract_features
from vitrail.runtime.processes import Processes

WANTED = np.stack([np.arange(23), -np.arange(23), np.arange(23) ** 2], axis=1).astype(np.float32)


@pytest.mark.parametrize("batch_size", [1, 5, 23, 100])
@pytest.mark.parametrize("workers", [0, 1])
def test_every_image_once_and_in_order(batch_size, workers) -> None:
    model, told = Numbers(), []
    found = extract_features(subject(model), levels(), batch_size=batch_size, workers=workers, advance=told.append)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, WANTED)
    # The first was a blank image, to see how wide features are.
    assert [number for batch in model.seen[1:] for number in batch] == list(range(23))
    assert sum(told) == 23


@pytest.mark.parametrize("room", [1, 3, 10])
def test_less_memory_gives_the_same_features(room) -> None:
    model = Numbers(room)
    np.testing.assert_array_equal(extract_features(subject(model), levels(), batch_size=16), WANTED)
    assert max(map(len, model.seen)) <= room


def test_no_room_for_one_image_is_an_error() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        extract_features(subject(Numbers(0)), levels(), batch_size=16)


def test_features_are_what_the_head_reads() -> None:
    measured, source = subject(network()), levels(7)
    found = extract_features(measured, source, batch_size=3)
    inputs = (torch.arange(7).view(-1, 1, 1, 1) / 255 * 2 - 1).expand(-1, 3, 8, 8)
    with torch.no_grad():
        np.testing.assert_allclose(found, measured.model.features(inputs).numpy(), atol=1e-6)
        logits = measured.model.head(torch.from_numpy(found))
        torch.testing.assert_close(logits, measured.model(inputs))
    rough = extract_features(subject(network(), bfloat16=True), source, batch_size=3)
    assert rough.dtype == np.float32
    assert (rough != found).any()
    np.testing.assert_allclose(rough, found, atol=0.1)


class _Broken(Numbers):
    def features(self, images: Tensor) -> Tensor:
        found = super().features(images)
        found[found[:, 0] == 11, 1] = torch.nan
        found[found[:, 0] == 17, 2] = torch.inf
        return found


def test_features_that_are_no_numbers_name_the_first_image() -> None:
    with pytest.raises(DataError) as error:
        extract_features(subject(_Broken()), levels(), batch_size=16)
    assert str(error.value) == (
        "levels, train image 11: the features of this image by small are not finite, and neither are those of 1 more; "
        "wanted numbers. Look at the weights: a run may have diverged."
    )
    with pytest.raises(DataError, match=r"not finite; wanted numbers\. Try precision=float32\."):
        extract_features(subject(_Broken(), bfloat16=True), levels(17), batch_size=16)


class _Extract:
    """What each of several processes does."""

    def __init__(self, source: Source, model: Numbers) -> None:
        self.source, self.model = source, model

    def __call__(self, processes: Processes, connection: Connection) -> None:
        found = extract_features(subject(self.model), self.source, batch_size=4, processes=processes)
        connection.send(found.tolist())


@pytest.mark.parametrize(("ranks", "images"), [(2, 23), pytest.param(3, 2, marks=pytest.mark.slow)])
def test_several_processes_share_the_work_and_have_all_of_it(ranks, images) -> None:
    group = Group(ranks, _Extract(levels(images), Numbers()))
    answers = [connection.recv() for connection in group.connections]
    assert group.words() == [("ended", "")] * ranks
    assert answers == [WANTED[:images].tolist()] * ranks


@pytest.mark.slow
def test_what_one_process_cannot_read_is_told_once_by_it(tmp_path) -> None:
    for name in ("ant", "bee"):
        (tmp_path / name).mkdir()
        for number in range(3):
            Image.new("L", (8, 8), number).save(tmp_path / name / f"{number}.png")
    (tmp_path / "ant" / "1.png").write_bytes(b"no image")
    words = Group(2, _Extract(open_data(tmp_path), Numbers())).words()
    assert words[1][0] == "DataError"
    assert words[1][1].startswith(f"{tmp_path / 'ant' / '1.png'}: the content is no image we read")
    assert words[0] == ("Elsewhere", "another process of the run failed.")


@pytest.mark.slow
def test_no_numbers_in_several_processes_are_told_once() -> None:
    words = Group(2, _Extract(levels(), _Broken())).words()
    assert [word for word, _text in words] == ["DataError", "Elsewhere"]
    assert "levels, train image 11" in words[0][1]
