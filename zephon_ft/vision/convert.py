"""Any pixel layout to 8-bit grey or RGB, by one written policy.

- Transparency (RGBA, LA, PA, a transparent palette entry or colour) is composited on white, partial alpha included.
- 16 bits become 8 by dropping the low byte (``>> 8``), which is also what Pillow does for 16-bit colour. Pillow reads
  some 16-bit grey files as 32-bit integers (mode "I"): these are clipped to 0..65535 first.
- CMYK and YCCK, also as Adobe stores them (inverted), YCbCr, palettes and 1-bit images: as Pillow converts them.
- Floating-point pixels have no agreed range: refused.
"""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageFile

from zephon_ft.errors import ImageError

_ALPHA_MODES = frozenset({"RGBA", "LA", "PA", "La", "RGBa"})
_WHITE = (255, 255, 255)
_GREY_STEPS = {"L;2": 85, "L;4": 17}  # what Pillow multiplies 2-bit and 4-bit grey with


def scale_transparency(image: ImageFile.ImageFile) -> None:
    """Bring the transparent colour of a PNG to the depth that its pixels are given in; call it before they are decoded.

    Pillow widens 2-bit and 4-bit grey and narrows 16-bit colour, but leaves the transparent colour as stored.
    """
    transparent = image.info.get("transparency")
    if transparent is None or image.format != "PNG" or not image.tile:
        return
    layout = image.tile[0][3]
    if layout == "RGB;16B":
        image.info["transparency"] = tuple(value >> 8 for value in transparent)
    elif layout in _GREY_STEPS:
        image.info["transparency"] = transparent * _GREY_STEPS[layout]


def to_grey_or_rgb(image: Image.Image) -> Image.Image:
    """`image`, decoded, as mode "L" (where it has no colour) or "RGB"; the same object where nothing is to be done.

    Raises:
        ImageError: floating-point pixels. Pillow's own errors for layouts that it cannot convert pass through.
    """
    mode = image.mode
    if mode == "F":
        raise ImageError("floating-point pixels have no agreed range; store them as 8 or 16 bits")
    transparent = image.info.get("transparency")
    if mode.startswith("I"):
        return _high_byte(image, transparent)
    if mode in _ALPHA_MODES or transparent is not None:
        return _on_white(image)
    if mode in ("L", "RGB"):
        return image
    return image.convert("L" if mode == "1" else "RGB")


def _high_byte(image: Image.Image, transparent: int | None) -> Image.Image:
    wide = np.asarray(image)
    if wide.dtype.itemsize == 4:
        wide = wide.clip(0, 0xFFFF)
    narrow = (wide >> 8).astype(np.uint8)
    if transparent is not None:
        narrow[wide == transparent] = 255
    return Image.fromarray(narrow)


def _on_white(image: Image.Image) -> Image.Image:
    colours = image.convert("RGBA")
    white = Image.new("RGB", image.size, _WHITE)
    white.paste(colours, mask=colours)
    return white
