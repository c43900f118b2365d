"""TFRecord files of tf.train.Example messages, without TensorFlow: where each value lies, and no more is read."""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

from vitrail.data.sources.files import shown
from vitrail.errors import DataError

Span = tuple[int, int]
"""First byte and the one after the last."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MASK = 0xA282EAD8
_TABLE: list[int] = []


def examples(path: Path) -> Iterator[dict[str, Span | int]]:
    """The features of every record: where a string lies in the file, or an integer."""
    try:
        with path.open("rb") as file:
            if not path.stat().st_size:
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                for start, stop in _records(data, path):
                    yield _features(data, start, stop)
    except OSError as error:
        raise DataError(f"the file could not be read ({error.strerror})", where=shown(str(path))) from None
    except (IndexError, ValueError) as error:
        raise DataError(f"a record is damaged ({error})", where=shown(str(path))) from None


def _records(data: mmap.mmap, path: Path) -> Iterator[Span]:
    """Length (8 bytes), its checksum (4), the record, its checksum (4)."""
    place = 0
    while place < len(data):
        head = data[place : place + 12]
        if len(head) < 12:
            raise DataError("the file is cut off", where=shown(str(path)))
        length, checksum = struct.unpack("<QI", head)
        if masked_crc(head[:8]) != checksum:
            raise DataError("this is no TFRecord file, or it is damaged", where=f"{shown(str(path))}, byte {place}")
        start = place + 12
        place = start + length + 4
        if place > len(data):
            raise DataError("the file is cut off", where=shown(str(path)))
        yield start, start + length


def masked_crc(content: bytes) -> int:
    """CRC-32C, turned and shifted as TensorFlow stores it."""
    if not _TABLE:
        for byte in range(256):
            for _ in range(8):
                byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
            _TABLE.append(byte)
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def _features(data: mmap.mmap, start: int, stop: int) -> dict[str, Span | int]:
    """Example { features: 1 }, Features { feature: map 1 }, an entry { key: 1, value: 2 }."""
    found: dict[str, Span | int] = {}
    for _, features in _spans(data, (start, stop), 1):
        for _, entry in _spans(data, features, 1):
            key = next(_spans(data, entry, 1), None)
            if key is None:
                raise ValueError("a value without a name")
            name = data[slice(*key[1])].decode("utf-8")
            for _, feature in _spans(data, entry, 2):
                for value in _values(data, feature):
                    found[name] = value
    return found


def _values(data: mmap.mmap, feature: Span) -> Iterator[Span | int]:
    """Feature { bytes_list: 1, int64_list: 3 }, each { value: 1 }; integers may be packed."""
    for field, inside in _spans(data, feature):
        if field == 1:
            yield from (span for _, span in _spans(data, inside, 1))
        if field == 3:
            place, stop = inside
            tag, place = _varint(data, place) if place < stop else (0, place)
            if tag == 1 << 3 | _LENGTH:
                _, place = _varint(data, place)
            if place < stop:
                yield _varint(data, place)[0]


def _spans(data: mmap.mmap, message: Span, wanted: int | None = None) -> Iterator[tuple[int, Span]]:
    """The fields of a message that have a length."""
    place, stop = message
    while place < stop:
        tag, place = _varint(data, place)
        field, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            _, place = _varint(data, place)
            continue
        if kind in (_FIXED64, _FIXED32):
            place += 8 if kind == _FIXED64 else 4
            continue
        if kind != _LENGTH:
            raise ValueError(f"a field of kind {kind}")
        length, place = _varint(data, place)
        if place + length > stop:
            raise ValueError("a field goes beyond its message")
        if wanted in (None, field):
            yield field, (place, place + length)
        place += length


def _varint(data: mmap.mmap, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError("a number without an end")
