"""Opening image bytes with Pillow (or pillow-simd), by our rules instead of those of `Image.open`.

Lazy: nothing is decoded here. Two things differ from `Image.open`. Its size check is left out, because
`ImageLimits` decides that (and a warning is no decision). And only formats that can be told by their first bytes and
are pure pixel decoders are tried: a format that runs another program (EPS) or accepts nearly anything is not.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any, cast

from PIL import Image, ImageFile, JpegImagePlugin

from zephon_ft.errors import ImageError

# What Pillow itself ships and we read. Formats registered by other packages (HEIF, JPEG XL) are read as well.
# fmt: off
_PILLOW_FORMATS = frozenset({
    "AVIF", "BMP", "DDS", "DIB", "GIF", "ICNS", "ICO", "JPEG", "JPEG2000", "PCX", "PNG", "PPM", "PSD", "QOI", "SGI",
    "SUN", "TIFF", "WEBP",
})
# fmt: on

Image.init()  # registers all formats, once; the imports are not paid by the first image


def open_image(data: bytes, name: str | None = None) -> ImageFile.ImageFile:
    """Open `data` without decoding it.

    Args:
        data: the encoded image.
        name: its format where that is known already (`ImageHeader.format`), else it is found from the first bytes.

    Raises:
        ImageError: no format that we read accepts these bytes, or the one that does cannot read the header.
    """
    if name is None:
        name = _accepting(data[:16])
    try:
        return _factory(name)(BytesIO(data), "")
    except MemoryError:
        raise
    except Exception as error:  # plugins raise whatever a damaged header makes them stumble over
        raise ImageError(f"it cannot be opened as {name}: {error}") from error


class _Jpeg(JpegImagePlugin.JpegImageFile):
    """The first picture of a JPEG file and no metadata.

    Pillow's own factory looks for several pictures in one file (MPO), and its opener parses EXIF for the resolution,
    which takes longer than everything else and warns of damage that does not matter here.
    """

    def _read_dpi_from_exif(self) -> None:
        pass


def _factory(name: str) -> Callable[..., ImageFile.ImageFile]:
    if name == "JPEG":
        return _Jpeg
    return cast(Any, Image.OPEN[name][0])


def _accepting(prefix: bytes) -> str:
    """Name of the format that says these first bytes are its own."""
    for name in list(Image.ID):
        factory, accept = Image.OPEN[name]
        shipped = getattr(factory, "__module__", "").startswith("PIL.")
        if accept and (name in _PILLOW_FORMATS or not shipped):
            answer = accept(prefix)
            if isinstance(answer, str):  # recognised, but its library is missing
                raise ImageError(answer)
            if answer:
                return name
    raise ImageError("no known image format begins like this")
