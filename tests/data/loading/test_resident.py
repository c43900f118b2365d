"""Sets that live on the device give the batches of the loader, whatever the step they begin with."""

from itertools import islice

import numpy as np
import pytest
import torch
from tests.data.loading.tiny import assert_same, make_arrays, make_folder, prepared

from vitrail.config import AugmentConfig, preset
from vitrail.data.loading import resident
from vitrail.data.loading.loader import training_batches
from vitrail.data.loading.order import Stream
from vitrail.data.loading.prepare import Preparation
from vitrail.data.loading.resident import can_be_resident, resident_batches, resident_pixels
from vitrail.data.sources.folder import open_folder
from vitrail.data.sources.joined import Joined
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.source import Part, Source
from vitrail.errors import UsageError


def stream_of(source: Source, **more: int) -> Stream:
    return Stream(length=len(source), batch_size=12, seed=6, **more)


def everything(crop: str) -> AugmentConfig:
    return AugmentConfig(crop=crop, pad=2, randaugment_layers=2, erasing=0.5, mixup=0.3, cutmix=0.5)  # type: ignore[arg-type]


def test_which_sets_can_be_resident(tmp_path, monkeypatch):
    source = make_arrays()
    part = Part(source, np.arange(9), "some")
    assert can_be_resident(source)
    assert can_be_resident(Part(part, np.arange(3), "fewer"))
    files = open_folder(make_folder(tmp_path / "photos", 3))
    assert not can_be_resident(files)
    assert not can_be_resident(Part(files, np.arange(2), "some"))
    monkeypatch.setattr(resident, "MAX_BYTES", source.pixels.nbytes - 1)
    assert not can_be_resident(source)
    assert not can_be_resident(part)


def test_sets_behind_each_other_can_be_resident_where_each_is_and_all_are_of_one_size(tmp_path, monkeypatch):
    source = make_arrays(20)
    twice = Joined([Part(source, np.arange(9), "some"), Part(source, np.array([3, 3, 4]), "more")], "all")
    assert can_be_resident(twice) and can_be_resident(Part(twice, np.arange(4), "few"))
    monkeypatch.setattr(resident, "MAX_BYTES", 12 * source.pixels[0].nbytes - 1)
    assert not can_be_resident(twice)
    monkeypatch.undo()
    files = open_folder(make_folder(tmp_path / "photos", 3))
    files.classes = source.classes
    assert not can_be_resident(Joined([source, files], "all"))
    other = make_arrays(20)
    other.pixels = other.pixels[:, :-1]
    assert not can_be_resident(Joined([source, other], "all"))


def test_shares_come_through_as_through_the_loader():
    source = make_arrays(40, grey=False)
    shares = np.random.default_rng(0).dirichlet(np.ones(len(source.classes)), 12).astype(np.float16)
    taught = Part(source, np.arange(12), "taught")
    taught.labels = Labels(shares.argmax(axis=1), len(source.classes), shares=shares)
    joined = Joined([Part(source, np.arange(12, 40), "rest"), taught], "all")
    for augment in (everything("pad"), AugmentConfig(crop="whole")):
        preparation = prepared(augment, (8, 8), channels=3, seed=6)
        expected = list(training_batches(joined, stream_of(joined), preparation, stop=5))
        assert_same(list(resident_batches(joined, stream_of(joined), preparation, stop=5)), expected)
        assert expected[0].targets.shape == (12, len(source.classes))


@pytest.mark.parametrize("grey", [True, False])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_pixels(grey, channels):
    source = make_arrays(9, grey=grey)
    part = Part(source, np.array([8, 0, 3]), "some")
    found = resident_pixels(part, channels, "cpu")
    assert (found.shape, found.dtype) == ((3, channels, 8, 8), torch.uint8)
    assert torch.equal(found, resident_pixels(source, channels, "cpu")[[8, 0, 3]])
    if grey or channels == 3:
        pixels = torch.from_numpy(source.pixels[8]).reshape(8, 8, -1).permute(2, 0, 1)
        assert torch.equal(found[0], pixels.expand(channels, 8, 8))


@pytest.mark.parametrize("crop", ["pad", "whole"])
@pytest.mark.parametrize(("grey", "channels"), [(True, 1), (True, 3), (False, 3)])
def test_the_batches_of_the_loader_bit_by_bit(crop, grey, channels):
    source = make_arrays(40, grey=grey)
    preparation = prepared(everything(crop), (8, 8), channels=channels, seed=6)
    expected = list(training_batches(source, stream_of(source), preparation, stop=10))
    assert_same(list(resident_batches(source, stream_of(source), preparation, stop=10)), expected)


