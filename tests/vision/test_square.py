from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zephon_ft.errors import ConfigError
from zephon_ft.vision.geometry import CLIP_MEAN, HALF
from zephon_ft.vision.square import Square, clip, siglip


@pytest.mark.parametrize(
    ("geometry", "tokens"),
    [
        (siglip(224, 14), 256),
        (siglip(384, 14), 729),
        (siglip(448, 14), 1024),
        (siglip(512, 16), 1024),
        (clip(224), 256),
        (clip(336), 576),
        (siglip(512, 16, tokens=64), 64),
    ],
)
def test_tokens_of_the_published_models(geometry, tokens):
    for size in ((1, 1), (640, 480), (100, 3000)):
        plan = geometry.plan(*size)
        assert (plan.width, plan.height) == (geometry.size, geometry.size)
        assert (plan.tokens, plan.rows) == (tokens, 1)


def test_presets_carry_their_normalisation():
    assert siglip().mean == siglip().std == HALF
    assert clip().mean == CLIP_MEAN


def test_a_buffer_row_is_the_whole_image_and_the_models_has_channels_first():
    geometry = Square(size=6, patch_size=3)
    image = np.random.default_rng(0).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    for fill in (0xA5, 0x5A):
        out = np.full((1, *geometry.row_shape), fill, np.uint8)
        geometry.patchify(image, geometry.plan(9, 9), out)
        assert np.array_equal(out[0], image)
        assert geometry.tiles(geometry.plan(9, 9)).holds_whole(6, 6)
    model = geometry.to_model(out)
    assert model.shape == (1, 3, 6, 6)
    assert np.allclose(model[0], image.transpose(2, 0, 1) / 127.5 - 1, atol=1e-6)


def test_a_square_needs_no_side_column_and_no_rope():
    geometry = siglip()
    assert geometry.columns(geometry.plan(3, 3)) == {}
    assert geometry.rope is None
    assert geometry.merge_size == 1
    assert geometry.expand(Square(size=28, patch_size=14).plan(3, 3)) == ["<image>"] * 4


def test_impossible_squares_are_refused():
    options: list[dict[str, Any]] = [{"size": 10, "patch_size": 14}, {"patch_size": 0}, {"tokens": 0}]
    for bad in options:
        with pytest.raises(ConfigError):
            Square(**bad)
