from __future__ import annotations

import io
import struct
import timeit
import warnings

import pytest
from PIL import Image, ImageOps

from tests.vision.samples import chunk, encode, exif, insert_app1, picture, png
from zephon_ft.errors import ImageError
from zephon_ft.vision.header import ImageHeader, read_header

JPEG = encode(picture(40, 20), "JPEG")


def test_size_mode_and_format_of_each_native_parser():
    small = picture(40, 20)
    assert read_header(JPEG) == ImageHeader(40, 20, 1, "RGB", "JPEG")
    assert read_header(encode(small, "JPEG", progressive=True)) == ImageHeader(40, 20, 1, "RGB", "JPEG")
    assert read_header(encode(small.convert("L"), "JPEG")).mode == "L"
    assert read_header(encode(small.convert("CMYK"), "JPEG")).mode == "CMYK"
    assert read_header(encode(small, "PNG")) == ImageHeader(40, 20, 1, "RGB", "PNG")
    for mode in ("L", "LA", "P", "1", "RGBA", "I;16"):
        source = Image.new("I;16", (40, 20)) if mode == "I;16" else small.convert(mode)
        assert read_header(encode(source, "PNG")).mode == mode
    assert read_header(encode(small, "WEBP")) == ImageHeader(40, 20, 1, "RGB", "WEBP")
    assert read_header(encode(small, "WEBP", lossless=True)) == ImageHeader(40, 20, 1, "RGB", "WEBP")
    clear = small.convert("RGBA")
    clear.putalpha(100)
    assert read_header(encode(clear, "WEBP")) == ImageHeader(40, 20, 1, "RGBA", "WEBP")
    assert read_header(encode(clear, "WEBP", lossless=True)) == ImageHeader(40, 20, 1, "RGBA", "WEBP")


