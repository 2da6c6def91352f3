"""SPDL: a pipeline of stages over a thread pool, with its own FFmpeg-based image decoding.

Follows "Pipeline Stages" and "Loading media" of its documentation (facebookresearch.github.io/spdl: main "Getting
Started", io/basic.html, io/filtering.html): a source, a `pipe` stage with `concurrency`, a sink; images by
`spdl.io.demux_image` and `decode_packets` with the filter that `get_video_filter_desc` writes. FFmpeg's libraries (4 to
9) must be installed on the system.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import common
import numpy as np
import spdl.io
from spdl.pipeline import PipelineBuilder
from spdl.pipeline.defs import Aggregator

from zephon_ft.vision.header import read_header

NOTE = "SPDL has no packing and no chat masks: best-fit packing and collation as a stage of ours, chat by zephon_ft"


def stream(request: common.Request, decode: common.Decode | None) -> Iterator[Any]:
    """Samples or batches of the job."""
    job = request.job
    read = common.ReadAndTransform(job, decode)
    builder = PipelineBuilder().add_source(common.order(job)).pipe(read, concurrency=job.workers)
    if job.mode == "fetch":
        pipeline = builder.add_sink(4 * job.workers).build(num_threads=job.workers, max_failures=0)
    else:
        # SPDL has no packing; the shortest fair code: an aggregator that closes rows, and a stage that collates.
        builder = builder.aggregate(_packing(job)).pipe(partial(common.collate, job=job))
        pipeline = builder.add_sink(2).build(num_threads=job.workers + 1, max_failures=0)
    with pipeline.auto_stop():
        yield from pipeline


def _packing(job: common.Job) -> Any:
    """An `Aggregator` that hands on lists of `job.batch` packed rows."""

    class Packing(Aggregator):
        def __init__(self) -> None:
            self._packer, self._rows = common.BestFitPacker(job), []  # type: Any, list[Any]

        def accumulate(self, item: common.Sample) -> list[Any] | None:
            self._rows += self._packer.add(item)
            return self._take(job.batch) if len(self._rows) >= job.batch else None

        def flush(self) -> list[Any] | None:
            self._rows += self._packer.end()
            return self._take(len(self._rows)) if self._rows else None

        def _take(self, number: int) -> list[Any]:
            taken, self._rows = self._rows[:number], self._rows[number:]
            return taken

    return Packing()


# What turns stored pixels upright, by EXIF orientation: FFmpeg's filters.
TURNS = {
    2: "hflip",
    3: "hflip,vflip",
    4: "vflip",
    5: "transpose=0",
    6: "transpose=1",
    7: "transpose=3",
    8: "transpose=2",
}


def spdl_decode(data: bytes, size: common.Size) -> np.ndarray:
    """SPDL's own: FFmpeg decodes, scales (bicubic) and converts to RGB in one filter graph.

    SPDL does not look at EXIF; zephon_ft reads the orientation, and a filter turns the small image.
    """
    packets = spdl.io.demux_image(data)
    orientation = read_header(data).orientation
    width, height = size[::-1] if orientation >= 5 else size
    scale = spdl.io.get_video_filter_desc(
        scale_width=width,
        scale_height=height,
        scale_mode=None,
        pix_fmt="rgb24",
        filter_desc=TURNS.get(orientation),
    )
    return spdl.io.to_numpy(spdl.io.convert_frames(spdl.io.decode_packets(packets, filter_desc=scale)))


def own(job: common.Job) -> common.Decode:
    """See `spdl_decode`."""
    return spdl_decode


if __name__ == "__main__":
    common.main(stream, own=own, packages=("spdl-core", "spdl-io"), note=NOTE)
