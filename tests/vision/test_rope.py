from __future__ import annotations

import numpy as np
import pytest

from zephon_ft.vision.rope import mrope


def test_the_published_example():
    positions = mrope(9, [(3, (1, 4, 4))], 2)
    assert positions.dtype == np.int32
    assert positions.tolist() == [[0, 1, 2, 3, 3, 3, 3, 5, 6], [0, 1, 2, 3, 3, 4, 4, 5, 6], [0, 1, 2, 3, 4, 3, 4, 5, 6]]
    assert positions.max() + 1 - 9 == -2


def reference(length: int, images: list[tuple[int, tuple[int, int, int]]], merge: int) -> np.ndarray:
    """Token by token, as the rule is written."""
    rows: list[tuple[int, int, int]] = []
    starts = dict(images)
    while len(rows) < length:
        following = max(map(max, rows)) + 1 if rows else 0
        grid = starts.get(len(rows))
        if grid is None:
            rows.append((following,) * 3)
        else:
            t, h, w = grid[0], grid[1] // merge, grid[2] // merge
            rows += [
                (following + i, following + j, following + k) for i in range(t) for j in range(h) for k in range(w)
            ]
    return np.array(rows).T.reshape(3, -1)


@pytest.mark.parametrize(
    ("length", "images"),
    [
        (0, []),
        (5, []),
        (4, [(0, (1, 4, 4))]),
        (30, [(0, (1, 2, 8)), (4, (1, 8, 2)), (20, (1, 6, 4))]),
        (40, [(2, (3, 4, 6)), (25, (1, 2, 2))]),
    ],
)
def test_every_layout_equals_the_rule_token_by_token(length, images):
    assert np.array_equal(mrope(length, images, 2), reference(length, images, 2))


def test_images_that_overlap_or_reach_too_far_are_refused():
    for length, images in [(6, [(3, (1, 4, 4))]), (20, [(3, (1, 4, 4)), (5, (1, 4, 4))])]:
        with pytest.raises(ValueError, match="does not fit"):
            mrope(length, images, 2)
