"""Multimodal rotary positions (M-RoPE) of Qwen2-VL and Qwen2.5-VL, for images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Grid = tuple[int, int, int]  # patches along time, height, width


def mrope(
    length: int, images: Sequence[tuple[int, Grid]], merge_size: int, out: np.ndarray | None = None
) -> np.ndarray:
    """Positions of one document; in a packed row each document starts anew.

    Text runs on in all three rows alike. An image begins at s, one above the largest position so far: its tokens get
    time s + t, height s + row, width s + column, and the text behind it goes on one above the largest of these.

    Args:
        length: tokens of the document.
        images: (index of its first placeholder token, grid) of each image, in order.
        merge_size: patches merged into one token, along each side.
        out: (3, length) int32, rows contiguous, to write into; None makes a new array.

    Returns:
        (3, length) int32: time, height, width.

    Raises:
        ValueError: images overlap, are out of order, or reach beyond the document.
    """
    positions = np.empty((3, length), np.int32) if out is None else out
    index = following = 0  # tokens done; the next free position
    for offset, (time, height, width) in images:
        blocks = (time, height // merge_size, width // merge_size)
        end = offset + blocks[0] * blocks[1] * blocks[2]
        if offset < index or end > length:
            raise ValueError(f"mrope: image at tokens {offset}..{end} does not fit between {index} and {length}")
        start = following + offset - index
        positions[:, index:offset] = np.arange(following, start)
        image = positions[:, offset:end].reshape(3, *blocks)  # a view
        image[0] = np.arange(start, start + blocks[0])[:, None, None]
        image[1] = np.arange(start, start + blocks[1])[:, None]
        image[2] = np.arange(start, start + blocks[2])
        index, following = end, start + max(blocks)
    positions[:, index:] = np.arange(following, following + length - index)
    return positions
