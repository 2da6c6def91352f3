from __future__ import annotations

import numpy as np
import pytest

from zephon_ft.vision.tiles import Tiles


def by_the_rule(image: np.ndarray, tiles: Tiles) -> np.ndarray:
    """Tile by tile, block by block, as the class says."""
    high, wide = tiles.height * tiles.merge, tiles.width * tiles.merge
    pieces = [
        image[y + r * tiles.height :, x + c * tiles.width :][: tiles.height, : tiles.width].ravel()
        for y in range(0, image.shape[0], high)
        for x in range(0, image.shape[1], wide)
        for r in range(tiles.merge)
        for c in range(tiles.merge)
    ]
    return np.concatenate(pieces)


@pytest.mark.parametrize("tiles", [Tiles(2, 3, 2), Tiles(4, 6), Tiles(12, 18), Tiles(6, 9, 2), Tiles(1, 1, 3)])
def test_pixels_go_where_the_rule_puts_them(tiles):
    image = np.random.default_rng(0).integers(0, 256, (12, 18, 3), np.uint8)
    expected = by_the_rule(image, tiles)
    for strided in (image, image[::-1, ::-1].copy()[::-1, ::-1], np.asfortranarray(image)):
        for shape in ((-1,), (12, 54)):
            out = np.full(image.size, 0xA5, np.uint8).reshape(shape)
            tiles.place(strided, out)
            assert np.array_equal(out.ravel(), expected)


def test_what_does_not_fit_is_an_error_and_nothing_is_lost():
    image = np.zeros((12, 18, 3), np.uint8)
    out = np.full((12, 18, 3), 7, np.uint8)
    for tiles, target in (
        (Tiles(5, 3), out),
        (Tiles(4, 3, 2), out),  # no whole blocks
        (Tiles(12, 18, 2), out),
        (Tiles(12, 18), out[:11]),
        (Tiles(12, 18), out[:, ::-1]),  # not in one piece
        (Tiles(12, 18), out.astype(np.int32)),
    ):
        with pytest.raises(ValueError, match=r"whole number of blocks|bytes of uint8 in one piece"):
            tiles.place(image, target)
    assert (out == 7).all()
    for sides in ((0, 3), (4, -3), (4, 3, 0)):
        with pytest.raises(ValueError, match="at least 1"):
            Tiles(*sides)
