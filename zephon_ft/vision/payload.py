"""Where the bytes of an image are, in every shape that data sets give it: bytes, mappings, paths, URLs, data URIs."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from zephon_ft.errors import ImageError

Read = Callable[[str], bytes]  # reads a path or URL
_KEYS = ("bytes", "path", "url", "image_url", "image", "data")
_IMAGE_PARTS = frozenset({"image", "image_url", "input_image"})


def payload(item: Any, read: Read) -> bytes:
    """The encoded bytes of one image.

    Args:
        item: bytes; a str: a path, a URL or a ``data:`` URI; or a mapping with one of these: Hugging Face's
            ``{"bytes": ..., "path": ...}``, a message part ``{"type": "image_url", "image_url": {"url": ...}}`` or
            ``{"type": "image", "image": ...}``. An entry that is None counts as absent; bytes win over a path.
        read: reads what a path or URL points to. Its errors pass through: a storage failure is not bad data.

    Raises:
        ImageError: null, nothing of the above, or a damaged ``data:`` URI.
    """
    if isinstance(item, bytes):
        return item
    if isinstance(item, str):
        return _data_uri(item) if item[:5].lower() == "data:" else read(item)
    if isinstance(item, (bytearray, memoryview)):
        return bytes(item)
    if item is None:
        raise ImageError("null instead of an image")
    if isinstance(item, Mapping):
        for key in _KEYS:
            value = item.get(key)
            if value is not None:
                return payload(value, read)
        raise ImageError(f"a mapping with keys {sorted(map(str, item))} and none of {', '.join(_KEYS)} set")
    raise ImageError(
        f"{type(item).__name__} instead of bytes, a path, a URL, a data: URI or a mapping with one of them"
    )


def is_conversation(value: Any) -> bool:
    """Whether a field holds messages (mappings with a role and content) rather than images."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping) and "content" in value[0]


def split_conversation(messages: list[Any]) -> tuple[list[Any], list[Any]]:
    """Take the images out of messages.

    Returns:
        The messages with each image part replaced by ``{"type": "image"}`` (new objects where something changed), and
        the parts taken out, in order of appearance.
    """
    light: list[Any] = []
    images: list[Any] = []
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else None
        if isinstance(content, list) and any(map(_is_image_part, content)):
            images += filter(_is_image_part, content)
            content = [{"type": "image"} if _is_image_part(part) else part for part in content]
            message = {**message, "content": content}
        light.append(message)
    return light, images


def _is_image_part(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in _IMAGE_PARTS


def _data_uri(uri: str) -> bytes:
    """RFC 2397: ``data:[media type][;base64],data``."""
    head, comma, body = uri.partition(",")
    if not comma:
        raise ImageError(f"data: URI without a comma: {uri[:40]!r}")
    if not head.lower().endswith(";base64"):
        return unquote_to_bytes(body)
    try:
        return b64decode("".join(body.split()), validate=True)
    except ValueError as error:
        raise ImageError(f"damaged base64 in {uri[:40]!r}: {error}") from error
