"""Images made on the fly: smooth pictures, EXIF blocks, and PNG files in layouts that Pillow does not write."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    """A smooth RGB picture without any symmetry."""
    coarse = np.random.default_rng(seed).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def encode(image: Image.Image, fmt: str, **options: Any) -> bytes:
    target = io.BytesIO()
    image.save(target, fmt, **options)
    return target.getvalue()


def exif(orientation: int, *, order: str = "<", kind: int = 3, resolution: tuple[int, int] | None = None) -> bytes:
    """An EXIF block (with its ``Exif`` prefix): optionally a resolution, which may be x/0, then the orientation."""
    entries = []
    if resolution is not None:
        entries.append(struct.pack(order + "HHII", 0x011A, 5, 1, 8 + 2 + 24 + 4))
    value = {1: "B3x", 3: "H2x", 4: "I"}.get(kind, "I")
    entries.append(struct.pack(order + "HHI" + value, 0x0112, kind, 1, orientation))
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8)
    body = struct.pack(order + "H", len(entries)) + b"".join(entries) + struct.pack(order + "I", 0)
    tail = b"" if resolution is None else struct.pack(order + "II", *resolution)
    return b"Exif\0\0" + head + body + tail


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(
    width: int, height: int, depth: int, colour: int, lines: list[bytes], *between: bytes, after: bytes = b""
) -> bytes:
    """A PNG of raw lines, with chunks `between` header and pixels and `after` the pixels."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(b"".join(b"\0" + line for line in lines)))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(between) + pixels + after + chunk(b"IEND", b"")


def insert_app1(jpeg: bytes, block: bytes) -> bytes:
    """The JPEG with `block` as its first APP1 segment."""
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block + jpeg[2:]
