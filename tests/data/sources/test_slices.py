import numpy as np
import pytest

from vitrail.data.sources.labels import Labels
from vitrail.data.sources.slices import Slices, Stretches
from vitrail.errors import DataError


def made(path, sizes: list[int], **more) -> Slices:
    starts = np.array([3, 7], dtype=np.int64)
    stretches = Stretches((str(path),), np.zeros(2, dtype=np.int64), starts, np.array(sizes), **more)
    return Slices("toy", "train", ("a", "b"), Labels.of([0, 1], 2), stretches, ["first", "second"])


def test_bytes_pixels_and_bits(tmp_path):
    path = tmp_path / "images"
    path.write_bytes(bytes(range(20)))
    assert made(path, [4, 2]).read(1) == bytes([7, 8])
    assert np.asarray(made(path, [4, 4], shape=(2, 2)).read(0)).tolist() == [[3, 4], [5, 6]]
    bits = np.asarray(made(path, [1, 1], shape=(2, 4), bits=True).read(0))
    assert (bits.dtype, bits.tolist()) == (np.uint8, [[0, 0, 0, 0], [0, 0, 255, 255]])
    assert made(path, [4, 2]).where(1) == f"{path}: second"
    assert list(made(path, [4, 2]).holders()) == [path]


def test_a_file_that_is_cut_off_or_gone(tmp_path):
    path = tmp_path / "images"
    path.write_bytes(bytes(9))
    source = made(path, [4, 4])
    with pytest.raises(DataError, match=r"images: second: the file is cut off\.$"):
        source.read(1)
    path.unlink()
    with pytest.raises(DataError, match=r"images: first: the file could not be read \(No such file"):
        source.read(0)
