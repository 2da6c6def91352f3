"""Decoding: encoded bytes to RGB pixels of the planned size. Always after the header was read and checked.

The order is fixed: decode (a large JPEG at a smaller scale), convert (see `convert`), resize bicubic with antialiasing,
then turn the small image by the header's orientation. Turning last is cheaper than turning the full image, and the same
but for the rounding of one resize pass. A file that is cut off or damaged is an `ImageError`, never a partial image; so
is one whose decoded size is not what its header said, because tokens have been counted by that.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

import numpy as np

from zephon_ft.errors import ConfigError, ImageError
from zephon_ft.vision.fused_resize import Resize
from zephon_ft.vision.header import ImageHeader
from zephon_ft.vision.scratch import Scratch
from zephon_ft.vision.tiles import Tiles

DECODERS = ("torch", "pillow")

_PIXEL = np.dtype((np.void, 3))  # moved as one item: faster than byte by byte


class Backend(Protocol):
    """Decodes and resizes; one instance serves one thread. To add one, name it in `DECODERS` and `backend`.

    Attributes:
        fused: does what `resize` does, to the same pixels, and the steps after it in the same pass; or None. See
            `fused_resize`.
    """

    fused: Resize | None

    def decode(self, data: bytes | memoryview, header: ImageHeader, scale: int) -> Any:
        """`data` as 8-bit RGB (or grey) of its stored size, or of 1/`scale` of it, rounded up.

        Args:
            scale: 1, 2, 4 or 8; above 1 for JPEG only.

        Raises:
            ImageError, or whatever its library raises for damaged data.
        """

    def resize(self, pixels: Any, box: tuple[float, float], out: np.ndarray) -> None:
        """Resize what `decode` returned, bicubic with antialiasing, into `out` (height, width, 3) uint8, contiguous.

        Args:
            box: (width, height) of the part to take, in pixels from the upper left corner. A scaled decode rounds its
                size up; what it added is not part of the image.
        """


class Decoder:
    """Decodes images. Make one per worker thread: it owns reused memory.

    Args:
        scaled_decode: decode a JPEG at 1/2 of its size where that is at least the planned size, and at 1/4 or 1/8 where
            that is at least 1.5 times the planned size. Large photographs take half the time or less; pixels of
            photographs differ by about one step of 255 on average (bench/pixels.py). Part of the recipe; default True.
        decoder: ``"torch"`` (default): torch's uint8 resize, which transformers' fast image processors also use, behind
            libjpeg-turbo straight into reused memory where leanjpeg-simple is installed (same pixels), else behind
            Pillow. ``"pillow"``: Pillow or pillow-simd for both. Part of the recipe.

    Raises:
        ConfigError: an unknown decoder.
    """

    def __init__(self, *, scaled_decode: bool = True, decoder: str = "torch") -> None:
        self._scaled = scaled_decode
        self._backend = backend(decoder)
        self._small, self._turned = Scratch(), Scratch()

    def decode(
        self,
        data: bytes | memoryview,
        header: ImageHeader,
        *,
        size: tuple[int, int],
        out: np.ndarray | None = None,
        tiles: Tiles | None = None,
    ) -> np.ndarray:
        """Decode `data` to `size`.

        Args:
            data: the encoded image.
            header: what `read_header` said of it.
            size: (width, height) of the result, upright.
            out: uint8, C-contiguous, to write into: (height, width, 3), or as many bytes of any shape; None makes a new
                array.
            tiles: how the pixels lie in `out`; None: as they are.

        Returns:
            `out`, or a new array, (height, width, 3) uint8 RGB.

        Raises:
            ImageError: truncated or damaged, or not of the size that the header said.
        """
        if out is None:
            out = np.empty((size[1], size[0], 3), np.uint8)
        if tiles is None:
            tiles = Tiles(size[1], size[0])
        turned = size if header.orientation < 5 else size[::-1]
        scale = self._scale(header, turned)
        try:
            pixels = self._backend.decode(data, header, scale)
        except (ImageError, MemoryError):
            raise
        except Exception as error:  # plugins raise whatever damaged bytes make them stumble over
            if isinstance(error, OSError) and "out of memory" in str(error):
                raise MemoryError(str(error)) from error
            raise ImageError(f"cannot decode {header}: {error}") from error
        width, height = header.stored_size
        box = (width / scale, height / scale)
        if self._backend.fused is not None:
            self._backend.fused(pixels, box, turned, header.orientation, tiles, out)
        elif header.orientation == 1 and tiles.holds_whole(size[1], size[0]):
            tiles.check(size[1], size[0], out)
            self._backend.resize(pixels, box, out.reshape(size[1], size[0], 3))
        else:
            small = self._small.take(turned[1], turned[0])
            self._backend.resize(pixels, box, small)
            tiles.place(self._upright(small, header.orientation), out)
        return out

    def _upright(self, small: np.ndarray, orientation: int) -> np.ndarray:
        if orientation == 1:
            return small
        turned = _turn(small.view(_PIXEL)[..., 0], orientation)
        upright = self._turned.take(*turned.shape)
        np.copyto(upright.view(_PIXEL)[..., 0], turned)
        return upright

    def _scale(self, header: ImageHeader, size: tuple[int, int]) -> int:
        if not self._scaled or header.format != "JPEG":
            return 1
        times = min(stored / wanted for stored, wanted in zip(header.stored_size, size, strict=True))
        return 8 if times >= 12 else 4 if times >= 6 else 2 if times >= 2 else 1


def backend(name: str) -> Backend:
    """A new backend of that name.

    Raises:
        ConfigError: there is none.
    """
    if name == "torch":
        from zephon_ft.vision.torch_backend import TorchBackend

        return TorchBackend()
    if name == "pillow":
        from zephon_ft.vision.pillow_backend import PillowBackend

        return PillowBackend()
    raise ConfigError(f"images: decoder={name!r} is none of {', '.join(map(repr, DECODERS))}")


def decoder_build(decoder: str = "torch") -> dict[str, Any]:
    """Names and versions of what decodes: decoded and resized pixels are equal only between equal builds.

    ``decoder`` as given, and for "torch": ``torch``, its version, and ``jpeg``, what decodes JPEG. ``provider``
    ("pillow" or "pillow-simd"), ``version``, and the version of each codec library (None where missing).
    """
    import PIL
    from PIL import features

    try:
        provider = "pillow-simd" if version("pillow-simd") else "pillow"
    except PackageNotFoundError:
        provider = "pillow"
    codecs = ("libjpeg_turbo", "jpg", "zlib", "webp", "libtiff", "jpg_2000", "avif")
    build = {"provider": provider, "version": PIL.__version__, **{name: features.version(name) for name in codecs}}
    if decoder == "pillow":
        return {"decoder": decoder, **build}
    from zephon_ft.vision.torch_backend import jpeg_decoder

    return {"decoder": decoder, "torch": version("torch"), "jpeg": jpeg_decoder(), **build}


def _turn(image: np.ndarray, orientation: int) -> np.ndarray:
    """A view of `image` (height, width) turned upright, by its EXIF orientation."""
    if orientation >= 5:
        image = image.T
    rows = -1 if orientation in (3, 4, 7, 8) else 1
    columns = -1 if orientation in (2, 3, 6, 7) else 1
    return image[::rows, ::columns]
