"""What nearly all pictures of a set have in common: the pose and the ground of seeds, X-rays or eyes.

Thumbnails, standardised, are vectors of 256 numbers. Directions that hold more than a tenth of the sum of their squares
are shared when they hold more than half of it together: one direction for discs on black (0.97), two for discs and
squares, none for photos (the first holds 0.19). Being an average over the set and its mirror image, the shared part of
a mirrored picture is the mirrored shared part.
"""

import numpy as np

from vitrail.data.check.hashes import THUMBNAIL, detail

_LENGTH = THUMBNAIL**2
_EACH, _TOGETHER = 0.1, 0.5
# Of fewer pictures it cannot be told whether they are alike or copies.
_ENOUGH = 32
_SAMPLE = 20_000
_ALIKE, _MANY = 0.95, 6
_AT_ONCE = 1024


def standard(thumbnails: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Thumbnails (n, 16, 16) without their plane, each of mean square 1, and the contrast (n,) that was divided by."""
    values = detail(thumbnails)
    contrast = np.maximum(values.std(axis=(1, 2)), 1e-6)
    return values / contrast[:, None, None], contrast


def in_common(records: np.ndarray) -> np.ndarray:
    """Orthonormal columns (256, k) that span what the pictures share; k is 0 where they are not alike."""
    # Pictures with equal hashes count once, so that many copies of one picture are not what all have in common.
    chosen = np.sort(np.unique(records["bits"], return_index=True)[1])
    if len(chosen) < _ENOUGH:
        return np.empty((_LENGTH, 0), np.float32)
    chosen = chosen[:: -(-len(chosen) // _SAMPLE)]
    values, _ = standard(records["thumbnail"][chosen])
    both = np.concatenate([values, values[:, :, ::-1]]).reshape(-1, _LENGTH)
    shares, directions = np.linalg.eigh(both.T @ both / np.square(both).sum())
    large = shares > _EACH
    return directions[:, large] if shares[large].sum() > _TOGETHER else directions[:, :0]


def without(shared: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Thumbnails (n, 16, 16) less their part in the shared directions."""
    if not shared.shape[1]:
        return values
    flat = values.reshape(-1, _LENGTH)
    return (flat - (flat @ shared) @ shared.T).reshape(values.shape)


def has_many_alike(thumbnails: np.ndarray, everything: np.ndarray) -> np.ndarray:
    """Whether each picture (n,) is much like many of a set, itself included."""
    sample = unit(standard(everything[:: max(1, len(everything) // _SAMPLE)])[0]).T
    found = np.zeros(len(thumbnails), bool)
    for start in range(0, len(thumbnails), _AT_ONCE):
        piece = slice(start, start + _AT_ONCE)
        correlation = unit(standard(thumbnails[piece])[0]) @ sample
        found[piece] = (correlation >= _ALIKE).sum(axis=1) >= _MANY
    return found


def unit(values: np.ndarray) -> np.ndarray:
    """Thumbnails as vectors (n, 256) of length 1."""
    flat = values.reshape(-1, _LENGTH)
    return flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-6)
