"""Qwen2-VL / Qwen2.5-VL: native resolution, rounded to whole merge blocks, patches in block order.

With ``patch_size=16`` and mean and deviation of 0.5 the same class serves Qwen3-VL.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, sqrt
from typing import ClassVar

from zephon_ft.errors import ConfigError, ImageError
from zephon_ft.vision.geometry import CLIP_MEAN, CLIP_STD, Geometry, ImagePlan
from zephon_ft.vision.tiles import Tiles

MAX_RATIO = 200  # longer over shorter side; the reference refuses more


def smart_resize(height: int, width: int, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """(height, width) rounded to multiples of `factor`, with an area between `min_pixels` and `max_pixels`.

    The rule of Qwen's processors (halves round to even), with a side never below one `factor`, neither when it is
    rounded nor when it is scaled down. transformers clamps neither: it differs for images with a side below half a
    factor (13 x 2600) and gives a side of 0 for 31 x 639 under 15,680 pixels. A clamped sliver may exceed
    `max_pixels`.

    Raises:
        ImageError: one side is more than 200 times the other.
    """
    if max(height, width) > MAX_RATIO * min(height, width):
        ratio = max(height, width) / min(height, width)
        raise ImageError(f"image of {width} x {height} has an aspect ratio of {ratio:.1f}, above {MAX_RATIO}")
    rows = max(1, round(height / factor))
    columns = max(1, round(width / factor))
    area = rows * columns * factor * factor
    if area > max_pixels:
        scale = sqrt(height * width / max_pixels)
        rows = max(1, floor(height / scale / factor))
        columns = max(1, floor(width / scale / factor))
    elif area < min_pixels:
        scale = sqrt(min_pixels / (height * width))
        rows = ceil(height * scale / factor)
        columns = ceil(width * scale / factor)
    return rows * factor, columns * factor


@dataclass(frozen=True, kw_only=True)
class Qwen2_5_VL(Geometry):
    """Geometry of Qwen2-VL and Qwen2.5-VL.

    A buffer row is one patch of one frame, (patch, patch, 3) flat: 588 bytes at patch 14. The model's row has channels
    first and repeats the frame in time: (3, temporal_patch_size, patch, patch) flat, 1,176 values. Rows run block by
    block: (block row, block column, row in block, column in block), so that the `merge_size`^2 rows of one token are
    neighbours.

    Attributes:
        patch_size: pixels along a patch side.
        merge_size: patches merged into one token, along each side.
        temporal_patch_size: frames in a patch; an image is one frame, repeated.
        min_pixels, max_pixels: area after the resize; the defaults are those of the released processors (4 to 1,280
            tokens).
    """

    patch_size: int = 14
    merge_size: int = 2
    temporal_patch_size: int = 2
    min_pixels: int = 56 * 56
    max_pixels: int = 28 * 28 * 1280
    mean: tuple[float, float, float] = CLIP_MEAN
    std: tuple[float, float, float] = CLIP_STD
    image_token: str = "<|image_pad|>"
    prefix: str = "<|vision_start|>"
    suffix: str = "<|vision_end|>"

    family: ClassVar[str] = "qwen2_5_vl"
    rope: ClassVar[str | None] = "qwen"

    def __post_init__(self) -> None:
        for name in ("patch_size", "merge_size", "temporal_patch_size", "min_pixels"):
            if getattr(self, name) < 1:
                raise ConfigError(f"Qwen2_5_VL: {name}={getattr(self, name)} must be at least 1")
        least = max(self.min_pixels, (self.patch_size * self.merge_size) ** 2)
        if self.max_pixels < least:
            raise ConfigError(f"Qwen2_5_VL: max_pixels={self.max_pixels} must be at least {least}")

    @property
    def row_shape(self) -> tuple[int, ...]:
        """(patch * patch * 3,): RGB pixels, line by line."""
        return (self.patch_size**2 * 3,)

    @property
    def model_shape(self) -> tuple[int, ...]:
        """(3 * temporal * patch * patch,): channel, then frame."""
        return (3 * self.temporal_patch_size * self.patch_size**2,)

    def plan(self, width: int, height: int) -> ImagePlan:
        """See `Geometry.plan` and `smart_resize`."""
        factor = self.patch_size * self.merge_size
        new_height, new_width = smart_resize(height, width, factor, self.min_pixels, self.max_pixels)
        grid_h, grid_w = new_height // self.patch_size, new_width // self.patch_size
        rows = grid_h * grid_w
        return ImagePlan(new_width, new_height, (1, grid_h, grid_w), rows // self.merge_size**2, rows)

    def columns(self, plan: ImagePlan) -> dict[str, tuple[int, ...]]:
        """``image_grid_thw``: raw patches along time, height, width."""
        return {"image_grid_thw": plan.grid}

    def tiles(self, plan: ImagePlan) -> Tiles:
        """See `Geometry.tiles`: patches in block order."""
        return Tiles(self.patch_size, self.patch_size, self.merge_size)
