"""The one EXIF fact that a data loader needs: how the stored pixels have to be turned.

EXIF blocks in the wild are often damaged (truncated, rationals like 1/0, wrong offsets). Nothing but the orientation
entry is looked at, and a block that cannot be followed means orientation 1: bad metadata never fails an image.
"""

from __future__ import annotations

from struct import Struct

_ORIENTATION_TAG = 0x0112
_INTEGERS = {1: 1, 3: 2, 4: 4}  # TIFF integer type -> bytes of one value: BYTE, SHORT, LONG
# (tag, type, count) of one 12-byte directory entry, by byte order; its value or offset follows.
_ORDERS: dict[bytes, tuple[Struct, str]] = {
    b"II*\0": (Struct("<HHI"), "little"),
    b"MM\0*": (Struct(">HHI"), "big"),
}


def exif_orientation(block: bytes) -> int:
    """The orientation (1..8) that an EXIF block asks for; 1 where it has none or is damaged.

    Args:
        block: a TIFF structure, with or without the leading ``Exif\\0\\0`` (EXIF 2.32, section 4.5 and 4.6.2).

    Returns:
        1 as stored, 2 mirrored, 3 turned by 180 degrees, 4 flipped, 5 transposed, 6 to be turned 90 degrees
        clockwise, 7 transversed, 8 to be turned 90 degrees counter-clockwise.
    """
    if block[:6] == b"Exif\0\0":
        block = block[6:]
    known = _ORDERS.get(block[:4])
    if known is None:
        return 1
    entry, order = known
    start = int.from_bytes(block[4:8], order)  # type: ignore[arg-type]
    count = int.from_bytes(block[start : start + 2], order)  # type: ignore[arg-type]
    first = start + 2
    last = min(first + 12 * count, len(block) - 11)  # a truncated directory is read as far as it goes
    for at in range(first, last, 12):
        tag, kind, values = entry.unpack_from(block, at)
        if tag == _ORIENTATION_TAG:
            size = _INTEGERS.get(kind, 0)
            value = int.from_bytes(block[at + 8 : at + 8 + size], order) if values == 1 else 1  # type: ignore[arg-type]
            return value if 1 <= value <= 8 else 1
    return 1
