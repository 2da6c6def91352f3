"""The font of the pictures that commands draw."""

from __future__ import annotations

from typing import Any


def text_font(size: int) -> Any:
    """Pillow's own font, `size` pixels high; a bitmap of one size where Pillow was built without FreeType."""
    from PIL import ImageFont

    try:
        return ImageFont.load_default(size)
    except (ImportError, OSError):
        return ImageFont.load_default()
