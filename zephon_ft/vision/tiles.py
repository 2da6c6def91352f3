"""Tiles: how the pixels of an image lie in the rows of a batch buffer, and the copy that brings them there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tiles of `height` x `width` pixels, one after the other; the three channels of a pixel are neighbours.

    Tiles run block by block, where a block is `merge` x `merge` of them: (block row, block column, row in block, column
    in block, line, pixel). An image is a whole number of blocks.
    """

    height: int
    width: int
    merge: int = 1

    def __post_init__(self) -> None:
        if min(self.height, self.width, self.merge) < 1:
            raise ValueError(f"{self}: each of these must be at least 1")

    def holds_whole(self, height: int, width: int) -> bool:
        """Whether an image of that size is one tile, so that it lies as it is."""
        return self.merge == 1 and (self.height, self.width) == (height, width)

    def check(self, height: int, width: int, out: np.ndarray) -> None:
        """Check that an image of that size is a whole number of blocks and `out` as many bytes of uint8 in one piece.

        Raises:
            ValueError: it is not; says both.
        """
        if height % (self.height * self.merge) or width % (self.width * self.merge) or min(height, width) < 1:
            raise ValueError(f"an image of {width} x {height} pixels is not a whole number of blocks of {self}")
        if out.dtype != np.uint8 or out.size != 3 * height * width or not out.flags.carray:
            size = 3 * height * width
            raise ValueError(f"{out.shape} {out.dtype}: {size} writable bytes of uint8 in one piece are needed")

    def place(self, image: np.ndarray, out: np.ndarray) -> None:
        """Write `image`, (height, width, 3) uint8 of any strides, to `out`, as many bytes of uint8 in one piece.

        Raises:
            ValueError: the image is not a whole number of blocks, or `out` is something else.
        """
        self.check(image.shape[0], image.shape[1], out)
        if self.holds_whole(*image.shape[:2]):
            np.copyto(out.reshape(image.shape), image)
            return
        # One line of a tile moves as one item, pixels and channels together: nothing is moved byte by byte.
        height, width, merge = self.height, self.width, self.merge
        item = np.dtype((np.void, 3 * width))
        lines = np.ascontiguousarray(image).reshape(len(image), -1).view(item)
        rows, columns = len(image) // (height * merge), image.shape[1] // (width * merge)
        source = lines.reshape(rows, merge, height, columns, merge)
        target = out.reshape(-1).view(item).reshape(rows, columns, merge, merge, height)
        np.copyto(target, source.transpose(0, 3, 1, 4, 2))
