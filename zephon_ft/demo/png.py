"""A PNG encoder whose bytes are the same on every machine.

Compressors differ between versions and builds, so nothing is compressed here: the pixels are stored (RFC 1951, 3.2.4)
and the Parquet file around them is what is compressed.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

_STORED = 65535  # bytes in a stored block, at most


def encode_png(pixels: np.ndarray, palette: Sequence[tuple[int, int, int]]) -> bytes:
    """An 8-bit palette image.

    Args:
        pixels: (height, width) uint8, indices into the palette.
        palette: up to 256 RGB colours.
    """
    height, width = pixels.shape
    lines = np.zeros((height, width + 1), np.uint8)  # a filter byte of 0 (none) before each line
    lines[:, 1:] = pixels
    header = width.to_bytes(4) + height.to_bytes(4) + bytes([8, 3, 0, 0, 0])
    colours = bytes(value for colour in palette for value in colour)
    chunks = ((b"IHDR", header), (b"PLTE", colours), (b"IDAT", _stored(lines.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4) + name + data + zlib.crc32(data, zlib.crc32(name)).to_bytes(4)


def _stored(data: bytes) -> bytes:
    """`data` as a zlib stream (RFC 1950) of stored blocks."""
    parts = [b"\x78\x01"]
    for start in range(0, len(data), _STORED):
        block = data[start : start + _STORED]
        last = start + _STORED >= len(data)
        parts += [bytes([last]), len(block).to_bytes(2, "little"), (len(block) ^ 0xFFFF).to_bytes(2, "little"), block]
    return b"".join(parts) + zlib.adler32(data).to_bytes(4)
