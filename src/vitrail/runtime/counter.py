"""Random numbers as a function of where they are used: no generator, no state, the same on every thread and worker.

Philox 4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") maps a 128-bit counter and a 64-bit
key to 128 random bits. The key is the seed; the counter says what the numbers are for.
"""

import numpy as np

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_ROUNDS = 10
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_PIECE = 2**18


def philox(counter: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    """Mix counters (..., 4) of 32-bit words with a key into as many random words; all arrays hold uint64."""
    a, b, c, d = (counter[..., word].astype(np.uint64) & _LOW for word in range(4))
    first, second = np.uint64(key[0]), np.uint64(key[1])
    for _ in range(_ROUNDS):
        product, other = _MULTIPLIERS[0] * a, _MULTIPLIERS[1] * c
        a, b, c, d = (other >> _HALF) ^ b ^ first, other & _LOW, (product >> _HALF) ^ d ^ second, product & _LOW
        first, second = (first + _WEYL[0]) & _LOW, (second + _WEYL[1]) & _LOW
    return np.stack([a, b, c, d], axis=-1)


def uniforms(seed: int, purpose: int, epoch: np.ndarray | int, ids: np.ndarray | int, count: int) -> np.ndarray:
    """`count` numbers in [0, 1) for each (epoch, id): float64 (..., count), each a multiple of 2^-32.

    `purpose` keeps apart what is drawn for different ends from the same seed, epoch and id.
    """
    words = random_words(seed, purpose, epoch, ids, count)
    return words.astype(np.float64) * 2.0**-32


def random_words(seed: int, purpose: int, epoch: np.ndarray | int, ids: np.ndarray | int, count: int) -> np.ndarray:
    """`count` random 32-bit words for each (epoch, id), as uint64 (..., count)."""
    epoch, ids = np.broadcast_arrays(np.asarray(epoch, dtype=np.uint64), np.asarray(ids, dtype=np.uint64))
    blocks = -(-count // 4)
    counter = np.empty((*ids.shape, blocks, 4), dtype=np.uint64)
    counter[..., 0] = np.arange(blocks, dtype=np.uint64) | np.uint64(purpose << 16)
    counter[..., 1] = (ids & _LOW)[..., None]
    counter[..., 2] = (ids >> _HALF)[..., None]
    counter[..., 3] = epoch[..., None]
    key = (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF)
    return philox(counter, key).reshape(*ids.shape, blocks * 4)[..., :count]


def permutation(seed: int, purpose: int, epoch: int, length: int) -> np.ndarray:
    """A random order of `length` things as a pure function of its arguments: a sort by 64 random bits each."""
    keys = np.empty(length, dtype=np.uint64)
    # In pieces, so that fourteen million images need no gigabytes of scratch.
    for start in range(0, length, _PIECE):
        words = random_words(seed, purpose, epoch, np.arange(start, min(start + _PIECE, length)), 2)
        keys[start : start + _PIECE] = (words[:, 0] << _HALF) | words[:, 1]
    return np.argsort(keys, kind="stable")
