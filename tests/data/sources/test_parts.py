"""Parts of a split: disjoint, complete, balanced, and the same everywhere."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vitrail.data.sources.labels import Labels
from vitrail.data.sources.parts import PartSpec, hold_out, parse_part, spread_order, take_part, without
from vitrail.data.sources.source import Arrays, Source
from vitrail.errors import DataError, UsageError
from vitrail.runtime.counter import permutation, uniforms

COUNTS = st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any)


def images(counts: list[int], seed: int = 0) -> Arrays:
    """A source with so many images of each class in a mixed order; pixel i is i, so that images can be told apart."""
    classes = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    pixels = np.arange(len(classes), dtype=np.uint32).view(np.uint8).reshape(-1, 2, 2)
    names = tuple(f"class {number}" for number in range(len(counts)))
    return Arrays("toy", "train", names, Labels.of(classes, len(counts)), pixels)


def part(source: Source, text: str) -> Source:
    return take_part(source, parse_part(text))


def identities(source: Source) -> list[int]:
    return source.ids(np.arange(len(source))).tolist()


@given(COUNTS, st.integers(1, 99))
def test_two_parts_that_meet_are_disjoint_and_complete(counts, percent) -> None:
    source = images(counts)
    cut = percent * len(source) // 100
    assume(0 < cut < len(source))
    first, second = part(source, f"train[:{percent}%]"), part(source, f"train[{percent}%:]")
    assert (len(first), len(second)) == (cut, len(source) - cut)
    assert sorted(identities(first) + identities(second)) == list(range(len(source)))


@given(COUNTS, st.lists(st.integers(0, 320), min_size=1, max_size=5, unique=True))
def test_any_number_of_parts_that_meet(counts, ends) -> None:
    source = images(counts)
    stops = sorted({min(end, len(source)) for end in ends} | {0, len(source)})
    parts = [part(source, f"train[{start}:{stop}]") for start, stop in itertools.pairwise(stops)]
    assert sorted(number for each in parts for number in identities(each)) == list(range(len(source)))


@given(COUNTS, st.integers(1, 99))
def test_every_class_is_in_proportion(counts, percent) -> None:
    """Within one image for two classes, and in general within 1 + (classes - 2) n_c / n."""
    source = images(counts)
    cut = percent * len(source) // 100
    assume(cut > 0)
    present = [count for count in counts if count]
    taken = part(source, f"train[:{percent}%]").labels.counts()
    for count, got in zip(counts, taken, strict=True):
        share = count / len(source)
        assert abs(got - cut * share) <= 1 + max(0, len(present) - 2) * share + 1e-9


@given(st.integers(1, 12), st.integers(1, 40), st.integers(1, 99))
def test_classes_of_equal_size_are_within_one_image(classes, size, percent) -> None:
    source = images([size] * classes)
    cut = percent * len(source) // 100
    assume(cut > 0)
    taken = part(source, f"train[:{percent}%]").labels.counts()
    assert np.abs(taken - cut / classes).max() <= 1
    assert taken.max() - taken.min() <= 1


@given(COUNTS)
def test_a_stretch_of_one_percent_after_another_covers_all(counts) -> None:
    source = images(counts)
    order = spread_order(source)
    assert sorted(order.tolist()) == list(range(len(source)))


def test_the_order_does_not_follow_the_files() -> None:
    order = spread_order(images([500]))
    assert abs(np.corrcoef(order, np.arange(500))[0, 1]) < 0.2


def test_the_same_text_means_the_same_images_for_good() -> None:
    """The numbers are written down: others would move images between training and validation."""
    labels = Labels.of([0, 0, 1, 0, 2, 0, 1, 0, 1, 0], 3)
    source = Arrays("toy", "train", ("a", "b", "c"), labels, np.zeros((10, 1, 1), np.uint8))
    assert identities(part(source, "train[:30%]")) == [3, 6, 7]
    assert spread_order(source).tolist() == [7, 3, 6, 9, 4, 1, 2, 5, 0, 8]


def test_ids_stay_with_the_images_in_parts_of_parts() -> None:
    source = images([10, 10])
    inner = part(part(source, "train[:50%]"), "train[2:7]")
    assert len(inner) == 5
    for index, identity in enumerate(identities(inner)):
        assert np.array_equal(inner.read(index), source.read(identity))
        assert inner.labels.classes_of(index) == source.labels.classes_of(identity)
        assert inner.where(index) == source.where(identity)


def test_a_part_keeps_the_order_of_the_whole() -> None:
    numbers = identities(part(images([30, 20]), "train[20%:80%]"))
    assert numbers == sorted(numbers)


def test_images_with_several_classes_are_parted_too() -> None:
    labels = Labels.of_many([[number % 3, 3] for number in range(50)], 4)
    source = Arrays("many", "train", ("a", "b", "c", "d"), labels, np.zeros((50, 1, 1), np.uint8))
    first, second = part(source, "train[:80%]"), part(source, "train[80%:]")
    assert sorted(identities(first) + identities(second)) == list(range(50))
    assert len(second) == 10
    assert second.labels.is_multi


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("train", PartSpec("train")),
        (" train[:98%] ", PartSpec("train", None, "98%")),
        ("val[98%:]", PartSpec("val", "98%", None)),
        ("train[10:20]", PartSpec("train", "10", "20")),
        ("train[10%:20]", PartSpec("train", "10%", "20")),
        ("train+unlabeled[:5]", PartSpec("train+unlabeled", None, "5")),
        ("train[:]", PartSpec("train")),
        ("test2[:5]", PartSpec("test2", None, "5")),
        ("Test_B", PartSpec("Test_B")),
    ],
)
def test_parts_are_read(text, wanted) -> None:
    read = parse_part(text)
    assert read == wanted
    assert parse_part(str(read)) == wanted


@pytest.mark.parametrize(
    "text",
    [
        *("", "train[", "train[5]", "train[:98", "train[-5:]", "train[:9.5%]", "train[::2]", "[:5]", "../train"),
        *("train[:5]x", "train[:%]", "train[:101%]", "train\n[:5]", f"train[:{'9' * 5000}]"),
    ],
)
def test_what_is_no_part_is_a_usage_error(text) -> None:
    with pytest.raises(UsageError, match=r"^the split is ") as caught:
        parse_part(text)
    assert "wanted" in str(caught.value)


@pytest.mark.parametrize("text", ["train[:0]", "train[:0%]", "train[60%:40%]", "train[10:]", "train[99%:99%]"])
def test_an_empty_part_is_a_data_error(text) -> None:
    with pytest.raises(DataError, match=r"^toy: train\[.*\] is empty: 10 images, from \d+ to \d+; wanted at least one"):
        part(images([5, 5]), text)


def test_a_part_beyond_the_end_stops_at_the_end() -> None:
    assert len(part(images([5, 5]), "train[4:1000]")) == 6


@given(st.lists(st.integers(2, 30), min_size=2, max_size=6), st.sampled_from([0.02, 0.1, 0.25, 0.5]))
def test_holding_out_keeps_every_class_to_learn_from(counts, share) -> None:
    source = images(counts)
    try:
        rest, held = hold_out(source, share)
    except DataError as error:
        assert "leaves no image of the class" in str(error)
        assert share == 0.5
        return
    assert sorted(identities(rest) + identities(held)) == list(range(len(source)))
    assert len(held) == max(1, round(share * len(source)))
    assert rest.labels.counts().min() >= 1
    assert rest.split == f"train without {100 * share:g}%"
    assert held.split == f"train, held-out {100 * share:g}%"


def test_a_held_out_share_is_the_end_of_the_same_order() -> None:
    source = images([50, 50])
    assert identities(hold_out(source, 0.1)[1]) == identities(part(source, "train[90%:]"))


def test_one_image_of_a_class_cannot_be_held_out_and_learnt() -> None:
    with pytest.raises(DataError, match=r"^toy: the class 'class 1' has one image, .*wanted two or more") as caught:
        hold_out(images([9, 1]), 0.1)
    assert "val/ folder of your own" in caught.value.fix


def test_too_large_a_share_is_explained() -> None:
    with pytest.raises(DataError, match=r"holding out 90% leaves no image of the class 'class \d' to learn from"):
        hold_out(images([2, 2, 2]), 0.9)


@pytest.mark.parametrize("share", [0, 1, -0.1, 2])
def test_a_share_is_between_none_and_all(share) -> None:
    with pytest.raises(UsageError, match="wanted between 0 and 1"):
        hold_out(images([5, 5]), share)


def grouped(source: Source, share: float, seed: int = 0) -> np.ndarray:
    """Groups of copies: about so many images are made copies of another, of any class."""
    random = np.random.default_rng(seed)
    groups = np.arange(len(source))
    for index in np.flatnonzero(random.random(len(source)) < share):
        groups[index] = groups[random.integers(0, index + 1)]
    return groups


@given(COUNTS)
def test_without_copies_the_order_is_that_of_always(counts) -> None:
    """As vitrail 0.1 computed it: splits of data without copies stay what they were."""
    source = images(counts)
    shuffled = permutation(2010_11929, 1, 0, len(source))
    classes = source.labels.values[shuffled]
    by_class = np.argsort(classes, kind="stable")
    firsts = np.concatenate([[0], np.cumsum(source.labels.counts())[:-1]])
    rank = np.empty(len(source), dtype=np.int64)
    rank[by_class] = np.arange(len(source)) - firsts[classes[by_class]]
    offset = uniforms(2010_11929, 2, 0, np.arange(len(counts)), 1)[:, 0]
    order = shuffled[np.argsort((rank + offset[classes]) / source.labels.counts()[classes], kind="stable")]
    assert spread_order(source).tolist() == spread_order(source, np.arange(len(source))).tolist() == order.tolist()


@given(COUNTS, st.lists(st.integers(1, 320), max_size=4, unique=True), st.floats(0, 1), st.integers(0, 9))
def test_parts_that_meet_share_no_copy(counts, ends, share, seed) -> None:
    source = images(counts)
    groups = grouped(source, share, seed)
    stops = sorted({min(end, len(source)) for end in ends} | {0, len(source)})
    found: list[list[int]] = []
    for start, stop in itertools.pairwise(stops):
        try:
            found.append(identities(take_part(source, parse_part(f"train[{start}:{stop}]"), groups)))
        except DataError as error:
            assert "is empty" in str(error)
    assert sorted(itertools.chain(*found)) == list(range(len(source)))
    assert sum(len(set(groups[part])) for part in found) == len(set(groups))


@pytest.mark.parametrize("copies", [2, 4])
@pytest.mark.parametrize("share", [0.1, 0.25])
def test_of_photos_that_are_all_there_several_times_as_many_of_each_class_are_held_out(copies, share) -> None:
    source = images([40] * 12)
    place = np.argsort(source.labels.values, kind="stable")
    groups = np.empty(480, np.int64)
    groups[place] = place.reshape(-1, copies).min(axis=1).repeat(copies)
    rest, held = hold_out(source, share, groups)
    assert not set(groups[identities(rest)]) & set(groups[identities(held)])
    assert abs(len(held) - share * 480) <= copies / 2
    assert np.abs(held.labels.counts() - share * 40).max() <= copies


def test_a_class_that_is_one_picture_is_learnt_from() -> None:
    source = images([30, 6])
    few = np.flatnonzero(source.labels.values == 1)
    for copies in (few, few[:4]):
        groups = np.arange(36)
        groups[copies] = copies[0]
        for share in (0.1, 0.5):
            assert set(copies) <= set(identities(hold_out(source, share, groups)[0]))


def test_copies_with_two_labels_stay_together() -> None:
    source = images([20, 20])
    one, other = (np.flatnonzero(source.labels.values == number) for number in (0, 1))
    groups = np.arange(40)
    groups[np.maximum(one, other)] = np.minimum(one, other)
    rest, held = hold_out(source, 0.25, groups)
    assert not set(groups[identities(rest)]) & set(groups[identities(held)])
    assert held.labels.counts().tolist() == [5, 5]


def test_a_class_of_copies_of_images_of_another_is_learnt_from() -> None:
    """Their groups belong to the class of the first image, wherever that stands."""
    for chosen in range(0, 60, 2):
        source = images([60, 2], seed=chosen)
        many, few = (np.flatnonzero(source.labels.values == number) for number in (0, 1))
        groups = np.arange(62)
        for one, other in zip(few, many[chosen : chosen + 2], strict=True):
            groups[[one, other]] = min(one, other)
        for share in (0.1, 0.3):
            assert hold_out(source, share, groups)[0].labels.counts()[1] > 0


def test_a_class_that_copies_leave_nothing_of_is_named_with_the_way_out() -> None:
    source = images([10, 10])
    groups = np.arange(20)
    pairs, same = (np.flatnonzero(source.labels.values == number) for number in (0, 1))
    groups[same], groups[pairs[1::2]] = same[0], pairs[::2]
    with pytest.raises(DataError, match=r"'class 0'.*data\.copies=apart") as caught:
        hold_out(source, 0.9, groups)
    assert source.where(int(pairs[0])) in str(caught.value)


def test_of_one_picture_alone_nothing_can_be_held_out() -> None:
    with pytest.raises(DataError, match=r"all 10 images are copies of one.*data\.copies=apart"):
        hold_out(images([5, 5]), 0.1, np.zeros(10, np.int64))


def test_a_part_of_copies_alone_says_why_it_is_empty() -> None:
    source, groups = images([10, 10]), np.arange(20)
    order = spread_order(source)
    members = np.sort(order[4:9])
    groups[members] = members[0]
    order = spread_order(source, groups)
    start = int(np.flatnonzero(order == members[0])[0])
    with pytest.raises(DataError, match=r"is empty: .* copies .*data\.copies=apart"):
        take_part(source, parse_part(f"train[{start}:{start + 1}]"), groups)


def test_leaving_images_out_says_how_many_and_why() -> None:
    source = images([3, 3])
    rest = without(source, [4, 1, 4], "unreadable")
    assert identities(rest) == [0, 2, 3, 5]
    assert rest.notes == ("2 of 6 images left out: unreadable.",)
    assert rest.split == "train"
    assert identities(without(source, [], "nothing")) == list(range(6))
