"""Scratch: memory that one thread uses again for image after image.

Fresh megabytes come from the system as pages that fault one by one, which costs as much as copying them.
"""

from __future__ import annotations

import numpy as np

KEPT = 48 << 20  # bytes that are kept at most: 16 megapixels of RGB


class Scratch:
    """Memory for one image at a time; not for sharing between threads."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def take(self, height: int, width: int) -> np.ndarray:
        """(height, width, 3) uint8, C-contiguous, of any content; valid until the next call.

        Up to `KEPT` bytes it is the kept memory, which grows; above, new memory that is not kept.
        """
        size = height * width * 3
        if size > KEPT:
            return np.empty((height, width, 3), np.uint8)
        if size > self._memory.size:
            self._memory = np.empty(size, np.uint8)
        return self._memory[:size].reshape(height, width, 3)
