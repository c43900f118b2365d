"""What the header of a JPEG says, read without a decoder: enough to choose a crop and a decoder before decoding."""

from dataclasses import dataclass

_START = b"\xff\xd8\xff"
_FRAMES = {0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF}
_ALONE = {0x01, *range(0xD0, 0xD9)}
_SCAN = 0xDA
_EXIF = 0xE1
_ADOBE = 0xEE


@dataclass(frozen=True)
class JpegHeader:
    """Size and components as stored, and whether an EXIF block might turn the image."""

    height: int
    width: int
    components: int
    precision: int
    has_exif: bool
    has_adobe: bool

    @property
    def is_plain(self) -> bool:
        """Whether every decoder agrees on what it shows: upright, 8 bits, YCbCr."""
        return self.components == 3 and self.precision == 8 and not self.has_exif and not self.has_adobe


def read_jpeg_header(encoded: bytes) -> JpegHeader | None:
    """Walk the segments up to the frame header; None for anything that is not a well-formed JPEG."""
    if not encoded.startswith(_START):
        return None
    place, has_exif, has_adobe = 2, False, False
    while place + 4 <= len(encoded):
        if encoded[place] != 0xFF:
            return None
        marker = encoded[place + 1]
        if marker == 0xFF:
            place += 1
            continue
        if marker in _ALONE:
            place += 2
            continue
        length = int.from_bytes(encoded[place + 2 : place + 4], "big")
        body = encoded[place + 4 : place + 2 + length]
        if marker in _FRAMES:
            return _frame(body, has_exif, has_adobe)
        if marker == _SCAN or length < 2:
            return None
        has_exif |= marker == _EXIF and body.startswith(b"Exif")
        has_adobe |= marker == _ADOBE and body.startswith(b"Adobe")
        place += 2 + length
    return None


def _frame(body: bytes, has_exif: bool, has_adobe: bool) -> JpegHeader | None:
    if len(body) < 6:
        return None
    height, width = int.from_bytes(body[1:3], "big"), int.from_bytes(body[3:5], "big")
    if not height or not width:
        return None
    return JpegHeader(height, width, body[5], body[0], has_exif, has_adobe)
