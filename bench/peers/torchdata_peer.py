"""torchdata nodes: worker threads, one sample at a time.

Follows "Migrating to torchdata.nodes from torch.utils.data" (docs.pytorch.org/data, migrate_to_nodes_from_utils.html):
the order wrapped in a node (by IterableWrapper, where the page wraps a sampler), the data set's `__getitem__` as the
function of a ParallelMapper with ``method="thread"``, a Prefetcher, and a Loader around the root.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from typing import Any

if os.environ.get("PYTHON_GIL") != "0" and not getattr(sys, "_is_gil_enabled", lambda: True)():
    # torchvision imports triton, which turns the GIL on again where it is not forbidden.
    os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHON_GIL": "0"})

import common
import torch
from torchdata.nodes import IterableWrapper, Loader, ParallelMapper, Prefetcher

NOTE = "torchdata has no packing and no chat masks: best-fit packing and collation in a node of ours, chat by zephon_ft"


def stream(request: common.Request, decode: common.Decode | None) -> Iterator[Any]:
    """Samples or batches of the job."""
    job = request.job
    torch.set_num_threads(1)
    read = common.ReadAndTransform(job, decode)
    node = ParallelMapper(
        IterableWrapper(common.order(job)),
        map_fn=read,
        num_workers=job.workers,
        in_order=False,
        method="thread",
        snapshot_frequency=1000,  # of its state: not needed here, and not free
    )
    if job.mode != "fetch":
        # torchdata has no packing; the shortest fair code: a generator over the samples, wrapped as a node again.
        node = IterableWrapper(common.packed_batches(iter(Loader(node)), job))
    loader = Loader(Prefetcher(node, prefetch_factor=2 * job.workers, snapshot_frequency=1000))
    try:
        yield from loader
    finally:
        del loader, node
        gc.collect()  # nodes end their threads when they are collected, and have no close


if __name__ == "__main__":
    common.main(stream, own=common.torch_decode, packages=("torchdata", "torch", "torchvision"), note=NOTE)
