"""The compiled resize gives torch's pixels, bit for bit, wherever they go, and the package works without it."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from tests.vision.samples import encode, exif, picture
from zephon_ft.vision import fused_resize as fused
from zephon_ft.vision import torch_backend
from zephon_ft.vision.decode import Decoder
from zephon_ft.vision.header import read_header
from zephon_ft.vision.kind import ImageKind
from zephon_ft.vision.qwen2_5_vl import Qwen2_5_VL
from zephon_ft.vision.square import Square
from zephon_ft.vision.tiles import Tiles

LANES = [lanes for lanes in fused.VECTORS if fused.fused_resize(lanes) is not None]
needs_it = pytest.mark.skipif(not LANES, reason="not compiled, or a CPU without AVX2")


@pytest.mark.skipif(sys.platform != "linux" or platform.machine() != "x86_64", reason="only for x86-64")
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_it_is_compiled_when_the_package_is_installed():
    again = "install the package (again): pip install -e . or uv sync"
    assert fused.LIBRARY.exists(), again
    sources = fused.LIBRARY.parent.glob("fused_resize*.[ch]")
    assert max(path.stat().st_mtime for path in sources) <= fused.LIBRARY.stat().st_mtime, again


def random_cases(count: int, seed: int) -> Iterator[tuple[tuple[int, int], tuple[int, int], tuple[float, float]]]:
    """(height, width) before and after, and a box: tiny and long ones, slight and strong changes, one side the same."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        most = int(rng.choice([4, 40, 400]))
        height, width, new_height, new_width = (int(side) for side in rng.integers(1, most + 1, 4))
        match rng.integers(5):
            case 0:
                new_height = height
            case 1:
                new_width = width
            case 2:
                new_height, new_width = (max(1, side + int(rng.integers(-3, 4))) for side in (height, width))
        cut = rng.choice([0, 0.125, 0.5, 0.875], 2)
        yield (height, width), (new_height, new_width), (width - float(cut[0]), height - float(cut[1]))


@needs_it
@pytest.mark.parametrize("lanes", LANES)
def test_it_gives_the_pixels_of_torch_for_any_sizes(lanes):
    rng = np.random.default_rng(0)
    resize = fused.fused_resize(lanes)
    assert resize is not None
    backend = torch_backend.TorchBackend()
    for (height, width), (new_height, new_width), box in random_cases(1500, seed=lanes):
        pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
        ours, torchs = (np.full((new_height, new_width, 3), fill, np.uint8) for fill in (0xA5, 0x5A))
        resize(pixels, box, (new_width, new_height), 1, Tiles(new_height, new_width), ours)
        backend.resize(pixels, box, torchs)
        assert np.array_equal(ours, torchs), (pixels.shape, ours.shape, box)


def without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_backend, "fused_resize", lambda: None)


@needs_it
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_turned_and_cut_into_tiles_it_gives_what_torch_and_numpy_do(kind, orientation, lanes, monkeypatch):
    geometries = (Qwen2_5_VL(), Qwen2_5_VL(patch_size=16, merge_size=3), Qwen2_5_VL(patch_size=40), Square(size=61))
    for size in ((150, 90), (91, 211), (28, 28), (640, 500)):
        data = encode(picture(*size), kind, exif=exif(orientation))
        for geometry in geometries:
            images = ImageKind(geometry)
            media = images.media(read_header(data), data)
            ours, apart = (np.full((media.rows, *images.row_shape), fill, np.uint8) for fill in (0xA5, 0x5A))
            with monkeypatch.context() as patch:
                patch.setattr(torch_backend, "fused_resize", lambda: fused.fused_resize(lanes))
                images.bind()(media, data, ours)
                without(patch)
                images.bind()(media, data, apart)
            assert np.array_equal(ours, apart), (size, geometry)


@needs_it
def test_arrays_that_do_not_fit_are_refused_and_not_written():
    resize = fused.fused_resize()
    assert resize is not None
    pixels, out = np.zeros((20, 30, 3), np.uint8), np.full((28, 28, 3), 7, np.uint8)
    whole, box = Tiles(28, 28), (30.0, 20.0)
    for bad_box, orientation in (((9000.0, 20.0), 1), ((float("nan"), 20.0), 1), ((0.0, 20.0), 1), (box, 0), (box, 9)):
        with pytest.raises(ValueError, match=r"box .*, orientation"):
            resize(pixels, bad_box, (28, 28), orientation, whole, out)
    with pytest.raises(ValueError, match="writable"):
        resize(pixels, box, (28, 28), 1, whole, np.frombuffer(bytes(out.nbytes), np.uint8))
    wrong = [
        (pixels[:, ::2], whole, out),  # strides
        (pixels[:0], whole, out),  # nothing
        (pixels.astype(np.int16), whole, out),
        (pixels.reshape(20, 45, 2), whole, out),  # two channels
        (pixels, whole, out[:27]),
        (pixels, Tiles(14, 15), out),  # not a whole number of tiles
        (pixels, Tiles(14, 14, 3), out),  # nor of blocks
    ]
    for image, tiles, target in wrong:
        with pytest.raises(ValueError, match=r"needed|whole number of blocks"):
            resize(image, box, (28, 28), 1, tiles, target)
    assert (out == 7).all()


def test_without_the_compiled_file_torch_resizes(monkeypatch, tmp_path):
    data = encode(picture(90, 60), "JPEG", exif=exif(6))
    header = read_header(data)
    expected = Decoder().decode(data, header, size=(40, 50))
    for content in (None, b"not a library"):
        path = tmp_path / "library.so"
        if content is not None:
            path.write_bytes(content)
        monkeypatch.setattr(fused, "LIBRARY", path)
        assert fused.vectors() is None
        decoder = Decoder()
        assert decoder._backend.fused is None
        assert np.array_equal(decoder.decode(data, header, size=(40, 50)), expected)
