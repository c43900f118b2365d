"""The wire format of protobuf, as far as one has to read it before a file is handed to a runtime."""

from collections.abc import Iterator

from vitrail.errors import DataError

Field = tuple[int, int | memoryview]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def fields(message: memoryview, where: str) -> Iterator[Field]:
    """Number and value of every field of a message: an integer, or a view of its bytes; nothing is copied."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place, where)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, place = _varint(message, place, where)
            yield number, value
            continue
        if wire == _BYTES:
            length, place = _varint(message, place, where)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise _damaged(f"a field of unknown kind {wire}", where)
        if length > len(message) - place:
            raise _damaged(f"a field of {length:,} bytes in a place of {len(message) - place:,}", where)
        yield number, message[place : place + length]
        place += length


def text_field(number: int, text: str) -> bytes:
    """A field that holds text, as it is written."""
    return bytes_field(number, text.encode())


def bytes_field(number: int, value: bytes) -> bytes:
    """A field that holds bytes, as it is written."""
    return _written(number << 3 | _BYTES) + _written(len(value)) + value


def _varint(message: memoryview, place: int, where: str) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            break
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise _damaged("a number without an end", where)


def _written(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _damaged(what: str, where: str) -> DataError:
    return DataError(f"the file is damaged or cut off: it has {what}", where=where)
