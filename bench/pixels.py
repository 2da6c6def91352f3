"""What each step from bytes to patches costs: time, page faults and how far the pixels are from Pillow's.

Every library that is installed takes part: Pillow or pillow-simd, torch, leanjpeg-simple, kornia-rs, and the package's
own decoders as `batch` uses them. All work is done on a thread that is not the main one, as in the loader; times
are CPU times of the process, so that a busy machine changes them little. Sides take turns.
"""

from __future__ import annotations

import io
import resource
import sys
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import common
import numpy as np

from zephon_ft.vision.fused_resize import Resize
from zephon_ft.vision.tiles import Tiles

Step = Callable[[int], Any]


class Photographs:
    """Encoded photographs, their pixels, and the size that the geometry wants of each."""

    def __init__(self, path: Path, count: int) -> None:
        import pyarrow.parquet as pq
        from PIL import Image

        from zephon_ft.vision import Qwen2_5_VL
        from zephon_ft.vision.header import read_header

        table = next(pq.ParquetFile(path).iter_batches(count, columns=["images"]))
        self.data = [row[0]["bytes"] for row in table["images"].to_pylist()]
        self.headers = [read_header(data) for data in self.data]
        self.geometry = Qwen2_5_VL()
        self.plans = [self.geometry.plan(header.width, header.height) for header in self.headers]
        self.opened = [Image.open(io.BytesIO(data)).convert("RGB") for data in self.data]
        self.arrays = [np.asarray(image).copy() for image in self.opened]
        stored = [header.orientation < 5 for header in self.headers]
        self.sizes = [
            (plan.width, plan.height) if same else (plan.height, plan.width)
            for plan, same in zip(self.plans, stored, strict=True)
        ]


def decoders(photos: Photographs) -> dict[str, Step]:
    """Full decode to RGB, by library."""
    from PIL import Image

    def pillow(i: int) -> Any:
        return np.asarray(Image.open(io.BytesIO(photos.data[i])))

    sides: dict[str, Step] = {"decode: Pillow, to an array": pillow}
    if find_spec("leanjpeg_simple"):
        from leanjpeg_simple import decode_jpeg

        room = np.empty(max(array.nbytes for array in photos.arrays), np.uint8)
        sides["decode: leanjpeg-simple, new array"] = lambda i: decode_jpeg(photos.data[i], "RGB")
        sides["decode: leanjpeg-simple, reused memory"] = lambda i: decode_jpeg(photos.data[i], "RGB", buffer=room)
        sides["decode: the same, fast upsampling and DCT"] = lambda i: decode_jpeg(
            photos.data[i], "RGB", buffer=room, fastupsample=True, fastdct=True
        )
    if find_spec("kornia_rs"):
        from kornia_rs.image import Image as Kornia

        if hasattr(Kornia, "decode"):
            sides["decode: kornia-rs"] = lambda i: np.asarray(Kornia.decode(photos.data[i], "RGB"))
    return sides


def resizers(photos: Photographs) -> dict[str, Step]:
    """Bicubic with antialiasing, from RGB pixels, by library."""
    from PIL import Image

    sides: dict[str, Step] = {
        "resize: Pillow's provider": lambda i: photos.opened[i].resize(photos.sizes[i], Image.Resampling.BICUBIC)
    }
    if find_spec("torch"):
        import torch

        from zephon_ft.vision.fused_resize import fused_resize
        from zephon_ft.vision.scratch import Scratch
        from zephon_ft.vision.torch_backend import TorchBackend

        own, scratch, fused = TorchBackend(), Scratch(), fused_resize()

        def planar(i: int) -> Any:
            pixels = torch.from_numpy(photos.arrays[i]).permute(2, 0, 1)[None]
            size = photos.sizes[i][::-1]
            return torch.nn.functional.interpolate(pixels, size=size, mode="bicubic", antialias=True)

        def interleaved(i: int) -> Any:
            width, height = photos.sizes[i]
            out = scratch.take(height, width)
            own.resize(photos.arrays[i], photos.opened[i].size, out)
            return out

        sides["resize: torch, new planar tensor"] = planar
        sides["resize: torch, interleaved, reused memory"] = interleaved
        if fused is not None:
            sides |= fused_resizers(photos, fused)
    if find_spec("kornia_rs"):
        from kornia_rs.imgproc import resize

        sides["resize: kornia-rs"] = lambda i: resize(photos.arrays[i], photos.sizes[i][::-1], "bicubic", True)
    return sides


def fused_resizers(photos: Photographs, fused: Resize) -> dict[str, Step]:
    """The compiled resize: to an image, and straight to patches."""
    room = np.empty(max(plan.width * plan.height * 3 for plan in photos.plans), np.uint8)

    def resize(i: int, orientation: int, tiles: Tiles) -> None:
        width, height = photos.sizes[i]
        box = photos.opened[i].size
        fused(photos.arrays[i], box, (width, height), orientation, tiles, room[: width * height * 3])

    return {
        "resize: fused, to an image": lambda i: resize(i, 1, Tiles(photos.sizes[i][1], photos.sizes[i][0])),
        "resize: fused, turned and to patches": lambda i: resize(
            i, photos.headers[i].orientation, photos.geometry.tiles(photos.plans[i])
        ),
    }


