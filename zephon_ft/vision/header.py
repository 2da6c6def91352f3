"""Image headers: size, orientation, mode and format, read from the bytes without decoding a pixel.

JPEG, PNG and WebP are parsed here, in a few microseconds and without Pillow; every other format goes through Pillow's
lazy open. The size is the one after the EXIF orientation is applied, and the decoder later applies exactly the
orientation found here, so a token count taken from a header holds for the pixels. Only EXIF is asked for the
orientation (JPEG APP1, PNG eXIf, WebP EXIF), not XMP.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from zephon_ft.errors import ImageError
from zephon_ft.vision.exif import exif_orientation

# Facts of a parsed header as stored: width, height, orientation, mode.
_Facts = tuple[int, int, int, str]

_SOF_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # frame headers; the three are DHT, JPG, DAC
_BARE_MARKERS = frozenset(range(0xD0, 0xD9)) | {0x00, 0x01}  # markers without a length: RSTn, SOI, stuffing, TEM
_JPEG_MODES = {1: "L", 3: "RGB", 4: "CMYK"}
_PNG_MODES = {0: "L", 2: "RGB", 3: "P", 4: "LA", 6: "RGBA"}
_PNG_CHUNK = Struct(">I4s")
_WEBP_CHUNK = Struct("<4sI")
_LOOKALIKES = (
    (b"<!doctype html", "an HTML page"),
    (b"<html", "an HTML page"),
    (b"<head", "an HTML page"),
    (b"version https://git-lfs", "a git-LFS pointer (fetch the file itself with `git lfs pull`)"),
    (b"<svg", "an SVG drawing, which has no pixels of its own"),
    (b"<?xml", "an XML document (perhaps an error page of a server, or an SVG drawing)"),
    (b"%pdf", "a PDF document"),
    (b"%!ps", "a PostScript document"),
)


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """What is known of an image before it is decoded.

    Attributes:
        width, height: pixels, after `orientation` has been applied.
        orientation: EXIF orientation (1..8) that the decoder applies to the stored pixels.
        mode: Pillow's name of the stored pixel layout, e.g. ``"RGB"``, ``"CMYK"``, ``"L"``, ``"I;16"``, ``"P"``.
        format: Pillow's name of the format, e.g. ``"JPEG"``.
    """

    width: int
    height: int
    orientation: int
    mode: str
    format: str

    def __str__(self) -> str:
        return f"{self.format} of {self.width} x {self.height}"

    @property
    def stored_size(self) -> tuple[int, int]:
        """(width, height) as stored, before `orientation` is applied."""
        return (self.height, self.width) if self.orientation >= 5 else (self.width, self.height)


def read_header(data: bytes | memoryview) -> ImageHeader:
    """Read the header of an encoded image.

    Raises:
        ImageError: nothing there, not an image (its first bytes are named), or a header that is cut off or damaged.
    """
    if not isinstance(data, bytes):
        data = bytes(data)
    if data.startswith(b"\xff\xd8\xff"):
        name, facts = "JPEG", _jpeg(data)
    elif data.startswith(b"\x89PNG\r\n\x1a\n"):
        name, facts = "PNG", _png(data)
    elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        name, facts = "WEBP", _webp(data)
    else:
        name, facts = _other(data)
    width, height, orientation, mode = facts
    if width < 1 or height < 1:
        raise ImageError(f"damaged {name} header: it says {width} x {height} pixels")
    if orientation >= 5:
        width, height = height, width
    return ImageHeader(width, height, orientation, mode, name)


def _jpeg(data: bytes) -> _Facts:
    """Walk the segments up to the first scan: the frame header has the size, APP1 the EXIF block (ITU-T T.81, B)."""
    end = len(data)
    at = 2
    frame: tuple[int, int, str] | None = None
    orientation = 0
    while at + 4 <= end:
        if data[at] != 0xFF:  # junk between segments, skipped as every decoder does
            at = data.find(b"\xff", at)
            if at < 0:
                break
            continue
        marker = data[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
            continue
        if marker in _BARE_MARKERS:
            at += 2
            continue
        if marker == 0xDA or marker == 0xD9:  # first scan, or the end
            break
        length = data[at + 2] << 8 | data[at + 3]
        if marker == 0xE1:
            if not orientation and data[at + 4 : at + 10] == b"Exif\0\0":
                orientation = exif_orientation(data[at + 10 : at + 2 + length])
        elif marker in _SOF_MARKERS and frame is None:
            if at + 10 > end:
                break
            height = data[at + 5] << 8 | data[at + 6]
            width = data[at + 7] << 8 | data[at + 8]
            frame = width, height, _JPEG_MODES.get(data[at + 9], "unknown")
        at += 2 + length
    if frame is None:
        raise ImageError(f"truncated or damaged JPEG header: no frame header in {end} bytes")
    return frame[0], frame[1], orientation or 1, frame[2]


def _png(data: bytes) -> _Facts:
    """Size and mode from IHDR, orientation from eXIf, which may stand behind the pixels (PNG third edition, 11.3.4)."""
    if len(data) < 33 or data[12:16] != b"IHDR":
        raise ImageError(f"truncated or damaged PNG header: no IHDR chunk in {len(data)} bytes")
    width = int.from_bytes(data[16:20], "big")
    height = int.from_bytes(data[20:24], "big")
    depth, colour = data[24], data[25]
    mode = _PNG_MODES.get(colour, "unknown")
    if colour == 0 and depth in (1, 16):
        mode = "1" if depth == 1 else "I;16"
    unpack = _PNG_CHUNK.unpack_from
    at, last = 33, len(data) - 8
    while at <= last:
        length, kind = unpack(data, at)
        if kind == b"eXIf":
            return width, height, exif_orientation(data[at + 8 : at + 8 + length]), mode
        if kind == b"IEND":
            break
        at += length + 12
    return width, height, 1, mode


def _webp(data: bytes) -> _Facts:
    """The three kinds of first chunk: lossy VP8, lossless VP8L, extended VP8X (RFC 9649, section 2)."""
    if len(data) < 30:
        raise ImageError(f"truncated WebP header: {len(data)} bytes")
    kind = data[12:16]
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        size = int.from_bytes(data[26:30], "little")
        return size & 0x3FFF, size >> 16 & 0x3FFF, 1, "RGB"
    if kind == b"VP8L" and data[20] == 0x2F:
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, 1, "RGBA" if bits >> 28 & 1 else "RGB"
    if kind != b"VP8X":
        raise ImageError(f"damaged WebP header: first chunk {kind!r}")
    width = int.from_bytes(data[24:27], "little") + 1
    height = int.from_bytes(data[27:30], "little") + 1
    mode = "RGBA" if data[20] & 0x10 else "RGB"
    at, last = 12, len(data) - 8
    while at <= last:
        kind, length = _WEBP_CHUNK.unpack_from(data, at)
        if kind == b"EXIF":
            return width, height, exif_orientation(data[at + 8 : at + 8 + length]), mode
        at += 8 + length + (length & 1)  # chunks are padded to an even length
    return width, height, 1, mode


def _other(data: bytes) -> tuple[str, _Facts]:
    """Any other format, through Pillow."""
    if not data:
        raise ImageError("empty file")
    text = data[:64].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for prefix, meaning in _LOOKALIKES:
        if text.startswith(prefix):
            raise ImageError(f"not an image but {meaning}; first bytes {data[:16]!r}")
    from zephon_ft.vision.codec import open_image

    try:
        image = open_image(data)
    except ImageError as error:
        raise ImageError(f"not a readable image: {error}; first bytes {data[:16]!r}") from error
    name = image.format or "unknown"
    # A TIFF shows no EXIF block here: Pillow turns it by itself, and its size is the turned one already.
    orientation = exif_orientation(image.info.get("exif") or b"")
    return name, (image.width, image.height, orientation, image.mode)
