"""Packing and collation for loaders that have none, and what is counted and checked of what arrives.

A sample is a dict: `row` (its number in the data), in ``"fetch"`` `pixels` ((3, H, W) or (H, W, 3) uint8, as the
decoder makes them), else `input_ids` and `labels` (n,) int32, and in ``"full"`` `patches` (rows, 588) uint8 and `grid`
(images, 3) int64. A batch is what `collate` makes of packed rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from decoding import channels_last

from zephon_ft.ab.facts import Facts, unpatchify
from zephon_ft.ab.job import Job

Sample = dict[str, Any]
Batch = dict[str, Any]

OPEN_BINS = 32  # rows open at the same time, as in zephon_ft's `pack`


class BestFitPacker:
    """Greedy best-fit packing with `OPEN_BINS` open rows, the code that zephon_ft's `pack` uses."""

    def __init__(self, job: Job) -> None:
        from zephon_ft.ops.bins import BestFit, Budgets

        self._length = job.pack_length
        self._bins = BestFit(Budgets(job.pack_length, open_bins=OPEN_BINS))

    def add(self, sample: Sample) -> Sequence[list[Sample]]:
        """The rows that this sample closes. One longer than a row is left out."""
        tokens = len(sample["input_ids"])
        return self._bins.place(sample, tokens) if tokens <= self._length else ()

    def end(self) -> list[list[Sample]]:
        """All rows that are still open."""
        return self._bins.drain()


def packed_batches(samples: Iterable[Sample], job: Job) -> Iterator[Batch]:
    """Pack and collate a stream of samples: the shortest fair code for loaders that cannot pack."""
    packer, rows = BestFitPacker(job), []  # type: BestFitPacker, list[list[Sample]]
    for sample in samples:
        rows += packer.add(sample)
        while len(rows) >= job.batch:
            yield collate(rows[: job.batch], job)
            del rows[: job.batch]
    rows += packer.end()
    for start in range(0, len(rows), job.batch):
        yield collate(rows[start : start + job.batch], job)


def collate(rows: Sequence[Sequence[Sample]], job: Job) -> Batch:
    """Packed rows to arrays.

    Returns:
        `input_ids`, `labels`, `positions` (rows, pack_length) int32, positions from 0 in every document; `lengths`
        (documents,) and `documents` (rows,) int64; `rows` (documents,): where they came from; in ``"full"``
        `pixel_values` (patches, 588) uint8 and `image_grid_thw` (images, 3) int64.
    """
    shape = (len(rows), job.pack_length)
    ids, positions = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    labels = np.full(shape, -100, np.int32)
    for number, row in enumerate(rows):
        start = 0
        for sample in row:
            stop = start + len(sample["input_ids"])
            ids[number, start:stop], labels[number, start:stop] = sample["input_ids"], sample["labels"]
            positions[number, start:stop] = np.arange(stop - start, dtype=np.int32)
            start = stop
    return {"input_ids": ids, "labels": labels, "positions": positions, **side_arrays(rows)}


def side_arrays(rows: Sequence[Sequence[Sample]]) -> Batch:
    """What of a batch is not a packed row: see `collate`."""
    flat = [sample for row in rows for sample in row]
    batch = {
        "lengths": np.array([len(sample["input_ids"]) for sample in flat], np.int64),
        "documents": np.array([len(row) for row in rows], np.int64),
        "rows": np.array([sample["row"] for sample in flat], np.int64),
    }
    if flat and "patches" in flat[0]:
        batch["pixel_values"] = np.concatenate([sample["patches"] for sample in flat])
        batch["image_grid_thw"] = np.concatenate([sample["grid"] for sample in flat])
    return batch


def count(item: Any) -> tuple[int, int, int]:
    """(samples, images, tokens) of a sample of ``"fetch"`` or of a batch."""
    if "pixels" in item:
        return 1, 1, 0
    images = item.get("image_grid_thw")
    return len(item["lengths"]), 0 if images is None else len(images), int(item["lengths"].sum())


def tell(item: Any, facts: Facts) -> None:
    """Everything that an item holds, to `facts`."""
    if "pixels" in item:
        facts.sample()
        facts.image(int(item["row"]), channels_last(np.asarray(item["pixels"])))
        return
    batch = {name: np.asarray(value) for name, value in item.items()}
    lengths = iter(batch["lengths"].tolist())
    for number, documents in enumerate(batch["documents"].tolist()):
        start = 0
        for _ in range(documents):
            stop = start + next(lengths)
            if batch["positions"][number, start] != 0 or batch["positions"][number, stop - 1] != stop - start - 1:
                raise ValueError(f"packed row {number}: positions of {start} to {stop} do not run from 0")
            facts.document(batch["input_ids"][number, start:stop], batch["labels"][number, start:stop])
            start = stop
    first = 0
    for row, grid in zip(batch["rows"].tolist(), batch.get("image_grid_thw", ()), strict=False):
        patches = int(grid.prod())
        facts.image(row, unpatchify(batch["pixel_values"][first : first + patches], tuple(grid)))
        first += patches
