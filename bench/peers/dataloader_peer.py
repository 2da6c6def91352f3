"""PyTorch's DataLoader: worker processes over an iterable data set that is split by `get_worker_info`.

Follows "torch.utils.data" (docs.pytorch.org: data.html, "Iterable-style datasets", "Multi-process data loading",
"Disabling automatic batching"): every worker goes through its own part of the rows, packs and collates there, so that
only finished batches cross to the trainer, as tensors in shared memory. Workers are persistent, forked from a server,
not pinned; torch runs one thread in each, as it sets itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import common
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

NOTE = "DataLoader has no packing and no chat masks: best-fit packing and collation in each worker, chat by zephon_ft"
AT_ONCE = 16  # images of one size that a worker sends together; the consumer gets them one by one


class Stream(IterableDataset):
    """What one worker does."""

    def __init__(self, job: common.Job, decode: common.Decode | None) -> None:
        super().__init__()
        self._job, self._read = job, common.ReadAndTransform(job, decode)

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        samples = map(self._read, common.order(self._job, info.id, info.num_workers))
        return samples if self._job.mode == "fetch" else common.packed_batches(samples, self._job)


def stream(request: common.Request, decode: common.Decode | None) -> Iterator[Any]:
    """Samples or batches of the job."""
    job = request.job
    fetch = job.mode == "fetch"
    loader = DataLoader(
        Stream(job, decode),
        batch_size=AT_ONCE if fetch else None,
        collate_fn=None if fetch else _tensors,
        num_workers=job.workers,
        prefetch_factor=2,
        multiprocessing_context="forkserver",
        persistent_workers=True,
        pin_memory=False,
    )
    for batch in loader:
        if fetch:
            for row, pixels in zip(batch["row"].tolist(), batch["pixels"], strict=True):
                yield {"row": row, "pixels": pixels}
        else:
            yield batch


def _tensors(batch: common.Batch) -> common.Batch:
    """Tensors go through shared memory, arrays would be pickled."""
    return {name: torch.from_numpy(value) for name, value in batch.items()}


if __name__ == "__main__":
    common.main(stream, own=common.torch_decode, packages=("torch", "torchvision"), note=NOTE)
