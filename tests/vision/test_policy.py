from __future__ import annotations

import pytest

from zephon_ft.errors import ConfigError, ImageError
from zephon_ft.vision.header import ImageHeader
from zephon_ft.vision.policy import ImageLimits


def header(width: int, height: int) -> ImageHeader:
    return ImageHeader(width, height, 1, "RGB", "PNG")


def test_a_decompression_bomb_is_refused_with_both_figures():
    with pytest.raises(ImageError, match=r"20000 x 20000 is 400\.0 megapixels, above max_megapixels=89"):
        ImageLimits().check(header(20000, 20000))
    with pytest.raises(ImageError, match=r"max_megapixels=0\.5"):
        ImageLimits(max_megapixels=0.5).check(header(1000, 501))
    ImageLimits(max_megapixels=0.5).check(header(1000, 500))


def test_a_sliver_is_refused_with_both_figures():
    with pytest.raises(ImageError, match=r"ratio of 227\.0, above max_aspect_ratio=200"):
        ImageLimits().check(header(2270, 10))
    with pytest.raises(ImageError, match="aspect ratio"):
        ImageLimits().check(header(10, 2270))
    ImageLimits().check(header(2000, 10))


def test_impossible_limits_are_refused():
    for bad in ({"max_megapixels": 0}, {"max_megapixels": float("nan")}, {"max_aspect_ratio": 0.5}):
        with pytest.raises(ConfigError):
            ImageLimits(**bad)


def test_limits_are_in_the_recipe():
    assert ImageLimits(10, 3).recipe() == {"max_megapixels": 10, "max_aspect_ratio": 3}
