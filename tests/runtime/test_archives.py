"""An archive is refused by what it says of itself, before anything is unpacked."""

import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from vitrail.runtime.archives import MOST_TIMES, SMALL, Refused, ensure_stored, open_npz


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small array beside one of zeros, which shrinks a thousand times."""
    path = tmp_path_factory.mktemp("bomb") / "bomb.npz"
    np.savez_compressed(path, small=np.arange(5), large=np.zeros(SMALL + 1, np.uint8))
    assert path.stat().st_size < SMALL / 500
    return path


def test_much_more_than_it_holds(bomb) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Refused, match=f"more than {MOST_TIMES} times"):
            open_npz(bomb)
        assert tracemalloc.get_traced_memory()[1] < SMALL / 10
    finally:
        tracemalloc.stop()


def test_a_part_of_it_that_is_small(bomb) -> None:
    with open_npz(bomb, only=["small"]) as arrays:
        assert arrays["small"].tolist() == [0, 1, 2, 3, 4]


def test_compressed_numbers_and_small_archives(tmp_path) -> None:
    numbers = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    np.savez_compressed(tmp_path / "good.npz", numbers=numbers, zeros=np.zeros(10**6, np.uint8))
    with open_npz(tmp_path / "good.npz") as arrays:
        np.testing.assert_array_equal(arrays["numbers"], numbers)
        assert not arrays["zeros"].any()


@pytest.fixture
def stored(tmp_path) -> Path:
    """As torch writes it, with end records of 64 bits."""
    torch.save({"weight": torch.arange(1000)}, tmp_path / "model.pt")
    return tmp_path / "model.pt"


def refusal(path: Path) -> str:
    with pytest.raises(Refused) as refused, zipfile.ZipFile(path) as archive:
        ensure_stored(path, archive)
    return str(refused.value)


def rewritten(path: Path, compression: int = zipfile.ZIP_STORED, extra: bytes = b"") -> Path:
    """The same parts as Python writes them, with end records of 32 bits."""
    other = path.with_name("python.pt")
    with zipfile.ZipFile(path) as theirs, zipfile.ZipFile(other, "w", compression) as ours:
        for name in theirs.namelist():
            info = zipfile.ZipInfo(name)
            info.extra, info.compress_type = extra, compression
            ours.writestr(info, theirs.read(name))
    return other


def test_what_torch_and_python_write_is_stored(stored) -> None:
    one_field = struct.pack("<2HQ", 1, 8, 5) + struct.pack("<2H", 0x5455, 0)
    for path in (stored, rewritten(stored), rewritten(stored, extra=one_field)):
        with zipfile.ZipFile(path) as archive:
            ensure_stored(path, archive)


def test_parts_that_are_compressed_or_have_two_sizes(stored) -> None:
    assert "is compressed" in refusal(rewritten(stored, zipfile.ZIP_DEFLATED))
    assert "two sizes" in refusal(rewritten(stored, extra=struct.pack("<2HQ", 1, 8, 5) * 2))


def two_directories(whole: bytes, records: int) -> bytes:
    """Python takes the second, which is before the end record; torch the first, at the place that the record says."""
    end, offset = len(whole) - records, struct.unpack_from("<L", whole, len(whole) - 6)[0]
    return whole[:end] + whole[offset:end] + whole[end:]


def pointing_elsewhere(whole: bytes) -> bytes:
    """The record of 64 bits before the locator is not the one that the locator says."""
    other = bytearray(whole[:-98] + whole[-98:-42] + whole[-98:])
    struct.pack_into("<Q", other, len(other) - 98 + 48, struct.unpack_from("<L", whole, len(whole) - 6)[0])
    return bytes(other)


@pytest.mark.parametrize(
    ("by_torch", "change"),
    [
        (True, lambda whole: two_directories(whole, 98)),
        (False, lambda whole: two_directories(whole, 22)),
        (True, pointing_elsewhere),
        (True, lambda whole: whole[:-98] + b"between" + whole[-98:]),
        (False, lambda whole: whole[:-22] + b"between" + whole[-22:]),
        (True, lambda whole: whole[:-22] + b"PK\6\7" + bytes(16) + whole[-22:]),
        (True, lambda whole: whole[:-2] + b"\3\0end"),
        (True, lambda whole: b"before" + whole),
    ],
)
def test_a_directory_that_readers_look_for_in_two_places(stored, by_torch, change) -> None:
    path = stored if by_torch else rewritten(stored)
    path.write_bytes(change(path.read_bytes()))
    # Some of them Python's own reader refuses.
    with pytest.raises((Refused, zipfile.BadZipFile)), zipfile.ZipFile(path) as archive:
        ensure_stored(path, archive)


def test_what_is_no_archive(tmp_path) -> None:
    np.save(tmp_path / "one.npy", np.arange(3))
    with pytest.raises(zipfile.BadZipFile):
        open_npz(tmp_path / "one.npy")
