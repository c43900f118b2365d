import io
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps
from tests.data.check.scenes import scene
from tests.data.pictures import encoded

from vitrail.config.decoding import DecodePolicy
from vitrail.data.check.duplicates import exact_groups, near_groups, near_pairs, pairs_within
from vitrail.data.check.scan import RECORD, scan
from vitrail.data.sources.labels import Labels
from vitrail.data.sources.source import Arrays


def brute_force(hashes: np.ndarray, distance: int) -> set[tuple[int, int]]:
    ones, others = np.triu_indices(len(hashes), 1)
    near = np.bitwise_count(hashes[ones] ^ hashes[others]) <= distance
    return set(zip(ones[near].tolist(), others[near].tolist(), strict=True))


def found(hashes: np.ndarray, distance: int) -> set[tuple[int, int]]:
    ones, others, _ = pairs_within(hashes, distance)
    pairs = list(zip(ones.tolist(), others.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    return set(pairs)


@given(st.data(), st.integers(0, 6))
def test_banding_finds_what_comparing_all_pairs_finds(data: st.DataObject, distance: int):
    """Hashes are drawn around few centres, so that many pairs are at every distance near the limit."""
    centres = data.draw(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4))
    flips = st.lists(st.integers(0, 63), max_size=8)
    hashes = []
    for centre, bits in data.draw(st.lists(st.tuples(st.sampled_from(centres), flips), max_size=25)):
        for bit in bits:
            centre ^= 1 << bit
        hashes.append(centre)
    array = np.asarray(hashes, dtype=np.uint64)
    assert found(array, distance) == brute_force(array, distance)


@pytest.mark.parametrize("bits", [1, 3, 20])
def test_banding_where_hashes_crowd_together(bits: int):
    """With few bits in use, as in drawings on white, most keys are equal."""
    hashes = np.random.default_rng(bits).integers(0, 2**bits, 200, dtype=np.uint64)
    assert found(hashes, 6) == brute_force(hashes, 6)


def test_more_than_six_bits_are_refused():
    with pytest.raises(ValueError, match="distance 7"):
        pairs_within(np.zeros(3, np.uint64), 7)


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_to_compare(count: int):
    assert found(np.zeros(count, np.uint64), 6) == set()


def test_mirrored_pairs_are_marked_and_nothing_pairs_with_itself():
    bits = np.asarray([1, 2**40 - 1, 2**63], np.uint64)
    mirrored = np.asarray([1, 2**63, 2**40 - 1], np.uint64)
    (ones, others, _), turned = near_pairs(bits, mirrored)
    told = set(zip(ones.tolist(), others.tolist(), turned.tolist(), strict=True))
    # 0 is its own mirror; 0 and 2 differ in two bits; 1 is the mirror of 2, found from both sides.
    assert told == {(0, 2, False), (1, 2, True), (2, 1, True), (0, 1, True), (2, 0, True)}


def records_of(images: list[Image.Image]) -> np.ndarray:
    """What a scan keeps of pictures that may differ in size."""
    size = {image.size for image in images}
    assert len(size) == 1
    pixels = np.stack([np.asarray(image) for image in images])
    source = Arrays("test", "train", ("all",), Labels.of([0] * len(images), 1), pixels)
    (seen,) = scan([source], policy=DecodePolicy())
    assert seen.records["good"].all()
    return seen.records


def same(groups: np.ndarray) -> set[frozenset[int]]:
    gathered = [frozenset(np.flatnonzero(groups == one).tolist()) for one in np.unique(groups)]
    return {group for group in gathered if len(group) > 1}


def again(image: Image.Image, quality: int) -> Image.Image:
    return Image.open(io.BytesIO(encoded(image, "JPEG", quality=quality))).convert("RGB")


def test_exact_near_and_mirrored_copies_among_others():
    images = [scene(number) for number in range(30)]
    images += [
        images[3].copy(),
        again(images[5], 60),
        ImageOps.mirror(images[7]),
        again(ImageOps.mirror(images[9]), 80),
    ]
    records = records_of(images)
    exact = exact_groups(records)
    assert same(exact) == {frozenset({3, 30})}
    assert same(near_groups(records, exact).groups) == {
        frozenset({3, 30}),
        frozenset({5, 31}),
        frozenset({7, 32}),
        frozenset({9, 33}),
    }


def test_copies_of_copies_are_one_group():
    first = scene(0)
    images = [first, again(first, 80), again(first, 50), ImageOps.mirror(first), first.copy(), scene(1)]
    records = records_of(images)
    assert same(near_groups(records, exact_groups(records)).groups) == {frozenset(range(5))}


def test_brighter_is_a_copy_and_another_colour_is_not():
    first = scene(0)
    brighter = first.point(lambda value: min(255, value * 1.05 + 4))
    red, green, blue = first.split()
    other = Image.merge("RGB", (blue, green, red))
    records = records_of([first, brighter, other])
    assert same(near_groups(records, exact_groups(records)).groups) == {frozenset({0, 1})}


def test_blank_pages_are_no_copies_of_each_other():
    pages = [Image.new("RGB", (64, 64), (240 - number,) * 3) for number in range(10)]
    rng = np.random.default_rng(0)
    grainy = [Image.fromarray(rng.normal(240, 3, (64, 64, 3)).clip(0, 255).astype(np.uint8)) for _ in range(10)]
    records = records_of(pages + grainy)
    assert same(near_groups(records, exact_groups(records)).groups) == set()


def test_a_hundred_thousand_images_in_seconds():
    rng = np.random.default_rng(0)
    count = 100_000
    records = np.zeros(count, RECORD)
    records["good"] = records["telling"] = True
    for name in ("pixels", "bits", "mirrored"):
        records[name] = rng.integers(0, 2**64, records[name].shape, dtype=np.uint64)
    records["thumbnail"] = rng.integers(0, 256, records["thumbnail"].shape, dtype=np.uint8)
    records[-1] = records[0]
    records["pixels"][-1] = 1
    begin = time.thread_time()
    groups = near_groups(records, exact_groups(records)).groups
    assert time.thread_time() - begin < 20
    assert same_pair(groups) == [0, count - 1]


def same_pair(groups: np.ndarray) -> list[int]:
    values, counts = np.unique(groups, return_counts=True)
    (repeated,) = values[counts > 1]
    return np.flatnonzero(groups == repeated).tolist()


def test_thousands_of_versions_of_one_picture_take_no_quadratic_time():
    records = np.zeros(20_000, RECORD)
    records["telling"] = True
    records["pixels"][:, 0] = np.arange(len(records))
    records["bits"] = 0x0123456789ABCDEF
    records["thumbnail"] = np.asarray(scene(0).convert("L").resize((16, 16)))
    begin = time.thread_time()
    groups = near_groups(records, exact_groups(records)).groups
    assert time.thread_time() - begin < 5
    assert len(np.unique(groups)) == 1


def disc(number: int, shape: str = "disc") -> Image.Image:
    """A bright thing with a texture of its own in the middle of a black ground, as seeds, eyes and X-rays are."""
    rng = np.random.default_rng(number)
    down, across = (np.mgrid[:128, :128] - 63.5) / 60
    radius = np.hypot(down, across)
    inside = radius < 1 if shape == "disc" else (abs(across) < 0.6) & (abs(down) < 0.9)
    light = 230 * np.clip(1.05 - radius**2, 0, 1) if shape == "disc" else 180 * np.ones((128, 128))
    texture = np.kron(rng.normal(0, 14, (8, 8)), np.ones((16, 16)))
    grey = (light * rng.uniform(0.55, 1) + texture) * inside
    return Image.fromarray(grey.clip(0, 255).astype(np.uint8)).convert("RGB")


def test_things_on_black_are_no_copies_of_each_other_and_their_copies_are_found():
    images = [disc(number) for number in range(300)]
    images += [again(images[1], 60), ImageOps.mirror(images[2]), again(ImageOps.mirror(images[3]), 80)]
    records = records_of(images)
    found = near_groups(records, exact_groups(records))
    assert same(found.groups) == {frozenset({1, 300}), frozenset({2, 301}), frozenset({3, 302})}
    assert found.notes == ("the pictures are much alike: near copies are told by what each has of its own.",)


def test_things_of_one_kind_among_other_pictures_are_no_copies():
    """Here no part is shared by all: only the crowd around each tells that the likeness means nothing."""
    images = [disc(number, "square") for number in range(60)] + [scene(number, (128, 128)) for number in range(120)]
    images += [again(images[1], 60), again(images[100], 60)]
    records = records_of(images)
    found = near_groups(records, exact_groups(records))
    assert same(found.groups) == {frozenset({1, 180}), frozenset({100, 181})}
    assert found.notes == ()


def test_thousands_of_like_pictures_take_no_quadratic_time():
    rng = np.random.default_rng(0)
    records = np.zeros(10_000, RECORD)
    records["telling"] = True
    records["pixels"][:, 0] = np.arange(len(records))
    records["bits"] = 0x0123456789ABCDEF ^ (np.uint64(1) << rng.integers(0, 64, len(records), dtype=np.uint64))
    ground = np.asarray(disc(0).convert("L").resize((16, 16)), np.float32)
    records["thumbnail"] = (ground + rng.normal(0, 14, (len(records), 16, 16))).clip(0, 255)
    begin = time.thread_time()
    found = near_groups(records, exact_groups(records))
    assert time.thread_time() - begin < 10
    assert same(found.groups) == set()


def test_crowded_hashes_are_compared_within_reach_and_that_is_told():
    hashes = np.full(50, 7, np.uint64)
    one, other, left_out = pairs_within(hashes, 6, reach=10)
    assert left_out
    assert (other - one).max() == 10
    assert not pairs_within(hashes, 6, reach=49).left_out
