"""images: encoded images to media items. From headers alone: size, limits and tokens; nothing is decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zephon_ft.errors import ConfigError, ImageError
from zephon_ft.ops.base import Operator, RecordWork, WorkContext
from zephon_ft.record import Media, Record
from zephon_ft.vision.geometry import Geometry
from zephon_ft.vision.header import read_header
from zephon_ft.vision.kind import ImageKind
from zephon_ft.vision.payload import is_conversation, payload, split_conversation
from zephon_ft.vision.policy import ImageLimits


@dataclass(frozen=True)
class Images(Operator):
    """Turns a record's images into its `media`; see `images` for the options."""

    geometry: Geometry
    fields: tuple[str, ...]
    limits: ImageLimits
    scaled_decode: bool = True
    decoder: str = "torch"
    max_images: int | None = None

    name = "images"

    def __post_init__(self) -> None:
        if not isinstance(self.geometry, Geometry):
            raise ConfigError(
                f"images: geometry must be a Geometry such as Qwen2_5_VL() or siglip(), not {self.geometry!r}"
            )
        if not self.fields or not all(isinstance(name, str) and name for name in self.fields):
            raise ConfigError(f"images: field must be a name or several names, not {self.fields!r}")
        if self.max_images is not None and self.max_images < 1:
            raise ConfigError(f"images: max_images={self.max_images} must be at least 1, or None for no limit")

    def bind(self, context: WorkContext) -> RecordWork:
        """See `Operator.bind`."""
        names, kind, limits, most = self.fields, self.kind(), self.limits, self.max_images
        read_file = context.read_file

        def images_of(record: Record) -> Record:
            fields = dict(record.fields)
            field, items = "", ()  # type: str, Sequence[Any]
            for field in names:
                value = fields.pop(field, None)
                if is_conversation(value):
                    fields[field], items = split_conversation(value)
                elif value is not None:
                    items = value if isinstance(value, (list, tuple)) else (value,)
                if items:
                    break
            first = len(record.media)
            if most is not None and first + len(items) > most:
                raise ImageError(f"field {field!r}: {first + len(items)} images, above max_images={most}")

            def read(path: str) -> bytes:
                if read_file is None:
                    raise ConfigError(
                        f"images: field {field!r} holds a path ({path!r}), but nothing here can read files"
                    )
                return read_file(record, path)

            media: list[Media] = []
            for index, item in enumerate(items, first):
                try:
                    data = payload(item, read)
                    header = read_header(data)
                    limits.check(header)
                    media.append(kind.media(header, data, key=record.key, position=record.position, index=index))
                except ImageError as error:
                    where = f" ({item[:80]!r})" if isinstance(item, str) else ""
                    number = index - first + 1
                    raise ImageError(f"field {field!r}, image {number} of {len(items)}{where}: {error}") from error
            return Record(record.key, record.position, fields, record.media + tuple(media), record.nbytes)

        return images_of

    def kind(self) -> ImageKind:
        """The kind of all its media."""
        return ImageKind(self.geometry, self.scaled_decode, self.decoder)

    def media_kinds(self) -> tuple[ImageKind, ...]:
        """The kinds of media that it makes: one."""
        return (self.kind(),)

    def reads(self) -> frozenset[str]:
        """The field names; of several, a record needs one at most."""
        return frozenset(self.fields)

    def needs(self) -> tuple[frozenset[str], ...]:
        """None: a record without images is fine."""
        return ()

    def recipe(self) -> dict[str, Any]:
        """What decides tokens. Scaled decoding and the decoder's build change pixels only: see `ImageKind.recipe`."""
        return {
            "op": "images",
            "fields": list(self.fields),
            "geometry": self.geometry.recipe(),
            "limits": self.limits.recipe(),
            "max_images": self.max_images,
        }


def images(
    geometry: Geometry,
    field: str | Sequence[str] = "images",
    *,
    limits: ImageLimits | None = None,
    scaled_decode: bool = True,
    decoder: str = "torch",
    max_images: int | None = None,
) -> Images:
    """Read image headers, check limits, count tokens, and move the images from a field into the record's media.

    The field may be absent, null, empty, one image or a list of images; see `payload` for what an image may be. Paths
    are relative to the data file. A field of messages gives up its image parts, in order, and keeps its text: each part
    becomes ``{"type": "image"}``. Any other image field leaves the record.

    Args:
        geometry: the model family, e.g. ``Qwen2_5_VL()`` or ``siglip(384, 14)``.
        field: name of the field; of several names the first one that a record has, e.g. ``("jpg", "png")``.
        limits: megapixels and aspect ratio; default `ImageLimits()`.
        scaled_decode: see `Decoder`; changes pixels a little, no token. Default True.
        decoder: ``"torch"`` or ``"pillow"``, see `Decoder`; changes pixels a little, no token.
        max_images: most images of one record; None (default) for no limit.

    Raises (per record):
        ImageError: null in a list, not an image, damaged header, beyond a limit; names the field and the image number.
    """
    names = (field,) if isinstance(field, str) else tuple(field)
    return Images(geometry, names, limits or ImageLimits(), scaled_decode, decoder, max_images)
