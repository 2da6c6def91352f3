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

    def holds_whole(self, height: int, width: int) -> bool:
        """Whether an image of that size is one tile, so that it lies as it is."""
        return (self.height, self.width) == (height, width)

    def place(self, image: np.ndarray, out: np.ndarray) -> None:
        """Write `image`, (height, width, 3) uint8 of any strides between pixels, to `out`, as many bytes in one piece.

        Raises:
            ValueError: the image is not a whole number of blocks.
        """
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
