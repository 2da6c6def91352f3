"""ImageKind: images as one kind of media, which is all that `pack`, `batch` and the engine's fills know of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from zephon_ft.errors import ConfigError
from zephon_ft.record import Media
from zephon_ft.vision.geometry import Geometry, ImagePlan
from zephon_ft.vision.header import ImageHeader
from zephon_ft.vision.scratch import Scratch

Fill = Callable[[Media, bytes | memoryview, np.ndarray], None]


@dataclass(frozen=True, slots=True)
class ImageKind:
    """Images of one geometry.

    Attributes:
        geometry: the model family's geometry.
        scaled_decode, decoder: see `Decoder`.
    """

    geometry: Geometry
    scaled_decode: bool = True
    decoder: str = "torch"

    @property
    def name(self) -> str:
        """Name of the buffer that these images are decoded into."""
        return self.geometry.buffer

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row of that buffer."""
        return self.geometry.row_shape

    @property
    def dtype(self) -> np.dtype[np.uint8]:
        """dtype of that buffer."""
        return np.dtype(np.uint8)

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules that `bind` imports: where workers are processes, they are loaded once for all of them."""
        return (f"zephon_ft.vision.{self.decoder}_backend",)

    @staticmethod
    def header(media: Media) -> ImageHeader:
        """What the image's header says."""
        return ImageHeader(*media.facts[:5])

    @staticmethod
    def is_dummy(media: Media) -> bool:
        """Whether it is a stand-in without bytes, whose pixels are zero."""
        return media.facts[5]

    def plan(self, media: Media) -> ImagePlan:
        """Its resized size, grid, tokens and rows."""
        return self.geometry.plan(*media.facts[:2])

    def columns(self, media: Media) -> dict[str, tuple[int, ...]]:
        """Side columns of one item, int64: for Qwen ``{"image_grid_thw": (t, h, w)}``."""
        return self.geometry.columns(self.plan(media))

    @staticmethod
    def pixels(media: Media) -> int:
        """Source pixels, which is what decoding costs."""
        return media.facts[0] * media.facts[1]

    @staticmethod
    def check() -> None:
        """Check that images can be decoded here.

        Raises:
            ConfigError: what decodes them is not installed.
        """
        if find_spec("PIL") is None:
            raise ConfigError(
                "images: PIL is not installed, so none can be decoded: pip install pillow, or pillow-simd, which is "
                "built from source; `zephon-ft doctor` looks at the rest"
            )

    def bind(self) -> Fill:
        """The fill function of one worker thread: ``fill(media, data, out)``.

        It decodes `data` (bytes, or a view of them that is valid during the call) into `out` (media.rows, *row_shape)
        uint8 and writes every byte of it.

        Raises (the function):
            ImageError: bad content; `out` is then undefined.
        """
        from zephon_ft.vision.decode import Decoder

        decode = Decoder(scaled_decode=self.scaled_decode, decoder=self.decoder).decode
        geometry, scratch = self.geometry, Scratch()
        straight = getattr(type(geometry), "patchify", None) is Geometry.patchify

        def fill(media: Media, data: bytes | memoryview, out: np.ndarray) -> None:
            if self.is_dummy(media):
                out.fill(0)
                return
            plan = self.plan(media)
            size = (plan.width, plan.height)
            if straight:
                decode(data, self.header(media), size=size, out=out, tiles=geometry.tiles(plan))
                return
            image = scratch.take(plan.height, plan.width)
            decode(data, self.header(media), size=size, out=image)
            geometry.patchify(image, plan, out)

        return fill

    def media(self, header: ImageHeader, data: bytes | None, **identity: Any) -> Media:
        """The media item of an image, planned by the geometry; `identity`: key, position and index of `Media`."""
        plan = self.geometry.plan(header.width, header.height)
        return Media(self.name, plan.tokens, plan.rows, _facts(header, dummy=False), data, **identity)

    def dummy(self) -> Media:
        """The smallest image of this geometry, with zero pixels, for batches that must not be without one."""
        plan = self.geometry.plan(1, 1)
        header = ImageHeader(plan.width, plan.height, 1, "RGB", "none")
        return Media(self.name, plan.tokens, plan.rows, _facts(header, dummy=True), b"")

    def recipe(self) -> dict[str, Any]:
        """The pixel part: what decides pixels but no token, namely the decoder's build and scaled decoding."""
        from zephon_ft.vision.decode import decoder_build

        return {"kind": self.name, "decoder": decoder_build(self.decoder), "scaled_decode": self.scaled_decode}


def _facts(header: ImageHeader, dummy: bool) -> tuple[int, int, int, str, str, bool]:
    """`Media.facts` of an image: a plain tuple of plain values, which the garbage collector need not look at."""
    return header.width, header.height, header.orientation, header.mode, header.format, dummy
