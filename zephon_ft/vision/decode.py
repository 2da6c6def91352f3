"""Decoding: encoded bytes to RGB pixels of the planned size. Always after the header was read and checked.

The order is fixed: decode, convert (see `convert`), resize bicubic with antialiasing, then turn the small image by the
header's orientation. Turning last is cheaper than turning the full image, and the same but for the rounding of one
resize pass. A file that is cut off or damaged is an `ImageError`, never a partial image; so is one whose decoded size
is not what its header said, because tokens have been counted by that. Pillow's globals (`LOAD_TRUNCATED_IMAGES`,
`MAX_IMAGE_PIXELS`) are left as they are.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import PIL
from PIL import Image, features

from zephon_ft.errors import ImageError
from zephon_ft.vision.codec import open_image
from zephon_ft.vision.convert import scale_transparency, to_grey_or_rgb
from zephon_ft.vision.header import ImageHeader

# What turns stored pixels upright, by EXIF orientation.
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class Decoder:
    """Decodes images. Make one per worker thread.

    Args:
        scaled_decode: decode a JPEG at 1/2, 1/4 or 1/8 of its size where that is still at least the planned size.
            Much faster for large photographs; the pixels differ a little, so it is part of the recipe. Default off.
    """

    def __init__(self, *, scaled_decode: bool = False) -> None:
        self.scaled_decode = scaled_decode

    def decode(
        self, data: bytes, header: ImageHeader, *, size: tuple[int, int], out: np.ndarray | None = None
    ) -> np.ndarray:
        """Decode `data` to `size`.

        Args:
            data: the encoded image.
            header: what `read_header` said of it.
            size: (width, height) of the result, upright.
            out: (height, width, 3) uint8 to write into, of any strides; None makes a new array.

        Returns:
            (height, width, 3) uint8 RGB: `out`, or a read-only array in which the three channels of a line follow one
            another (strides 3 * width, 1, width), as patches are cut fastest.

        Raises:
            ImageError: truncated or damaged, or not of the size that the header said.
        """
        try:
            image = self._pixels(data, header, size)
        except (ImageError, MemoryError):
            raise
        except Exception as error:  # plugins raise whatever damaged bytes make them stumble over
            if isinstance(error, OSError) and "out of memory" in str(error):
                raise MemoryError(str(error)) from error
            raise ImageError(f"cannot decode {_describe(header)}: {error}") from error
        lines = np.frombuffer(image.tobytes("raw", "RGB;L"), np.uint8).reshape(size[1], 3, size[0])
        pixels = lines.transpose(0, 2, 1)
        if out is None:
            return pixels
        np.copyto(out, pixels)
        return out

    def _pixels(self, data: bytes, header: ImageHeader, size: tuple[int, int]) -> Image.Image:
        stored = header.stored_size
        turned = size if header.orientation < 5 else size[::-1]
        file = open_image(data, header.format)
        _check_size(file, stored, header)
        scale_transparency(file)
        box: tuple[float, float, float, float] | None = None
        if self.scaled_decode and header.format == "JPEG":
            drafted = file.draft(None, turned)
            box = drafted[1] if drafted else None
        file.load()
        if box is None:
            _check_size(file, stored, header)  # some formats learn their size only now
        image = to_grey_or_rgb(file).resize(turned, Image.Resampling.BICUBIC, box=box)
        if header.orientation != 1:
            image = image.transpose(_TURNS[header.orientation])
        return image if image.mode == "RGB" else image.convert("RGB")


def decoder_build() -> dict[str, Any]:
    """Name and versions of the decoder: decoded and resized pixels are equal only between equal builds.

    ``provider`` ("pillow" or "pillow-simd"), ``version``, and the version of each codec library (None where missing).
    """
    try:
        provider = "pillow-simd" if version("pillow-simd") else "pillow"
    except PackageNotFoundError:
        provider = "pillow"
    codecs = ("libjpeg_turbo", "jpg", "zlib", "webp", "libtiff", "jpg_2000", "avif")
    return {"provider": provider, "version": PIL.__version__, **{name: features.version(name) for name in codecs}}


def _check_size(image: Image.Image, stored: tuple[int, int], header: ImageHeader) -> None:
    if image.size != stored:
        raise ImageError(
            f"{_describe(header)} decodes to {image.width} x {image.height} stored pixels, "
            f"its header said {stored[0]} x {stored[1]}"
        )


def _describe(header: ImageHeader) -> str:
    return f"{header.format} of {header.width} x {header.height}"
