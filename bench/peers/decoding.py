"""Decoding and resizing as peers do it: what "own" means for those that bring no decoder along, or torchvision's.

PIL as in its handbook's tutorial (pillow.readthedocs.io, handbook/tutorial.html, "Using the Image class" and "Draft
mode"); torchvision as in "Decoding / Encoding images and videos" (docs.pytorch.org/vision, io.html) and "Transforming
images" (transforms.html: v2, tensors, uint8).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from io import BytesIO

import numpy as np

from zephon_ft.ab.job import Job

Size = tuple[int, int]  # width, height
Decode = Callable[[bytes, Size], np.ndarray]  # RGB uint8 of that size, (H, W, 3) or (3, H, W)


def pil_decode(data: bytes, size: Size, *, scaled: bool = False) -> np.ndarray:
    """What torchvision's transforms and most data loading code do with PIL: open, convert to RGB, resize bicubic, turn
    by EXIF (the small image: that is cheaper than `exif_transpose` at once, and the same).

    `scaled` lets libjpeg decode at a fraction of the size first (PIL's `draft`).
    """
    from PIL import ExifTags, Image, ImageOps

    image = Image.open(BytesIO(data))
    turned = size[::-1] if image.getexif().get(ExifTags.Base.Orientation, 1) >= 5 else size
    if scaled:
        image.draft("RGB", turned)
    small = image.convert("RGB").resize(turned, Image.Resampling.BICUBIC)
    return np.asarray(ImageOps.exif_transpose(small))


def torchvision_decode(data: bytes, size: Size) -> np.ndarray:
    """torchvision's own: decode to a tensor, then the antialiased bicubic resize of its transforms (v2) on uint8.

    2.5 times as fast as its transforms on PIL images, and the same pixels but for a rounding.
    """
    import torch
    from torchvision.io import ImageReadMode, decode_image
    from torchvision.transforms import v2

    file = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    image = decode_image(file, mode=ImageReadMode.RGB, apply_exif_orientation=True)
    bicubic = v2.InterpolationMode.BICUBIC
    return v2.functional.resize(image, [size[1], size[0]], interpolation=bicubic, antialias=True).numpy()


def torch_decode(job: Job) -> Decode:
    """What loaders of PyTorch's family decode with: torchvision; PIL where scaled decoding is wanted."""
    return partial(pil_decode, scaled=True) if job.scaled_decode else torchvision_decode


def channels_last(pixels: np.ndarray) -> np.ndarray:
    """(H, W, 3) from either layout, without a copy."""
    return pixels if pixels.shape[-1] == 3 else pixels.transpose(1, 2, 0)