def patches(photos: Photographs) -> dict[str, Step]:
    """From resized pixels to rows of the batch buffer."""
    rows = np.empty((max(plan.rows for plan in photos.plans), *photos.geometry.row_shape), np.uint8)
    images = [np.zeros((plan.height, plan.width, 3), np.uint8) for plan in photos.plans]

    def ours(i: int) -> None:
        photos.geometry.patchify(images[i], photos.plans[i], rows[: photos.plans[i].rows])

    def channels_first(i: int) -> None:
        plan, patch, merge = photos.plans[i], photos.geometry.patch_size, photos.geometry.merge_size
        _, grid_h, grid_w = plan.grid
        source = images[i].reshape(grid_h // merge, merge, patch, grid_w // merge, merge, patch, 3)
        target = rows[: plan.rows].reshape(grid_h // merge, grid_w // merge, merge, merge, 3, patch, patch)
        np.copyto(target, source.transpose(0, 3, 1, 4, 6, 2, 5))

    return {"patchify: pixels kept together": ours, "patchify: channels first": channels_first}


def fills(photos: Photographs) -> dict[str, Step]:
    """The package's own path, bytes to patches in the batch buffer, by decoder; with and without scaled decoding."""
    from zephon_ft.vision.decode import DECODERS
    from zephon_ft.vision.kind import ImageKind

    rows = np.empty((max(plan.rows for plan in photos.plans), *photos.geometry.row_shape), np.uint8)
    sides: dict[str, Step] = {}
    for decoder in DECODERS:
        if decoder == "torch" and not find_spec("torch"):
            continue
        for scaled in (False, True):
            kind = ImageKind(photos.geometry, scaled, decoder)
            media = [
                kind.media(header, None, key=(0, 0, i, 0), position=i, index=0)
                for i, header in enumerate(photos.headers)
            ]
            fill = kind.bind()
            sides[f'bytes to patches: decoder="{decoder}"' + (", scaled" if scaled else ", full decode")] = (
                lambda i, fill=fill, media=media: fill(media[i], photos.data[i], rows[: media[i].rows])
            )
    return sides


def timed(step: Step, count: int) -> dict[str, float]:
    """CPU milliseconds (of all threads: some libraries have their own) and minor page faults an image."""
    seen: dict[str, float] = {}

    def work() -> None:
        step(0)
        faults, begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.process_time()
        for i in range(count):
            step(i)
        seen["ms"] = (time.process_time() - begun) / count * 1e3
        seen["faults"] = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults) / count

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return seen


def errors(photos: Photographs, report: common.Report) -> None:
    """How far scaled decoding is from full decode and resize, and torch from Pillow, in steps of 255."""
    from zephon_ft.vision.decode import Decoder

    sides: dict[str, list[np.ndarray]] = {}
    for name, ratio, options in (
        ("torch, 1/2 of the size", 2, {}),
        ("torch, 1/3", 3, {}),
        ("torch, 1/6", 6, {}),
        ("torch, 1/12", 12, {}),
    ):
        sides[name] = []
        full, scaled = Decoder(scaled_decode=False, **options), Decoder(**options)
        for data, header in zip(photos.data, photos.headers, strict=True):
            size = (max(1, header.width // ratio), max(1, header.height // ratio))
            a, b = (d.decode(data, header, size=size).astype(int) for d in (full, scaled))
            sides[name].append(np.abs(a - b))
    for name, differences in sides.items():
        report.row(f"scaled decode: mean difference, {name}", [float(d.mean()) for d in differences], "of 255")
        report.row(f"  99 % of values within, {name}", [float(np.percentile(d, 99)) for d in differences], "of 255")
    own, pillow = Decoder(scaled_decode=False), Decoder(scaled_decode=False, decoder="pillow")
    apart = []
    for data, header, plan in zip(photos.data, photos.headers, photos.plans, strict=True):
        a, b = (d.decode(data, header, size=(plan.width, plan.height)).astype(int) for d in (own, pillow))
        apart.append(np.abs(a - b))
    report.row("torch from Pillow: mean difference", [float(d.mean()) for d in apart], "of 255")
    report.row("torch from Pillow: largest difference", [float(d.max()) for d in apart], "of 255")


def main() -> None:
    """Command line."""
    parser = common.parser(__doc__)
    parser.add_argument("photos", type=Path, help="a file of bench/photos.py")
    parser.add_argument("--count", type=int, default=40, help="photographs (default 40)")
    options = parser.parse_args()
    photos = Photographs(options.photos, options.count)
    report = common.Report("pixels")
    area = [header.width * header.height / 1e6 for header in photos.headers]
    report.fact("photographs", f"{len(area)}, mean {np.mean(area):.2f} megapixels")
    report.fact("resized to", f"mean {np.mean([p.width * p.height for p in photos.plans]) / 1e6:.2f} megapixels")
    report.begin()
    sides = decoders(photos) | resizers(photos) | patches(photos) | fills(photos)
    turns = {name: (lambda step=step: timed(step, len(photos.data))) for name, step in sides.items()}
    results = common.interleave(turns, options.repeats)
    for name, runs in results.items():
        report.row(name, [run["ms"] for run in runs], "ms")
        report.row("  page faults an image", [run["faults"] for run in runs])
    if find_spec("torch"):
        errors(photos, report)
    report.end(options.json)


if __name__ == "__main__":
    sys.exit(main())
