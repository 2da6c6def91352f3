"""preview: the images of a batch, put together again from its patches: what a model is really shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from zephon_ft.batch import Batch
    from zephon_ft.vision.geometry import Geometry


@dataclass(frozen=True, slots=True)
class Preview:
    """One image of a batch.

    Attributes:
        pixels: (height, width, 3) uint8, as resized.
        tokens: its placeholder tokens: flat indices into `input_ids`, int64 (tokens,).
    """

    pixels: np.ndarray
    tokens: np.ndarray


def previews(batch: Batch, image_token_id: int) -> list[Preview]:
    """All images of a batch, in order; the dummy of `batch(ensure_image=True)` is one of them (black).

    Args:
        batch: a token batch.
        image_token_id: the placeholder's id, for finding which tokens belong to which image.
    """
    places = np.flatnonzero(batch.arrays["input_ids"].reshape(-1) == image_token_id)
    found: list[Preview] = []
    start = 0
    for name, kind in batch.kinds.items():
        for pixels, tokens in reassemble(batch, name, kind.geometry):
            found.append(Preview(pixels, places[start : start + tokens]))
            start += tokens
    return found


def reassemble(batch: Batch, buffer: str, geometry: Geometry) -> list[tuple[np.ndarray, int]]:
    """(pixels, number of tokens) of each image in one media buffer: the inverse of `Geometry.patchify`."""
    rows = batch.arrays[buffer]
    if len(geometry.row_shape) == 3:  # a row is a whole image
        tokens = geometry.plan(*geometry.row_shape[1::-1]).tokens
        return [(row, tokens) for row in rows]
    merge = geometry.merge_size
    patch = int((geometry.row_shape[0] // 3) ** 0.5)
    out, start = [], 0
    for _, grid_h, grid_w in batch.arrays["image_grid_thw"].tolist():
        count = grid_h * grid_w
        blocks = rows[start : start + count].reshape(grid_h // merge, grid_w // merge, merge, merge, patch, patch, 3)
        pixels = blocks.transpose(0, 2, 4, 1, 3, 5, 6).reshape(grid_h * patch, grid_w * patch, 3)
        out.append((pixels, count // merge**2))
        start += count
    return out
