"""Geometry: how one model family turns the size of an image into tokens, and its pixels into buffer rows.

A geometry is a frozen description; it decides from (width, height) alone, so a header is enough to pack an image.
Buffers hold uint8: rescaling, normalisation and repetition in time happen on the training side (`normalize`), with
`Geometry.to_model` as the reference. To add a family, subclass it in a file of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import prod
from typing import Any, ClassVar

import numpy as np

from zephon_ft.vision.tiles import Tiles

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
HALF = (0.5, 0.5, 0.5)  # mean and deviation of SigLIP and Qwen3-VL


@dataclass(frozen=True, slots=True)
class ImagePlan:
    """What becomes of one image; a pure function of geometry and size.

    Attributes:
        width, height: size it is resized to, in pixels.
        grid: patches along (time, height, width); time is 1 for an image.
        tokens: placeholder tokens that it takes in `input_ids`.
        rows: rows that it takes in the batch buffer.
    """

    width: int
    height: int
    grid: tuple[int, int, int]
    tokens: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """Base of all families.

    Attributes:
        mean, std: per RGB channel, on the 0..1 scale; used on the training side.
        image_token: the placeholder; an image is written as `prefix`, `image_token` x tokens, `suffix`.
        prefix, suffix: structural tokens around an image, or "".
        buffer: name of the batch buffer.
    """

    mean: tuple[float, float, float] = HALF
    std: tuple[float, float, float] = HALF
    image_token: str = "<image>"
    prefix: str = ""
    suffix: str = ""
    buffer: str = "pixel_values"

    family: ClassVar[str] = ""
    rope: ClassVar[str | None] = None  # the scheme of `rope_positions`: "qwen" for M-RoPE

    @property
    def merge_size(self) -> int:
        """Patches merged into one token, along each side."""
        return 1

    @property
    def temporal_patch_size(self) -> int:
        """How often the training side repeats the one frame of an image."""
        return 1

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row of the uint8 buffer; the three channels of a pixel are neighbours, as they are decoded."""
        raise NotImplementedError

    @property
    def model_shape(self) -> tuple[int, ...]:
        """Shape of one row as the model takes it."""
        raise NotImplementedError

    def plan(self, width: int, height: int) -> ImagePlan:
        """Size, grid, tokens and rows of an image of `width` x `height` pixels (orientation applied).

        Raises:
            ImageError: no size of this family fits (aspect ratio).
        """
        raise NotImplementedError

    def tiles(self, plan: ImagePlan) -> Tiles:
        """How the pixels of a resized image lie in its buffer rows. A family where that is no matter of tiles overrides
        `patchify` instead."""
        raise NotImplementedError

    def patchify(self, image: np.ndarray, plan: ImagePlan, out: np.ndarray) -> None:
        """Write `image` (plan.height, plan.width, 3) uint8 into `out` (plan.rows, *row_shape) uint8, every byte.

        By `tiles`. Where a family does not override this, images are resized straight into their rows instead.
        """
        self._check_image(image, plan, out)
        self.tiles(plan).place(image, out)

    def columns(self, plan: ImagePlan) -> dict[str, tuple[int, ...]]:
        """Side columns of one image that the model needs beside the pixels (int64); none by default."""
        return {}

    def expand(self, plan: ImagePlan) -> list[str]:
        """The tokens that stand for one image in the text."""
        return [*filter(None, (self.prefix,)), *[self.image_token] * plan.tokens, *filter(None, (self.suffix,))]

    def to_model(self, patches: np.ndarray) -> np.ndarray:
        """Buffer rows (n, *row_shape) uint8 as the model takes them: (n, *model_shape) float32.

        Channels first; (x / 255 - mean) / std per channel; then, within each channel, the frame repeated
        `temporal_patch_size` times.
        """
        pixels = patches.reshape(len(patches), prod(self.row_shape) // 3, 3).transpose(0, 2, 1)[:, :, None]
        pixels = pixels.astype(np.float32) / np.float32(255)
        mean = np.array(self.mean, np.float32).reshape(3, 1, 1)
        std = np.array(self.std, np.float32).reshape(3, 1, 1)
        return np.repeat((pixels - mean) / std, self.temporal_patch_size, axis=2).reshape(-1, *self.model_shape)

    def recipe(self) -> dict[str, Any]:
        """Family and every field."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {"family": self.family, **plain}

    def _check_image(self, image: np.ndarray, plan: ImagePlan, out: np.ndarray) -> None:
        """A wrong shape here is a bug of the caller, never of the data."""
        if image.shape != (plan.height, plan.width, 3) or image.dtype != np.uint8:
            raise ValueError(f"{self.family}: image {image.shape} {image.dtype}, planned {plan.height, plan.width, 3}")
        if out.shape != (plan.rows, *self.row_shape) or out.dtype != np.uint8 or not out.flags.c_contiguous:
            raise ValueError(
                f"{self.family}: buffer {out.shape} {out.dtype}, needed {plan.rows, *self.row_shape} uint8 in one piece"
                f" ({prod(self.row_shape) * plan.rows} bytes)"
            )
