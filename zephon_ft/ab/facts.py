"""Facts: what one pass delivered, told so that sides with another order and another decoder can be compared.

Images are told by the row that they came from. Standard library and numpy only, so that every side can use it.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

IGNORE = -100  # a label that does not count
GRID = 8  # blocks along each side of an image


class Facts:
    """Collects what a side delivers in its check pass; `to_json` is order-independent.

    Call `image` once an image and, in the modes with tokens, `document` once a sample; in ``"fetch"``, `sample`.
    """

    def __init__(self) -> None:
        self._samples = self._tokens = self._labels = 0
        self._images: dict[str, tuple[str, list[float]]] = {}
        self._documents: list[str] = []
        self._twice: list[str] = []

    def sample(self) -> None:
        """A sample without tokens."""
        self._samples += 1

    def document(self, input_ids: np.ndarray, labels: np.ndarray | None = None) -> None:
        """The tokens of one sample, (n,), and its labels, (n,), of which -100 and the first do not count."""
        ids = np.ascontiguousarray(input_ids, np.int32)
        counted = np.zeros(0, np.int32) if labels is None else np.ascontiguousarray(labels[1:], np.int32)
        self._samples += 1
        self._tokens += len(ids)
        self._labels += int((counted != IGNORE).sum())
        self._documents.append(hashlib.sha256(ids.tobytes() + b"|" + counted.tobytes()).hexdigest())

    def image(self, row: int, pixels: np.ndarray, index: int = 0) -> None:
        """The pixels of one image: (H, W, 3) uint8 after the resize.

        Args:
            row: number of its row in the data file.
            index: its number among the row's images.
        """
        pixels = np.ascontiguousarray(pixels)
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
            raise ValueError(f"image {row}: expected (H, W, 3) uint8, got {pixels.shape} {pixels.dtype}")
        name = f"{row}:{index}"
        if name in self._images:
            self._twice.append(name)
        shape = f"{pixels.shape[0]}x{pixels.shape[1]}"
        digest = hashlib.sha256(shape.encode() + pixels.tobytes()).hexdigest()
        self._images[name] = (digest, [*pixels.shape[:2], *np.round(block_means(pixels), 3).ravel().tolist()])

    def to_json(self) -> dict[str, Any]:
        """Counts, digests of everything, and per image its height, width and means of 8 x 8 blocks by channel."""
        images = dict(sorted(self._images.items()))
        return {
            "samples": self._samples,
            "images": len(images),
            "twice": sorted(self._twice),
            "tokens": self._tokens,
            "labels": self._labels,
            "token_digest": hashlib.sha256("".join(sorted(self._documents)).encode()).hexdigest(),
            "pixel_digest": hashlib.sha256("".join(sorted(d for d, _ in images.values())).encode()).hexdigest(),
            "blocks": {name: means for name, (_, means) in images.items()},
        }


def block_means(pixels: np.ndarray) -> np.ndarray:
    """(H, W, 3) -> (8, 8, 3) float64: means of a grid of blocks, as even as whole pixels allow."""
    height, width = pixels.shape[:2]
    rows = np.linspace(0, height, GRID + 1).astype(int)
    columns = np.linspace(0, width, GRID + 1).astype(int)
    sums = np.add.reduceat(np.add.reduceat(pixels.astype(np.float64), rows[:-1], 0), columns[:-1], 1)
    return sums / (np.diff(rows)[:, None] * np.diff(columns))[..., None]


def unpatchify(patches: np.ndarray, grid: tuple[int, int, int], patch: int = 14, merge: int = 2) -> np.ndarray:
    """Rows of Qwen's block order back to an image (H, W, 3).

    Args:
        patches: (n, patch * patch * 3) uint8, one frame, RGB pixels line by line; n = grid height x grid width.
        grid: (1, height, width) in patches.
    """
    _, high, wide = (int(side) for side in grid)
    blocks = patches.reshape(high // merge, wide // merge, merge, merge, patch, patch, 3)
    return blocks.transpose(0, 2, 4, 1, 3, 5, 6).reshape(high * patch, wide * patch, 3)
