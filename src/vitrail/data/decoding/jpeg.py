"""What the markers of a JPEG say, read without a decoder: enough to choose a crop and a decoder before decoding."""

import re
from dataclasses import dataclass

_START = b"\xff\xd8\xff"
_FRAMES = {0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF}
_USUAL_FRAMES = {0xC0, 0xC1, 0xC2}
_ALONE = {0x01, *range(0xD0, 0xD8)}
_MISPLACED = {0x00, 0xD8, 0xD9}
_SCAN, _END = 0xDA, 0xD9
# Between scans: what is no stuffed byte, no restart and no filling.
_NEXT_SEGMENT = re.compile(rb"\xff[^\x00\x01\xd0-\xd7\xff]")
_EXIF_OR_XMP = 0xE1
_ADOBE = 0xEE


@dataclass(frozen=True)
class JpegHeader:
    """Size and components as stored, and what has a say in how they are shown."""

    height: int
    width: int
    components: bytes
    """The identifier of each."""
    precision: int
    is_usual: bool
    """Baseline or progressive, in Huffman codes: what every decoder reads."""
    may_turn: bool
    """Whether there is EXIF, or XMP with an orientation."""
    has_adobe: bool

    @property
    def is_plain(self) -> bool:
        """Whether every decoder agrees on what it shows: upright, 8 bits, YCbCr."""
        is_colour = len(self.components) == 3 and self.components != b"RGB"
        return is_colour and self.precision == 8 and self.is_usual and not self.may_turn and not self.has_adobe


def read_jpeg_header(encoded: bytes) -> JpegHeader | None:
    """Walk the segments up to the first scan; None for anything that is not a well-formed JPEG."""
    segments = _segments(encoded) if encoded.startswith(_START) else []
    frames = [(marker, body) for marker, body in segments if marker in _FRAMES]
    if len(frames) != 1:
        return None
    marker, body = frames[0]
    height, width = int.from_bytes(body[1:3], "big"), int.from_bytes(body[3:5], "big")
    if not height or not width or len(body) != 6 + 3 * body[5]:
        return None
    return JpegHeader(
        height=height,
        width=width,
        components=body[6::3],
        precision=body[0],
        is_usual=marker in _USUAL_FRAMES,
        # Wherever they stand: Pillow heeds them after the frame header too.
        may_turn=any(marker == _EXIF_OR_XMP and _may_turn(body) for marker, body in segments),
        has_adobe=any(marker == _ADOBE and body.startswith(b"Adobe") for marker, body in segments),
    )


def count_segments(encoded: bytes, at_most: int) -> int:
    """How many steps lead to the first scan, filling included; counting stops above `at_most`."""
    place, steps = 2, 0
    while steps <= at_most and encoded[place : place + 1] == b"\xff" and place + 1 < len(encoded):
        steps += 1
        marker = encoded[place + 1]
        if marker == _SCAN:
            break
        is_alone = marker in _ALONE or marker in _MISPLACED
        length = 0 if is_alone else int.from_bytes(encoded[place + 2 : place + 4], "big")
        place += 1 if marker == 0xFF else 2 + length
    return steps


def count_scans(encoded: bytes, at_most: int) -> int:
    """How often the decoder will go over all pixels; counting stops above `at_most`."""
    place, scans = 2, 0
    while scans <= at_most and (found := _NEXT_SEGMENT.search(encoded, place)):
        marker, place = encoded[found.end() - 1], found.end()
        if marker == _END:
            break
        scans += marker == _SCAN
        place += int.from_bytes(encoded[place : place + 2], "big")
    return scans


def _may_turn(body: bytes) -> bool:
    return body.startswith(b"Exif") or b"tiff:Orientation" in body


def _segments(encoded: bytes) -> list[tuple[int, bytes]]:
    """Marker and body of everything before the first scan; nothing when something is out of place or cut off."""
    place, segments = 2, []
    while place + 4 <= len(encoded) and encoded[place] == 0xFF:
        marker = encoded[place + 1]
        if marker == 0xFF:
            place += 1
            continue
        if marker in _ALONE:
            place += 2
            continue
        if marker == _SCAN:
            return segments
        if marker in _MISPLACED:
            break
        length = int.from_bytes(encoded[place + 2 : place + 4], "big")
        segments.append((marker, encoded[place + 4 : place + 2 + length]))
        place += 2 + length
    return []
