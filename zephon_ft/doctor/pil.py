"""Facts of PIL: who provides it, its libjpeg, which vector instructions it was built with, and how fast it resizes."""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import Any

from zephon_ft.doctor.timing import SIDE, TARGET, megapixels_per_s


def facts() -> dict[str, Any]:
    """Providers, version, ``libjpeg``, ``simd`` (of the resize), and megapixels per second of source pixels."""
    import PIL
    from PIL import Image, features

    from zephon_ft.doctor.packages import pil_providers

    turbo = features.version("libjpeg_turbo")
    image = Image.effect_noise((SIDE, SIDE), 50).convert("RGB")
    return {
        "version": PIL.__version__,
        "providers": pil_providers(),
        "libjpeg": f"libjpeg-turbo {turbo}" if turbo else features.version("jpg"),
        "simd": simd_level(),
        "resize_megapixels_per_s": megapixels_per_s(lambda: image.resize((TARGET, TARGET), Image.Resampling.BICUBIC)),
    }


def simd_level() -> str | None:
    """``AVX2``, ``SSE4`` or ``none``: what PIL's own code was compiled to; None where that cannot be told.

    The build does not say, so its machine code is looked at: opcodes of integer AVX2 (VEX.256.66.0F38) and of SSSE3 to
    SSE4.1 (66.0F38) stand there by the hundred or, but for chance, not at all.
    """
    from PIL import _imaging

    if platform.machine() not in ("x86_64", "AMD64") or not hasattr(_imaging, "__file__"):
        return None
    code = Path(_imaging.__file__).read_bytes()
    for level, opcode in (("AVX2", b"\xc4\xe2\x7d"), ("SSE4", b"\x66\x0f\x38")):
        if len(re.findall(re.escape(opcode), code)) > 100:
            return level
    return "none"
