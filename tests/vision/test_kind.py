from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from tests.vision.samples import encode, exif, picture
from zephon_ft.errors import ImageError
from zephon_ft.vision.header import read_header
from zephon_ft.vision.kind import ImageKind
from zephon_ft.vision.qwen2_5_vl import Qwen2_5_VL
from zephon_ft.vision.square import siglip

KINDS = [ImageKind(Qwen2_5_VL()), ImageKind(siglip(56, 14))]


def filled(kind: ImageKind, data: bytes, fill: int = 0xA5) -> np.ndarray:
    media = kind.media(read_header(data), data)
    out = np.full((media.rows, *kind.row_shape), fill, kind.dtype)
    kind.bind()(media, data, out)
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fmt", ["JPEG", "PNG", "WEBP", "GIF"])
def test_fill_writes_every_byte(kind, fmt):
    for mode in ("L", "RGB"):
        data = encode(picture(100, 70).convert(mode), fmt)
        assert np.array_equal(filled(kind, data, 0xA5), filled(kind, data, 0x5A))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_fill_gives_the_upright_picture_in_the_planned_shape(kind, orientation):
    upright = picture(112, 56)
    # Stored so that turning it by `orientation` gives `upright` back.
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    stored = upright.transpose(undo[orientation]) if orientation > 1 else upright
    turned = filled(kind, encode(stored, "PNG", exif=exif(orientation)))
    straight = filled(kind, encode(upright, "PNG"))
    assert turned.shape == straight.shape
    assert np.abs(turned.astype(int) - straight).max() <= 2


def test_side_columns_follow_the_plan():
    data = encode(picture(640, 480), "JPEG")
    header = read_header(data)
    assert KINDS[0].columns(KINDS[0].media(header, data)) == {"image_grid_thw": (1, 34, 46)}
    assert KINDS[1].columns(KINDS[1].media(header, data)) == {}


@pytest.mark.parametrize("kind", KINDS)
def test_the_dummy_is_the_smallest_image_and_all_zero(kind):
    dummy = kind.dummy()
    assert dummy.tokens == kind.geometry.plan(1, 1).tokens
    assert dummy.data == b""
    assert kind.is_dummy(dummy)
    out = np.full((dummy.rows, *kind.row_shape), 0xA5, np.uint8)
    kind.bind()(dummy, b"", out)
    assert not out.any()


def test_bad_content_is_an_image_error():
    kind = KINDS[0]
    data = encode(picture(100, 70), "JPEG")
    media = kind.media(read_header(data), data)
    out = np.empty((media.rows, *kind.row_shape), np.uint8)
    with pytest.raises(ImageError):
        kind.bind()(media, data[:-200], out)


def test_the_pixel_recipe_names_the_decoder_and_scaled_decoding():
    recipe = ImageKind(Qwen2_5_VL(), scaled_decode=True).recipe()
    assert recipe["scaled_decode"] is True
    assert recipe["decoder"]["provider"] in ("pillow", "pillow-simd")