@pytest.mark.parametrize("crop", ["inception", "resize", "pad", "whole"])
@pytest.mark.parametrize("name", ["google", "augreg"])
@pytest.mark.parametrize("size", [(8, 8), (13, 11), (6, 7)])
def test_what_is_resized_differs_by_its_roundings_at_most(crop, name, size):
    source = make_arrays(40)
    augment = AugmentConfig(crop=crop, resize=14, min_area=0.3)  # type: ignore[arg-type]
    preparation = prepared(augment, size, preset(name), seed=6)
    expected = training_batches(source, stream_of(source), preparation, stop=5)
    found = resident_batches(source, stream_of(source), preparation, stop=5)
    for one, other in zip(found, expected, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        assert torch.equal(one.targets, other.targets)
        levels = ((one.images - other.images) * 127.5).abs()
        # Bicubic is rounded twice, once for each direction, and the roundings may add up.
        assert levels.max() < (2.01 if preset(name).interpolation == "bicubic" else 1.01)
        assert levels.mean() < 0.3


def numbers(preparation: Preparation, source: Source, start: int, stop: int | None = None, **more: int):
    return resident_batches(source, stream_of(source, **more), preparation, start=start, stop=stop)


@pytest.mark.parametrize("most", [1, 3, 16])
def test_steps_that_are_made_together_are_what_they_are_alone(monkeypatch, most):
    source, preparation = make_arrays(40), prepared(everything("pad"), (8, 8), seed=6)
    whole = list(numbers(preparation, source, 0, 21))
    monkeypatch.setattr(resident, "_MOST_STEPS", most)
    for start in (0, 7, 20):
        assert_same(list(numbers(preparation, source, start, 21)), whole[start:])
    assert list(numbers(preparation, source, 5, 5)) == []
    assert_same(list(islice(numbers(preparation, source, 2), 4)), whole[2:6])


def test_the_memory_of_a_block_is_bounded(monkeypatch):
    source, preparation = make_arrays(40), prepared(everything("pad"), (8, 8), seed=6)
    monkeypatch.setattr(resident, "_BLOCK_BYTES", 2 * 4 * 12 * 3 * 8 * 8)
    asked: list[list[int]] = []
    block = resident._block
    monkeypatch.setattr(resident, "_block", lambda *given: asked.append(given[-1]) or block(*given))
    list(numbers(preparation, source, 3, 8))
    assert asked == [[3, 4], [5, 6], [7]]
    # One batch that is larger than the bound is still made.
    monkeypatch.setattr(resident, "_BLOCK_BYTES", 1)
    assert len(list(numbers(preparation, source, 0, 2))) == 2


def test_a_part_has_the_augmentation_of_the_whole():
    whole = make_arrays(40)
    part = Part(whole, np.arange(39, 9, -2), "some")
    preparation = prepared(everything("pad"), (8, 8), seed=6)
    found = list(numbers(preparation, part, 0, 4))
    assert_same(found, list(training_batches(part, stream_of(part), preparation, stop=4)))
    assert set(found[0].ids.tolist()) <= set(range(11, 40, 2))


def test_several_classes_per_image():
    source, preparation = make_arrays(several=True), prepared(AugmentConfig(crop="pad"), (8, 8), seed=6)
    (batch,) = numbers(preparation, source, 0, 1)
    assert batch.targets.tolist() == [[float(number < image % 3) for number in range(5)] for image in batch.ids]


def test_ranks_share_the_batches():
    source, preparation = make_arrays(23), prepared(AugmentConfig(crop="pad"), (8, 8), seed=6)
    whole = list(numbers(preparation, source, 0, 6))
    for rank in range(5):
        for mine, batch in zip(numbers(preparation, source, 0, 6, rank=rank, ranks=5), whole, strict=True):
            assert mine.ids.tolist() == batch.ids[rank::5].tolist()
            assert torch.equal(mine.images, batch.images[rank::5])


def test_the_set_itself_stays_as_it_is():
    source, preparation = make_arrays(), prepared(everything("whole"), (8, 8), seed=6)
    before = source.pixels.copy()
    first = list(numbers(preparation, source, 0, 4))
    assert np.array_equal(source.pixels, before)
    assert_same(list(numbers(preparation, source, 0, 4)), first)


def test_a_setting_that_cannot_be():
    source = make_arrays()
    preparation = prepared(AugmentConfig(crop="resize", resize=6), (8, 8))
    with pytest.raises(UsageError, match="resize is 6; wanted at least the input's 8 pixels"):
        list(numbers(preparation, source, 0, 1))