@pytest.mark.parametrize("fmt", ["JPEG", "PNG", "WEBP", "AVIF", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_all_eight_exif_orientations_are_applied_before_the_size_is_computed(fmt, orientation):
    if fmt in ("AVIF", "TIFF"):
        block = Image.Exif()
        block[0x0112] = orientation
        data = encode(picture(40, 20), fmt, exif=block)
    else:
        data = encode(picture(40, 20), fmt, exif=exif(orientation))
    header = read_header(data)
    assert (header.width, header.height) == ((20, 40) if orientation >= 5 else (40, 20))
    assert header.orientation == (1 if fmt == "TIFF" else orientation)  # Pillow turns a TIFF by itself


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("kind", [1, 3, 4])
def test_orientation_is_read_in_both_byte_orders_and_all_integer_types(order, kind):
    assert read_header(insert_app1(JPEG, exif(6, order=order, kind=kind))).orientation == 6


def test_rational_with_zero_denominator_does_not_fail_the_image():
    data = insert_app1(JPEG, exif(6, resolution=(1, 0)))
    assert read_header(data).orientation == 6


def test_damaged_exif_means_orientation_one():
    whole = exif(6)
    blocks = [
        b"Exif\0\0",
        b"Exif\0\0II*\0",
        b"Exif\0\0II*\0\xff\xff\xff\xff",
        b"Exif\0\0XX*\0" + whole[10:],
        exif(0),
        exif(9),
        exif(6, kind=5),
        b"Exif\0\0II*\0" + struct.pack("<IH", 8, 0xFFFF),
        *(whole[:cut] for cut in range(6, 24)),
    ]
    for block in blocks:
        assert read_header(insert_app1(JPEG, block)).orientation == 1
        assert read_header(encode(picture(40, 20), "PNG")[:33] + chunk(b"eXIf", block)).orientation == 1


def test_first_of_several_exif_blocks_wins_and_xmp_is_not_asked():
    assert read_header(insert_app1(insert_app1(JPEG, exif(3)), exif(6))).orientation == 6
    xmp = b'http://ns.adobe.com/xap/1.0/\0<x tiff:Orientation="6"/>'
    assert read_header(insert_app1(JPEG, xmp)).orientation == 1


def test_thumbnail_and_junk_before_the_frame_header_are_skipped():
    thumbnail = b"Exif\0\0II*\0" + bytes(20) + JPEG
    assert (read_header(insert_app1(encode(picture(60, 50), "JPEG"), thumbnail)).width) == 60
    filled = JPEG[:2] + b"\xff\xff\xff\xfe\0\x04ab" + b"junk" + JPEG[2:]
    assert read_header(filled) == read_header(JPEG)


def test_png_orientation_behind_the_pixels_is_found():
    data = png(3, 1, 8, 0, [bytes(3)], after=chunk(b"eXIf", exif(6)[6:]))
    assert (read_header(data).width, read_header(data).height, read_header(data).orientation) == (1, 3, 6)


@pytest.mark.parametrize("fmt", ["GIF", "BMP", "TIFF", "PPM", "ICO", "JPEG2000", "AVIF", "PCX", "SGI", "QOI"])
def test_other_formats_go_through_pillow(fmt):
    data = encode(picture(32, 16), fmt, **({"sizes": [(32, 16)]} if fmt == "ICO" else {}))
    header = read_header(data)
    assert (header.width, header.height, header.format) == (32, 16, fmt)


def test_a_memoryview_is_read_like_bytes():
    assert read_header(memoryview(JPEG)) == read_header(JPEG)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty file"),
        (b"<!DOCTYPE html><html>", "HTML page"),
        (b"\n  <HTML><body>404", "HTML page"),
        (b"\xef\xbb\xbf<html>", "HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git-LFS pointer"),
        (b'<?xml version="1.0"?><Error/>', "XML document"),
        (b"<svg xmlns=", "SVG"),
        (b"%PDF-1.7", "PDF"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "PostScript"),
        (b"\0" * 100, r"first bytes b'\\x00"),
        (b"hello world, this is text", "first bytes b'hello world, thi'"),
        (b"\xff\xd8\xff", "JPEG header"),
        (JPEG[:100], "JPEG header"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0", "PNG header"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "WebP header"),
        (encode(picture(4, 4), "WEBP")[:12] + b"ABCD" + bytes(40), "WebP header"),
        (b"II*\0\x08\0\0\0", "TIFF"),
        (b"GIF89a", "GIF"),
        (png(0, 5, 8, 0, []), "0 x 5"),
    ],
)
@pytest.mark.filterwarnings("ignore:Corrupt EXIF")  # Pillow warns of the cut TIFF beside its error
def test_what_is_no_image_is_named_with_its_first_bytes(data, words):
    with pytest.raises(ImageError, match=words):
        read_header(data)


def test_any_truncation_of_a_header_is_an_image_error_or_right():
    for fmt in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000"):
        whole = encode(picture(32, 16), fmt)
        for cut in range(0, min(len(whole), 700), 7):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # Pillow also warns of a cut TIFF directory
                    header = read_header(whole[:cut])
            except ImageError:
                continue
            assert (header.width, header.height) == (32, 16)


def test_a_huge_image_is_left_to_our_limits_not_to_pillows_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_header(b"GIF89a" + struct.pack("<HHBBB", 60000, 60000, 0, 0, 0) + _GIF_FRAME).width == 60000
        assert read_header(png(20000, 20000, 8, 2, [])).width == 20000


_GIF_FRAME = b"," + struct.pack("<HHHHB", 0, 0, 1, 1, 0x80) + bytes(6) + b"\x02\x02\x44\x01\0;"


def test_exif_agrees_with_pillows_own_transposition():
    for orientation in range(1, 9):
        data = encode(picture(40, 20), "JPEG", exif=exif(orientation))
        upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        header = read_header(data)
        assert upright.size == (header.width, header.height)


def test_a_jpeg_header_takes_microseconds():
    data = insert_app1(JPEG, exif(6))
    assert min(timeit.repeat(lambda: read_header(data), number=1000, repeat=5)) / 1000 < 50e-6
