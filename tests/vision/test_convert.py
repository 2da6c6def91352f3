from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from PIL import Image

from tests.vision.samples import chunk, encode, picture, png
from zephon_ft.errors import ImageError
from zephon_ft.vision.decode import Decoder
from zephon_ft.vision.header import read_header

WHITE = [255, 255, 255]


def pixels(data: bytes) -> list[list[int]]:
    """The pixels of the first line."""
    header = read_header(data)
    return Decoder().decode(data, header, size=(header.width, header.height))[0].tolist()


def grey(*values: int) -> list[list[int]]:
    return [[value] * 3 for value in values]


def test_partial_alpha_is_composited_on_white():
    image = Image.new("RGBA", (3, 1))
    for x, colour in enumerate([(10, 20, 30, 255), (10, 20, 30, 0), (0, 100, 200, 128)]):
        image.putpixel((x, 0), colour)
    for fmt in ("PNG", "TIFF"):
        assert pixels(encode(image, fmt)) == [[10, 20, 30], WHITE, [127, 177, 227]]
    lossless = encode(image, "WEBP", lossless=True, exact=True)
    assert pixels(lossless) == [[10, 20, 30], WHITE, [127, 177, 227]]


def test_grey_with_alpha_is_composited_on_white():
    image = Image.new("LA", (3, 1))
    for x, value in enumerate([(40, 255), (40, 0), (0, 128)]):
        image.putpixel((x, 0), value)
    assert pixels(encode(image, "PNG")) == grey(40, 255, 127)


def test_a_transparent_palette_is_composited_on_white():
    palette = chunk(b"PLTE", bytes([10, 20, 30, 40, 50, 60, 70, 80, 90]))
    some = png(3, 1, 8, 3, [bytes([0, 1, 2])], palette, chunk(b"tRNS", bytes([0, 128])))
    assert pixels(some) == [WHITE, [147, 152, 157], [70, 80, 90]]  # one alpha per entry, the last one left out
    image = Image.new("P", (2, 1))
    image.putpalette([200, 0, 0, 0, 200, 0])
    image.putpixel((1, 0), 1)
    assert pixels(encode(image, "GIF", transparency=1)) == [[200, 0, 0], WHITE]
    assert pixels(encode(image, "PNG", transparency=1)) == [[200, 0, 0], WHITE]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (png(2, 1, 8, 0, [bytes([7, 9])], chunk(b"tRNS", b"\0\x07")), grey(255, 9)),
        (png(2, 1, 4, 0, [bytes([0x1E])], chunk(b"tRNS", b"\0\x01")), grey(255, 14 * 17)),
        (png(2, 1, 2, 0, [bytes([0b01100000])], chunk(b"tRNS", b"\0\x01")), grey(255, 170)),
        (png(2, 1, 1, 0, [bytes([0b01000000])], chunk(b"tRNS", b"\0\0")), grey(255, 255)),
        (png(2, 1, 16, 0, [struct.pack(">HH", 0x1234, 0x12FF)], chunk(b"tRNS", b"\x12\x34")), grey(255, 0x12)),
        (png(2, 1, 8, 2, [bytes([1, 2, 3, 4, 5, 6])], chunk(b"tRNS", b"\0\1\0\2\0\3")), [WHITE, [4, 5, 6]]),
        (
            png(2, 1, 16, 2, [struct.pack(">6H", 0x102, 0x203, 0x304, 9, 9, 9)], chunk(b"tRNS", b"\1\2\2\3\3\4")),
            [WHITE, [0, 0, 0]],
        ),
    ],
)
def test_a_transparent_colour_becomes_white_at_every_depth(data, expected):
    assert pixels(data) == expected


def test_sixteen_bits_lose_their_low_byte_and_do_not_clip_to_white():
    line = struct.pack(">3H", 0x1234, 0x80FF, 0xFFFF)
    assert pixels(png(3, 1, 16, 0, [line])) == grey(0x12, 0x80, 0xFF)
    assert pixels(png(1, 1, 16, 2, [line])) == [[0x12, 0x80, 0xFF]]
    assert pixels(png(1, 1, 16, 6, [line + b"\xff\xff"])) == [[0x12, 0x80, 0xFF]]
    assert pixels(png(2, 1, 16, 4, [struct.pack(">4H", 0, 0x80FF, 0x80FF, 0xFFFF)])) == grey(127, 0x80)
    assert pixels(b"P5\n3 1\n65535\n" + line) == grey(0x12, 0x80, 0xFF)
    wide = np.array([[0x1234, 0x80FF, 0xFFFF]])
    assert pixels(encode(Image.fromarray(wide.astype(np.uint16)), "TIFF")) == grey(0x12, 0x80, 0xFF)
    assert pixels(encode(Image.fromarray((wide * [1, 1, 2] - [0, 0, 0]).astype(np.int32)), "TIFF")) == grey(
        0x12, 0x80, 0xFF
    )


@pytest.mark.parametrize("mode", ["CMYK", "YCCK"])
def test_cmyk_jpegs_give_the_colours_of_pillows_conversion(mode):
    image = picture(48, 32).convert("CMYK")
    data = encode(image, "JPEG", quality=95)  # written with an Adobe marker, inverted
    if mode == "YCCK":
        at = data.index(b"Adobe")
        data = data[: at + 11] + b"\x02" + data[at + 12 :]
    header = read_header(data)
    assert header.mode == "CMYK"
    ours = Decoder().decode(data, header, size=(48, 32)).astype(int)
    assert np.abs(ours - np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))).max() <= 2
    if mode == "CMYK":
        assert np.abs(ours - np.asarray(image.convert("RGB"))).mean() < 6  # right side up, not inverted


def test_one_two_and_four_channel_inputs_become_three():
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK"):
        data = encode(picture(20, 12).convert(mode), "TIFF")
        header = read_header(data)
        assert Decoder().decode(data, header, size=(8, 6)).shape == (6, 8, 3)


def test_one_bit_images_are_black_and_white():
    image = Image.new("1", (3, 1))
    image.putpixel((1, 0), 255)
    for fmt in ("PNG", "BMP", "TIFF", "PPM"):
        assert pixels(encode(image, fmt)) == grey(0, 255, 0)


def test_floating_point_pixels_are_refused_by_name():
    data = encode(Image.fromarray(np.array([[0.5, 1.0]], np.float32)), "TIFF")
    with pytest.raises(ImageError, match="floating-point"):
        pixels(data)
