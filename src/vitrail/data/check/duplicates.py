"""Which images are copies of each other, exactly or nearly.

Near copies are candidates whose difference hashes differ in at most 6 of 64 bits, plain or mirrored, confirmed by their
grey thumbnails (correlation of at least 0.98 once the plane that fits each best is removed) and their tint (within 12
levels). Measured on 410 photos: copies as JPEG 30, as WebP 75, at half the size or brighter are found in 99.8 % of the
cases, those of crops of about 100 pixels in 94 to 98 %; of the 11 million pairs of 4,645 different crops none is near,
and the most alike reach 0.954.

Pictures of one pose on one ground (discs on black, seeds, X-rays) reach that much without being copies. What all of
them share is then taken away first, from the hashes and from the thumbnails (see `shared.py`). Where only some of the
pictures are of one kind, those must agree the more closely.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np

from vitrail.data.check.hashes import difference_bits
from vitrail.data.check.shared import has_many_alike, in_common, standard, unit, without

DISTANCE = 6
CORRELATION = 0.98
# Of what is left without the shared part: copies keep 0.97 and more, different pictures stay below 0.7.
OWN_CORRELATION = 0.9
# By how much (root mean square) two thumbnails may differ once brightness and contrast are evened out.
LEVELS = 8.0
# Where a picture has many like it, all may show one kind of thing: re-encoding differs by 1 level, such things by 5.
LEVELS_IN_A_CROWD = 4.0
TINT = 12
# With how many hashes that share two bytes each is compared; they are sorted, so the nearest are likely among them.
REACH = 1024
_CONFIRMED_AT_ONCE = 2**15


class NearCopies(NamedTuple):
    """A number for each image, which copies share, and what has to be said of the comparison."""

    groups: np.ndarray
    notes: tuple[str, ...]


class Pairs(NamedTuple):
    """Places of the two of each pair."""

    one: np.ndarray
    other: np.ndarray
    left_out: bool
    """Whether so many hashes share their bytes that not all of them were compared."""


def exact_groups(records: np.ndarray) -> np.ndarray:
    """A number for each image; images with the same pixels share it."""
    whole = np.ascontiguousarray(records["pixels"]).view([("high", "u8"), ("low", "u8")]).reshape(-1)
    return np.unique(whole, return_inverse=True)[1].reshape(-1)


def near_groups(records: np.ndarray, exact: np.ndarray) -> NearCopies:
    """Find the images that are copies, exactly or nearly."""
    first, inverse = np.unique(exact, return_index=True, return_inverse=True)[1:]
    distinct = records[first]
    parents = np.arange(len(first))
    usable = np.flatnonzero(distinct["telling"])
    shared = in_common(distinct[usable])
    bits, mirrored = _hashes(distinct, shared)
    # Pictures with equal hashes are compared with the first of them only, so that ten thousand versions of one picture
    # are not compared pair by pair.
    _, leaders, of = np.unique(bits[usable], return_index=True, return_inverse=True)
    leader = usable[leaders[of.reshape(-1)]]
    joined = (leader != usable) & _look_alike(distinct, leader, usable, np.zeros(len(usable), bool), shared)
    _join(parents, leader[joined], usable[joined])
    rest = usable[~joined]
    (one, other, left_out), turned = near_pairs(bits[rest], mirrored[rest])
    same = _look_alike(distinct, rest[one], rest[other], turned, shared)
    _join(parents, rest[one[same]], rest[other[same]])
    return NearCopies(_roots(parents)[inverse.reshape(-1)], tuple(_notes(shared, left_out)))


def _notes(shared: np.ndarray, left_out: bool) -> Iterator[str]:
    if shared.shape[1]:
        yield "the pictures are much alike: near copies are told by what each has of its own."
    if left_out:
        yield "many pictures have nearly the same outline: not all of them were compared, near copies may be missed."


def _hashes(records: np.ndarray, shared: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The difference hashes of all pictures and of their mirrored ones, without what they share."""
    if not shared.shape[1]:
        return records["bits"], records["mirrored"]
    bits, mirrored = np.empty((2, len(records)), np.uint64)
    for start in range(0, len(records), _CONFIRMED_AT_ONCE):
        piece = slice(start, start + _CONFIRMED_AT_ONCE)
        own = without(shared, standard(records["thumbnail"][piece])[0])
        bits[piece], mirrored[piece] = difference_bits(own), difference_bits(own[:, :, ::-1])
    return bits, mirrored


def near_pairs(bits: np.ndarray, mirrored: np.ndarray) -> tuple[Pairs, np.ndarray]:
    """Pairs whose hashes are within DISTANCE, and whether it is the mirrored one of the second that is near."""
    length = len(bits)
    one, other, left_out = pairs_within(np.concatenate([bits, mirrored]), DISTANCE)
    # Of two mirrored hashes nothing is learnt, and a symmetric image is its own mirror.
    wanted = (one < length) & (other != one + length)
    one, other = one[wanted], other[wanted]
    return Pairs(one, other % max(length, 1), left_out), other >= length


