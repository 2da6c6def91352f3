"""Resize, turn upright and cut into tiles in one pass over the pixels, by a compiled function (fused_resize.c).

It computes what torch's antialiased uint8 bicubic computes, bit for bit, so it is no part of the recipe: where it is
missing (no C compiler when the package was built, a CPU without AVX2) torch and numpy do the same in three passes. The
function has nothing of Python in it; one file serves every interpreter.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from zephon_ft.vision.tiles import Tiles

LIBRARY = Path(__file__).with_name("_fused_resize.so")

_int, _double, _pointer = ctypes.c_int, ctypes.c_double, ctypes.c_void_p
_ARGUMENTS = (_pointer, _int, _int, _pointer, _int, _int, _double, _double, _int, _int, _int, _int, _int)
VECTORS = {4: "AVX-512", 2: "AVX2"}  # by 16-byte lanes

Resize = Callable[[np.ndarray, tuple[float, float], tuple[int, int], int, Tiles, np.ndarray], None]


def vectors() -> str | None:
    """The vector instructions that it uses here: "AVX2" or "AVX-512"; None where it does not work."""
    return VECTORS.get(_load()[1])


def fused_resize(most_lanes: int = 4) -> Resize | None:
    """A new function ``resize(pixels, box, size, orientation, tiles, out)``, None where it does not work.

    Take one for each thread: threads that share one wait for each other at its edges.

    Args:
        most_lanes: 2 keeps to AVX2; the result is the same.

    Args (the function):
        pixels: (height, width, 3) uint8, C-contiguous, as stored.
        box: (width, height) of the part to take, in pixels from the upper left corner.
        size: (width, height) of the result as stored, before it is turned.
        orientation: 1 to 8, of EXIF.
        tiles: how the upright result lies in `out`.
        out: uint8, C-contiguous, of as many bytes as the result has; every one is written.

    Raises (the function):
        ValueError: arrays that are not like that, or a result that is not a whole number of blocks of tiles.
        MemoryError: it could not get its working memory (a few rows).
    """
    call, lanes = _load()
    lanes = min(lanes, most_lanes)
    if lanes not in VECTORS:
        return None
    call.argtypes, call.restype = _ARGUMENTS, _int

    def resize(
        pixels: np.ndarray,
        box: tuple[float, float],
        size: tuple[int, int],
        orientation: int,
        tiles: Tiles,
        out: np.ndarray,
    ) -> None:
        height, width, channels = pixels.shape
        new_width, new_height = size
        upright = size if orientation < 5 else size[::-1]
        tiles.check(upright[1], upright[0], out)
        if channels != 3 or pixels.dtype != np.uint8 or not pixels.size or not pixels.flags.c_contiguous:
            raise ValueError(f"{pixels.shape} {pixels.dtype}: (height, width, 3) uint8 in one piece is needed")
        if not (0 < box[0] <= width and 0 < box[1] <= height and 1 <= orientation <= 8):
            raise ValueError(f"box {box}, orientation {orientation}, for an image of {width} x {height} pixels")
        failed = call(
            pixels.ctypes.data, height, width, out.ctypes.data, new_height, new_width,
            1.0 / (new_height / box[1]), 1.0 / (new_width / box[0]),  # rounded as torch does it
            orientation, tiles.height, tiles.width, tiles.merge, lanes,
        )  # fmt: skip
        if failed:
            raise MemoryError(f"no memory for rows of an image of {width} x {height} pixels")

    return resize


def _load() -> tuple[Any, int]:
    """The compiled function, a new object at each call, and the lanes that this CPU has; None and 0 without one."""
    try:
        library = ctypes.CDLL(str(LIBRARY))
        return library["zephon_ft_resize_1"], library.zephon_ft_lanes()
    except (OSError, AttributeError):  # not built, or from another state of the source or for another machine
        return None, 0
