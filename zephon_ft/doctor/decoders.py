"""Facts of our image decoders: which work here, with what, and how fast one picture becomes pixels."""

from __future__ import annotations

import io
from typing import Any

from zephon_ft.doctor.timing import SIDE, TARGET, megapixels_per_s


def facts() -> dict[str, dict[str, Any]]:
    """By name of the decoder: ``jpeg`` (what decodes JPEG), ``resize`` (what resizes), and megapixels per second of
    source pixels; or ``error``."""
    from zephon_ft.vision.decode import DECODERS

    found = {}
    for name in DECODERS:
        try:
            found[name] = _facts(name)
        except Exception as error:  # a package is missing or cannot be imported
            found[name] = {"error": f"{type(error).__name__}: {error}"}
    return found


def _facts(name: str) -> dict[str, Any]:
    from PIL import Image

    from zephon_ft.vision.decode import Decoder, decoder_build
    from zephon_ft.vision.fused_resize import vectors
    from zephon_ft.vision.header import read_header

    file = io.BytesIO()
    smooth = Image.effect_noise((SIDE // 8, SIDE // 8), 50).convert("RGB").resize((SIDE, SIDE))
    smooth.save(file, "JPEG", quality=90)
    data = file.getvalue()
    decoder, header = Decoder(decoder=name, scaled_decode=False), read_header(data)
    rate = megapixels_per_s(lambda: decoder.decode(data, header, size=(TARGET, TARGET)))
    instructions = vectors() if name == "torch" else None
    return {
        "jpeg": decoder_build(name).get("jpeg", "pillow"),
        "resize": f"zephon_ft's own, {instructions}" if instructions else name,
        "decode_and_resize_megapixels_per_s": rate,
    }