def pairs_within(hashes: np.ndarray, distance: int, reach: int = REACH) -> Pairs:
    """All pairs i < j of 64-bit hashes that differ in at most `distance` (up to 6) bits.

    Two hashes that differ in 6 bits or fewer agree in at least two of their eight bytes (pigeonhole), so only those
    that share a pair of bytes are compared: about 28 / 65,536 of all pairs when hashes are spread evenly, and for each
    at most the next `reach`, in the order of the hashes, when they crowd together.
    """
    if not 0 <= distance <= 6:
        raise ValueError(f"distance {distance} needs more than two equal bytes")
    length = len(hashes)
    by_value = np.argsort(hashes, kind="stable")
    table = np.ascontiguousarray(hashes[by_value], dtype="<u8").view(np.uint8).reshape(length, 8)
    found = [np.empty((2, 0), dtype=np.int64)]
    left_out = False
    for first, second in combinations(range(8), 2):
        keys = table[:, first].astype(np.uint16) << 8 | table[:, second]
        order = np.argsort(keys, kind="stable")
        pairs, more = _equal_and_near(keys[order], hashes[by_value[order]], distance, reach)
        one, other = order[pairs]
        # A pair that agrees in more bytes comes up again: it counts where those are its first two.
        agrees = np.flatnonzero((table[one, :second] == table[other, :second]).sum(axis=1) == 1)
        found.append(by_value[np.stack([one[agrees], other[agrees]])])
        left_out |= more
    pairs = np.sort(np.concatenate(found, axis=1), axis=0)
    one, other = pairs[:, np.lexsort(pairs[::-1])]
    return Pairs(one, other, left_out)


def _equal_and_near(keys: np.ndarray, hashes: np.ndarray, distance: int, reach: int) -> tuple[np.ndarray, bool]:
    """Pairs (2, n) with equal keys, in sorted order, and near hashes; and whether there may be more."""
    length = len(keys)
    pairs = [np.empty((2, 0), dtype=np.int64)]
    start = np.arange(length)
    # Equal keys lie side by side: what equals the one `step` places on equals those between, so `start` only shrinks.
    for step in range(1, length):
        start = start[start < length - step]
        start = start[keys[start] == keys[start + step]]
        if not len(start) or step > reach:
            break
        near = start[np.bitwise_count(hashes[start] ^ hashes[start + step]) <= distance]
        pairs.append(np.stack([near, near + step]))
    return np.concatenate(pairs, axis=1), len(start) > 0 and length > reach + 1


def _look_alike(
    records: np.ndarray, one: np.ndarray, other: np.ndarray, mirrored: np.ndarray, shared: np.ndarray
) -> np.ndarray:
    """Whether thumbnails and tints of pairs agree; brightness and contrast may differ."""
    same = np.zeros(len(one), bool)
    levels = np.zeros(len(one), np.float32)
    for start in range(0, len(one), _CONFIRMED_AT_ONCE):
        piece = slice(start, start + _CONFIRMED_AT_ONCE)
        # Every image is prepared once for all the pairs that it is in.
        images, places = np.unique(np.concatenate([one[piece], other[piece]]), return_inverse=True)
        first, second = places.reshape(2, -1)
        whole, contrast = standard(records["thumbnail"][images])
        tints = records["tint"][images].astype(int)
        correlation = _correlation(whole, first, second, mirrored[piece])
        own = _correlation(without(shared, whole), first, second, mirrored[piece])
        levels[piece] = np.sqrt(2 * (1 - correlation).clip(0)) * np.minimum(contrast[first], contrast[second])
        same[piece] = (
            (correlation >= CORRELATION)
            & (own >= OWN_CORRELATION)
            & (levels[piece] <= LEVELS)
            & (np.abs(tints[first] - tints[second]).max(axis=1) <= TINT)
        )
    sure = levels <= LEVELS_IN_A_CROWD
    images = np.unique(np.concatenate([one[same & ~sure], other[same & ~sure]]))
    crowded = np.zeros(len(records), bool)
    crowded[images] = has_many_alike(records["thumbnail"][images], records["thumbnail"])
    return same & (sure | ~(crowded[one] | crowded[other]))


def _correlation(values: np.ndarray, first: np.ndarray, second: np.ndarray, mirrored: np.ndarray) -> np.ndarray:
    flat = unit(values)
    turned = flat.reshape(values.shape)[:, :, ::-1].reshape(flat.shape)
    found = np.empty(len(first), np.float32)
    for rows, others in ((~mirrored, flat), (mirrored, turned)):
        found[rows] = np.einsum("ij,ij->i", flat[first[rows]], others[second[rows]])
    return found


def _join(parents: np.ndarray, ones: np.ndarray, others: np.ndarray) -> None:
    for one, other in zip(ones.tolist(), others.tolist(), strict=True):
        low, high = sorted((_root(parents, one), _root(parents, other)))
        parents[high] = low


def _root(parents: np.ndarray, node: int) -> int:
    while parents[node] != node:
        parents[node] = parents[parents[node]]
        node = int(parents[node])
    return node


def _roots(parents: np.ndarray) -> np.ndarray:
    """Follow every node to its root at once; a parent is never larger than its child."""
    while True:
        above = parents[parents]
        if np.array_equal(above, parents):
            return parents
        parents = above
