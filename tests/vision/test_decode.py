from __future__ import annotations

import io
import random
import sys
import threading
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile, ImageOps

from tests.vision.samples import chunk, encode, exif, insert_app1, picture, png
from zephon_ft.errors import ImageError
from zephon_ft.vision import scratch, torch_backend
from zephon_ft.vision.decode import DECODERS, Decoder, decoder_build
from zephon_ft.vision.header import read_header


def decode(data: bytes, size: tuple[int, int] | None = None, **options: Any) -> np.ndarray:
    header = read_header(data)
    return Decoder(**options).decode(data, header, size=size or (header.width, header.height))


def reference(data: bytes, size: tuple[int, int]) -> np.ndarray:
    """Orient, convert, then resize: the textbook order."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    return np.asarray(image.resize(size, Image.Resampling.BICUBIC))


@pytest.mark.parametrize("fmt", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_turning_the_small_image_equals_turning_the_large_one(fmt, orientation):
    data = encode(picture(90, 50), fmt, exif=exif(orientation))
    for size in ((28, 56), (56, 28), (100, 130)):
        ours = decode(data, size).astype(int)
        assert ours.shape == (size[1], size[0], 3)
        assert np.abs(ours - reference(data, size)).max() <= 2


@pytest.mark.parametrize("orientation", range(1, 9))
def test_tiff_and_avif_are_turned_once(orientation):
    block = Image.Exif()
    block[0x0112] = orientation
    tiff = encode(picture(40, 20), "TIFF", exif=block)
    block[0x0112] = orientation
    avif = encode(picture(40, 20), "AVIF", exif=block, quality=100)
    size = (20, 40) if orientation >= 5 else (40, 20)
    upright = reference(encode(picture(40, 20), "PNG", exif=exif(orientation)), size).astype(int)
    assert np.array_equal(decode(tiff), upright)
    assert (
        np.abs(decode(avif) - upright).mean() < 8
    )  # AVIF halves the colour resolution; a wrong turn gives 40 and more


FORMATS = {
    "JPEG": ["L", "RGB", "CMYK"],
    "PNG": ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"],
    "WEBP": ["RGB", "RGBA"],
    "GIF": ["L", "P", "RGB"],
    "BMP": ["1", "L", "P", "RGB"],
    "TIFF": ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"],
    "PPM": ["1", "L", "RGB"],
    "JPEG2000": ["L", "LA", "RGB", "RGBA"],
    "AVIF": ["RGB", "RGBA"],
    "ICO": ["RGBA"],
}


@pytest.mark.parametrize(("fmt", "mode"), [(fmt, mode) for fmt, modes in FORMATS.items() for mode in modes])
def test_header_sizes_equal_decoded_sizes_for_every_format_and_mode(fmt, mode):
    image = Image.new("I;16", (36, 20), 40000) if mode == "I;16" else picture(36, 20).convert(mode)
    for orientation in range(1, 9) if fmt in ("JPEG", "PNG", "WEBP") else (1,):
        options: dict[str, Any] = {"exif": exif(orientation)} if orientation > 1 else {}
        if fmt == "ICO":
            options["sizes"] = [(36, 20)]
        data = encode(image, fmt, **options)
        header = read_header(data)
        assert (header.width, header.height) == ((20, 36) if orientation >= 5 else (36, 20))
        pixels = Decoder().decode(data, header, size=(header.width, header.height))
        assert pixels.shape == (header.height, header.width, 3)
        assert pixels.dtype == np.uint8


@pytest.mark.parametrize("fmt", ["PNG", "BMP", "TIFF", "PPM", "QOI"])
def test_lossless_formats_decode_to_the_pixels_that_went_in(fmt):
    image = picture(36, 20)
    assert np.array_equal(decode(encode(image, fmt)), np.asarray(image))


def test_a_truncated_file_is_an_error_or_whole_never_partial():
    samples: list[tuple[str, dict[str, Any]]] = [
        ("JPEG", {}),
        ("JPEG", {"progressive": True}),
        ("PNG", {}),
        ("GIF", {}),
        ("BMP", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("WEBP", {}),
        ("AVIF", {}),
        ("JPEG2000", {}),
    ]
    for fmt, options in samples:
        whole = encode(picture(80, 60), fmt, **options)
        pixels = decode(whole)
        failures = 0
        for cut in (1, 2, 3, 9, 30, 100, len(whole) // 2):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # Pillow also warns of a cut TIFF directory
                    cut_off = decode(whole[:-cut])
            except ImageError:
                failures += 1
            else:
                assert np.array_equal(cut_off, pixels)  # only a trailer was missing
        assert failures >= 2


def test_a_jpeg_cut_in_half_or_without_its_last_bytes_is_an_image_error_that_names_the_image():
    data = encode(picture(80, 60), "JPEG")
    for cut in (2, len(data) // 2):
        with pytest.raises(ImageError, match="cannot decode JPEG of 80 x 60: image file is truncated"):
            decode(data[:-cut])


def test_random_damage_is_an_image_error_or_an_image_never_another_exception():
    draw = random.Random(1)
    for fmt in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"):
        whole = encode(picture(40, 30), fmt)
        for _ in range(40):
            data = bytearray(whole)
            for _ in range(3):
                data[draw.randrange(len(data))] = draw.randrange(256)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    header = read_header(bytes(data))
                    if header.width * header.height < 1_000_000:
                        Decoder().decode(bytes(data), header, size=(8, 8))
                except ImageError:
                    pass


def test_a_decoded_size_that_differs_from_the_header_is_an_image_error():
    data = encode(picture(40, 20), "PNG")
    wrong = replace(read_header(data), width=20, height=40)
    with pytest.raises(ImageError, match=r"decodes to 40 x 20 stored pixels, its header said 20 x 40"):
        Decoder().decode(data, wrong, size=(8, 8))
    large = encode(picture(80, 40), "JPEG")
    wrong = replace(read_header(large), width=81)
    with pytest.raises(ImageError, match="header said 81 x 40"):
        Decoder(scaled_decode=True).decode(large, wrong, size=(8, 8))


def test_odd_exif_fails_no_decode_and_raises_no_warning():
    data = encode(picture(40, 20), "JPEG")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for block in (exif(6, resolution=(1, 0)), exif(6)[:20], b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0"):
            decode(insert_app1(data, block), (8, 8))


def test_pillows_switch_for_truncated_images_is_left_alone():
    decode(encode(picture(40, 20), "JPEG"))
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False
    assert Image.MAX_IMAGE_PIXELS == 89478485


def test_pillows_pixel_limit_decides_nothing(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for fmt in ("JPEG", "PNG", "BMP"):
            assert decode(encode(picture(40, 20), fmt)).shape == (20, 40, 3)


def test_first_frame_of_an_animation_is_taken():
    red, blue = (Image.new("RGB", (6, 4), colour) for colour in ("red", "blue"))
    for fmt in ("GIF", "PNG", "WEBP"):
        data = encode(red, fmt, save_all=True, append_images=[blue], **({"lossless": True} if fmt == "WEBP" else {}))
        assert np.array_equal(decode(data), np.asarray(red))


@pytest.mark.parametrize("decoder", DECODERS)
def test_scaled_decoding_stays_within_its_stated_error_and_can_be_turned_off(decoder):
    data = encode(picture(801, 603), "JPEG", quality=95, exif=exif(6))
    for size in ((112, 196), (301, 400), (50, 66)):  # 1/2, 1/2 at its limit, 1/8
        scaled = decode(data, size, decoder=decoder)
        difference = np.abs(scaled.astype(int) - decode(data, size, scaled_decode=False, decoder=decoder))
        assert difference.max() > 0
        assert difference.mean() < 1
    large = decode(data, (302, 402), decoder=decoder)  # more than half the size: nothing to scale
    assert np.array_equal(large, decode(data, (302, 402), scaled_decode=False, decoder=decoder))


def test_scale_keeps_half_as_much_again_for_the_coarse_scales():
    asked = []
    decoder = Decoder()
    data = encode(picture(240, 240), "JPEG")
    header = read_header(data)
    inner = decoder._backend.decode
    decoder._backend.decode = lambda *given: (asked.append(given[2]), inner(*given))[1]
    for side in (121, 120, 41, 40, 21, 20):
        decoder.decode(data, header, size=(side, side))
    assert asked == [1, 2, 2, 4, 4, 8]


def test_the_torch_decoder_computes_what_transformers_fast_processors_do():
    import torch

    data = encode(picture(323, 211), "PNG")
    upright = torch.from_numpy(decode(data).transpose(2, 0, 1).copy())[None]
    expected = torch.nn.functional.interpolate(upright, size=(112, 196), mode="bicubic", antialias=True)
    assert np.array_equal(decode(data, (196, 112)), expected[0].numpy().transpose(1, 2, 0))


@pytest.mark.parametrize("size", [(40, 30), (41, 30), (40, 33), (17, 90), (1, 1), (200, 7)])
@pytest.mark.parametrize("box", [(40, 30), (39.5, 29.125), (39.125, 30)])
def test_resizing_width_and_height_apart_is_what_torch_does_at_once(size, box):
    import torch

    pixels = np.random.default_rng(3).integers(0, 256, (30, 40, 3), np.uint8)
    ours, at_once = (np.empty((size[1], size[0], 3), np.uint8) for _ in range(2))
    torch_backend.TorchBackend().resize(pixels, box, ours)
    planes, out = (torch.from_numpy(image).permute(2, 0, 1)[None] for image in (pixels, at_once))
    factors = (size[1] / box[1], size[0] / box[0])
    torch.ops.aten._upsample_bicubic2d_aa.out(planes, [size[1], size[0]], False, *factors, out=out)
    assert np.array_equal(ours, at_once)


def test_both_decoders_agree_within_rounding():
    for mode in ("RGB", "L", "CMYK"):
        data = encode(picture(323, 211).convert(mode), "JPEG", quality=95)
        for size in ((196, 112), (644, 420)):
            torch_pixels, pillow = decode(data, size).astype(int), decode(data, size, decoder="pillow")
            difference = np.abs(torch_pixels - pillow)
            assert difference.mean() < 0.2
            assert difference.max() <= 6


JPEGS = {
    "444": {"subsampling": 0},
    "422": {"subsampling": 1},
    "420": {"subsampling": 2},
    "progressive": {"progressive": True},
    "low quality": {"quality": 5},
}


@pytest.mark.parametrize("kind", [*JPEGS, "grey", "cmyk", "rgb stored", "turned"])
def test_pixels_are_the_same_with_and_without_leanjpeg(kind, monkeypatch):
    pytest.importorskip("leanjpeg_simple")
    options = JPEGS.get(kind, {})
    image = picture(803, 601)
    if kind in ("grey", "cmyk"):
        image = image.convert({"grey": "L", "cmyk": "CMYK"}[kind])
    if kind == "rgb stored":
        options = {"keep_rgb": True}
    if kind == "turned":
        options = {"exif": exif(8)}
    data = encode(image, "JPEG", **options)
    header = read_header(data)
    sizes = [(header.width, header.height), (300, 200), (100, 75), (40, 30)]
    fast = [decode(data, size) for size in sizes]
    monkeypatch.setattr(torch_backend, "decode_jpeg", None)
    for size, pixels in zip(sizes, fast, strict=True):
        assert np.array_equal(decode(data, size), pixels), size


def test_damaged_files_are_good_or_bad_with_and_without_leanjpeg(monkeypatch):
    pytest.importorskip("leanjpeg_simple")
    rng = np.random.default_rng(5)
    whole = encode(picture(160, 120), "JPEG", quality=90)
    header = read_header(whole)
    samples = [whole[:cut] for cut in (200, 700, len(whole) - 40, len(whole) - 2, len(whole) - 1)]
    for _ in range(120):
        data = bytearray(whole)
        for place in rng.integers(160, len(data), rng.integers(1, 4)):
            data[place] = rng.integers(0, 256)
        samples.append(bytes(data))

    def outcome(data):
        try:
            return Decoder().decode(data, header, size=(56, 28)).tobytes()
        except ImageError:
            return "bad"

    fast = [outcome(data) for data in samples]
    monkeypatch.setattr(torch_backend, "decode_jpeg", None)
    assert [outcome(data) for data in samples] == fast
    assert 5 < fast.count("bad") < len(fast) - 5  # both kinds were met


def test_out_is_written_whole():
    for orientation in (1, 6):
        data = encode(picture(40, 20), "JPEG", exif=exif(orientation))
        header = read_header(data)
        expected = decode(data, (28, 14))
        for fill in (0xA5, 0x5A):
            out = np.full((14, 28, 3), fill, np.uint8)
            assert Decoder().decode(data, header, size=(28, 14), out=out) is out
            assert np.array_equal(out, expected)


def test_a_result_is_not_touched_by_the_next_image():
    decoder = Decoder()
    samples = [encode(picture(90, 60, seed=seed), "JPEG", exif=exif(1 + 5 * seed)) for seed in range(2)]
    for size in ((90, 60), (28, 28)):  # as it is, and resized
        results = [decoder.decode(data, read_header(data), size=size) for data in samples]
        assert np.array_equal(results[0], decode(samples[0], size))


def test_memory_kept_for_the_next_image_is_bounded(monkeypatch):
    monkeypatch.setattr(scratch, "KEPT", 30_000)
    decoder = Decoder()
    for side in (20, 90, 110, 300):
        data = encode(picture(side, side), "JPEG")
        decoder.decode(data, read_header(data), size=(side - 1, side))
    assert decoder._backend._scratch._memory.nbytes == 90 * 90 * 3


def test_decoding_is_the_same_on_many_threads():
    samples = [encode(picture(60 + i, 40 + i, seed=i), fmt) for i in range(6) for fmt in ("JPEG", "PNG", "WEBP")]
    expected = [decode(data, (28, 28)).tobytes() for data in samples]
    wrong: list[int] = []

    def work(start: int) -> None:
        decoder = Decoder()
        for step in range(3 * len(samples)):
            index = (start + step) % len(samples)
            data = samples[index]
            if decoder.decode(data, read_header(data), size=(28, 28)).tobytes() != expected[index]:
                wrong.append(index)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []


def test_out_of_memory_is_not_bad_data(monkeypatch):
    def fail(*_: object) -> None:
        raise OSError("out of memory when reading image file")

    data = encode(picture(40, 20), "PNG")
    monkeypatch.setattr(ImageFile.ImageFile, "load", fail)
    with pytest.raises(MemoryError):
        decode(data)


def test_a_format_that_runs_another_program_is_never_opened():
    eps = encode(picture(10, 10), "EPS")
    with pytest.raises(ImageError, match="PostScript"):
        read_header(eps)
    with pytest.raises(ImageError, match="not a readable image"):
        read_header(b"\xc5\xd0\xd3\xc6" + eps)  # EPS with a binary preview


def test_the_decoder_build_names_provider_and_libraries():
    build = decoder_build()
    assert build["provider"] in ("pillow", "pillow-simd")
    assert build["version"]
    assert build["jpg"]


def test_png_text_and_unknown_chunks_are_ignored():
    data = png(2, 1, 8, 0, [bytes([7, 9])], chunk(b"tEXt", b"Comment\0hi"), chunk(b"zzZz", b"?"))
    assert decode(data).tolist() == [[[7] * 3, [9] * 3]]
