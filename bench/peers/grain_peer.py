"""Grain: random access over rows, `map`, worker threads or processes, its own packing.

Follows "MapDataset / IterDataset" of its documentation (google-grain.readthedocs.io: data_sources, tutorials "Dataset
basics" and "Dataset advanced": multiprocessing and packing): `MapDataset.source().map()`, `to_iter_dataset` whose
`ReadOptions` read and map ahead on threads, `mp_prefetch` for worker processes (closed after use, as it asks), and
`grain.experimental.BestFitPackIterDataset` with what is no sequence as meta features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import common
import grain
import numpy as np
from grain.experimental import BestFitPackIterDataset, ThreadPrefetchIterDataset

NOTE = "Grain has no chat masks (chat by zephon_ft); its packing keeps images as meta features, joined when batched"


def stream(request: common.Request, decode: common.Decode | None) -> Iterator[Any]:
    """Samples or batches of the job."""
    job = request.job
    processes = request.runner == "process"
    data = grain.MapDataset.source(common.Rows(job)).repeat(job.passes).map(common.Transform(job, decode))
    # Threads of the reading side do the decoding too; in worker processes one each, of which there are `workers`.
    threads = 1 if processes else job.workers
    stream = data.to_iter_dataset(grain.ReadOptions(num_threads=threads, prefetch_buffer_size=4 * threads))
    if job.mode != "fetch":
        stream = _packed(stream, job)
    if processes:
        options = grain.MultiprocessingOptions(num_workers=job.workers, per_worker_buffer_size=2)
        stream = stream.mp_prefetch(options)
    elif job.mode != "fetch":
        stream = ThreadPrefetchIterDataset(stream, prefetch_buffer_size=2)
    iterator = iter(stream)
    try:
        yield from iterator
    finally:
        iterator.close()


def _packed(stream: Any, job: common.Job) -> Any:
    """Grain's best-fit packing and batching."""
    meta = ["row", "length", *(["patches", "grid"] if job.mode == "full" else [])]
    packed = BestFitPackIterDataset(
        stream.map(_with_length),
        length_struct={"input_ids": job.pack_length, "labels": job.pack_length},
        num_packing_bins=common.OPEN_BINS,
        shuffle_bins=False,
        meta_features=meta,
        padding_struct={"input_ids": 0, "labels": -100},
    )
    return packed.batch(job.batch, drop_remainder=False, batch_fn=_collate)


def _with_length(sample: common.Sample) -> common.Sample:
    return {**sample, "length": len(sample["input_ids"])}


def _collate(rows: Sequence[dict[str, Any]]) -> common.Batch:
    """Packed rows as Grain gives them, with lists of meta features, to a batch."""
    batch = {
        "input_ids": np.stack([row["input_ids"] for row in rows]),
        "labels": np.stack([row["labels"] for row in rows]),
        "positions": np.stack([row["input_ids_positions"] for row in rows]),
        "lengths": np.array([length for row in rows for length in row["length"]], np.int64),
        "documents": np.array([len(row["length"]) for row in rows], np.int64),
        "rows": np.array([number for row in rows for number in row["row"]], np.int64),
    }
    if "patches" in rows[0]:
        batch["pixel_values"] = np.concatenate([patches for row in rows for patches in row["patches"]])
        batch["image_grid_thw"] = np.concatenate([grid for row in rows for grid in row["grid"]])
    return batch


def own(job: common.Job) -> common.Decode:
    """PIL in a map function: Grain decodes nothing itself."""
    return partial(common.pil_decode, scaled=job.scaled_decode)


if __name__ == "__main__":
    common.main(stream, own=own, packages=("grain", "grain-free-threading"), note=NOTE)
