"""Decode and resize with Pillow, or with pillow-simd where that is what provides PIL.

Pillow's globals (`LOAD_TRUNCATED_IMAGES`, `MAX_IMAGE_PIXELS`) are left as they are.
"""

from __future__ import annotations

import numpy as np
from PIL import Image

from zephon_ft.errors import ImageError
from zephon_ft.vision.codec import open_image
from zephon_ft.vision.convert import scale_transparency, to_grey_or_rgb
from zephon_ft.vision.fused_resize import Resize
from zephon_ft.vision.header import ImageHeader


class PillowBackend:
    """See `decode.Backend`. Grey images stay grey until they are resized."""

    fused: Resize | None = None

    def decode(self, data: bytes | memoryview, header: ImageHeader, scale: int) -> Image.Image:
        """See `decode.Backend.decode`."""
        file = open_image(bytes(data), header.format)
        _check_size(file, header, 1)
        scale_transparency(file)
        if scale > 1:
            file.draft(None, (file.width // scale, file.height // scale))
        file.load()
        _check_size(file, header, scale)  # some formats learn their size only now
        return to_grey_or_rgb(file)

    def resize(self, pixels: Image.Image, box: tuple[float, float], out: np.ndarray) -> None:
        """See `decode.Backend.resize`."""
        size = (out.shape[1], out.shape[0])
        small = pixels.resize(size, Image.Resampling.BICUBIC, box=(0.0, 0.0, *box))
        small = small if small.mode == "RGB" else small.convert("RGB")
        np.copyto(out, np.asarray(small))


def _check_size(image: Image.Image, header: ImageHeader, scale: int) -> None:
    width, height = header.stored_size
    if image.size != (-(-width // scale), -(-height // scale)):
        raise ImageError(
            f"{header} decodes to {image.width} x {image.height} stored pixels, its header said {width} x {height}"
            + (f" (at a scale of 1/{scale})" if scale > 1 else "")
        )
