"""The fast path: libjpeg-turbo straight into reused memory, then torch's uint8 resize.

JPEG goes through leanjpeg-simple where that is installed: the same decoder as Pillow's, without Pillow's four bytes a
pixel and the copy out of them. What it refuses, and every other format, goes through Pillow, which then decides: so a
file is good or bad, and has its pixels, whether leanjpeg-simple is installed or not.

torch's antialiased bicubic on uint8 uses AVX2 for interleaved RGB, runs on the calling thread alone (nothing here
touches torch's thread settings), and is what the fast image processors of transformers compute. It differs from
Pillow's in a few values of a hundred, nearly always by one step. Where `fused_resize` works, that computes the same in
half the time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from zephon_ft.vision.fused_resize import fused_resize
from zephon_ft.vision.header import ImageHeader
from zephon_ft.vision.pillow_backend import PillowBackend
from zephon_ft.vision.scratch import Scratch

decode_jpeg: Callable[..., np.ndarray] | None
try:
    from leanjpeg_simple import decode_jpeg
except ImportError:
    decode_jpeg = None

_resize = torch.ops.aten._upsample_bicubic2d_aa.out


class TorchBackend:
    """See `decode.Backend`."""

    def __init__(self) -> None:
        self._scratch, self._narrow = Scratch(), Scratch()  # decoded; of its new width
        self._pillow = PillowBackend()
        self.fused = fused_resize()

    def decode(self, data: bytes | memoryview, header: ImageHeader, scale: int) -> np.ndarray:
        """See `decode.Backend.decode`; the array is valid until the next call."""
        width, height = (-(-side // scale) for side in header.stored_size)
        out = self._scratch.take(height, width)
        jpeg = header.format == "JPEG" and header.mode in ("RGB", "L")  # of CMYK the two libraries make other colours
        if jpeg and _turbo(data, out, scale):
            return out
        image = self._pillow.decode(data, header, scale)
        np.copyto(out, np.asarray(image if image.mode == "RGB" else image.convert("RGB")))
        return out

    def resize(self, pixels: np.ndarray, box: tuple[float, float], out: np.ndarray) -> None:
        """See `decode.Backend.resize`."""
        height, width, _ = out.shape
        if box == (width, height) and pixels.shape == out.shape:
            np.copyto(out, pixels)
            return
        try:
            # Width, then height, as torch does it in one call, but with reused memory between them. By the box and not
            # the ratio of the sizes: a scaled decode may have rounded up.
            if pixels.shape[1] != width:
                narrow = self._narrow.take(len(pixels), width)
                _resize(_planes(pixels), [len(pixels), width], False, 1.0, width / box[0], out=_planes(narrow))
                pixels = narrow
            _resize(_planes(pixels), [height, width], False, height / box[1], 1.0, out=_planes(out))
        except RuntimeError as error:
            if "alloc" in str(error):
                raise MemoryError(str(error)) from error
            raise


def jpeg_decoder() -> str:
    """Name and version of what decodes JPEG: "leanjpeg-simple 0.1.0 (libjpeg-turbo 3.2.0)", or "pillow"."""
    if decode_jpeg is None:
        return "pillow"
    import leanjpeg_simple

    return f"leanjpeg-simple {leanjpeg_simple.__version__} (libjpeg-turbo {leanjpeg_simple.libjpeg_turbo_version()})"


def _turbo(data: bytes | memoryview, out: np.ndarray, scale: int) -> bool:
    """Decode into `out`; False where Pillow should decide: anything but a flawless JPEG of that size."""
    if decode_jpeg is None:
        return False
    height, width, _ = out.shape
    try:
        image = decode_jpeg(data, "RGB", min_height=height, min_width=width, min_factor=scale, buffer=out)
    except ValueError:
        return False
    return image.shape == out.shape


def _planes(image: np.ndarray) -> torch.Tensor:
    """(height, width, 3) as torch takes it, (1, 3, height, width) in channels-last order, without a copy."""
    return torch.from_numpy(image).permute(2, 0, 1)[None]
