"""Limits on what an image's header may say, checked before anything is decoded (decompression bombs, slivers)."""

from __future__ import annotations

from dataclasses import dataclass

from zephon_ft.errors import ConfigError, ImageError
from zephon_ft.vision.header import ImageHeader


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """What is still taken for an honest image; anything beyond is an `ImageError`.

    Attributes:
        max_megapixels: width times height, in millions. While it is decoded an image takes 4 bytes a pixel, so the
            default of 89 bounds that to 356 MB a thread; it is also just below the size at which Pillow itself would
            start to warn (89,478,485 pixels), so that only one rule speaks.
        max_aspect_ratio: longer side over shorter side; default 200, the most that Qwen's resize takes.
    """

    max_megapixels: float = 89.0
    max_aspect_ratio: float = 200.0

    def __post_init__(self) -> None:
        if not self.max_megapixels > 0:
            raise ConfigError(f"ImageLimits: max_megapixels={self.max_megapixels} must be above 0")
        if not self.max_aspect_ratio >= 1:
            raise ConfigError(f"ImageLimits: max_aspect_ratio={self.max_aspect_ratio} must be at least 1")

    def check(self, header: ImageHeader) -> None:
        """Raise `ImageError`, naming both figures, where `header` is beyond a limit."""
        width, height = header.width, header.height
        if width * height > self.max_megapixels * 1e6:
            raise ImageError(
                f"{header} is {width * height / 1e6:.1f} megapixels, above max_megapixels={self.max_megapixels:g}"
            )
        ratio = max(width, height) / min(width, height)
        if ratio > self.max_aspect_ratio:
            raise ImageError(
                f"{header} has an aspect ratio of {ratio:.1f}, above max_aspect_ratio={self.max_aspect_ratio:g}"
            )

    def recipe(self) -> dict[str, float]:
        """Both limits."""
        return {"max_megapixels": self.max_megapixels, "max_aspect_ratio": self.max_aspect_ratio}
