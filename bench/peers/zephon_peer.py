"""Zephon: its own Parquet data set, a map, `pack_sequences`, `batch`, a collating operator; threads or processes.

Follows its User Guide (datologyai.github.io/zephon: "A First Pipeline"; understanding/accumulators_operators.html) and
the docstrings of `zephon.Pipeline`: a `Dataset.from_path`, a `StaticMixtureWorkSource`, a fluent `Pipeline`, a map as
an operator with an accumulator that sets how many samples a task takes, `options(runner=...)`.
Order is file order with one lane. `parallelism` of the map is the number of workers; reading and packing get one
worker each beside them.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import common
import pyarrow.parquet as pq
from zephon import Pipeline
from zephon.io import Dataset
from zephon.ops import CountingAccumulator
from zephon.work import MixtureSpec, StaticMixtureWorkSource

AT_ONCE = 16  # samples of a task; `map_transform` takes 64, which with decoded images is slower and holds more memory
NOTE = "Zephon has no images and no patches in its chat masks: chat by zephon_ft in a map; it packs, ours collates"


def stream(request: common.Request, decode: common.Decode | None) -> Iterator[Any]:
    """Samples or batches of the job."""
    job = request.job
    dataset = Dataset.from_path(
        "data", str(_folder(job.data, tuple(common.columns(job)), job.rows, whole=job.mode != "text"))
    )
    source = StaticMixtureWorkSource(
        datasets=[dataset],
        mixture=MixtureSpec({"data": 1.0}),
        seed=job.seed,
        shuffle_shards=False,
        # At most the data's size: a chunk that the data cannot fill is refused, and at the end dropped.
        chunk_size=min(16384, dataset.total()),
        **({"exhausted_policy": "repeat"} if job.passes is None else {}),
    )
    pipeline = (
        Pipeline(source)
        .fetch_parallelism(1, AT_ONCE)
        .add_op(  # `map_transform` with fewer samples at once
            "work",
            process_many=Map(job, decode).many,
            accumulator=lambda: CountingAccumulator(max_batch=AT_ONCE),
            preserves_cursor_order=True,
            parallelism=job.workers,
        )
    )
    if job.mode != "fetch":
        pipeline = (
            pipeline.pack_sequences(
                job.pack_length,
                num_bins=common.OPEN_BINS,
                algorithm="best_fit",
                tokens_field="input_ids",
                flush_strategy="fullest",
            )
            .batch(job.batch, drop_last=False)
            # Not `map_batch`, which waits for 64 batches.
            .add_op("collate", process_many=partial(_collate, job=job), preserves_cursor_order=True)
        )
    runner = {"thread": "threads", "process": "process"}[request.runner]
    iterator = iter(pipeline.options(runner=runner, auto_validation="off"))
    try:
        for item in iterator:
            if job.mode == "fetch":
                yield {**item.payload, "row": item.meta.sample_id[2]}
            else:
                yield item.records[0].payload
    finally:
        iterator.close()


class Map(common.Transform):
    """Between processes Zephon hands on views of shared memory; zephon_ft's functions take bytes."""

    def many(self, records: list[Any]) -> list[Any]:
        """What one task does."""
        for record in records:
            if not record.meta.tombstone:
                record.payload = self(record.payload)
        return records

    def __call__(self, fields: dict[str, Any]) -> common.Sample:
        for name, items in fields.items():
            if name in self.images:
                fields[name] = [{**item, "bytes": bytes(item["bytes"])} for item in items]
        return super().__call__(fields)


def _collate(batches: list[Any], job: common.Job) -> list[Any]:
    """Packed rows to one record that holds the arrays; where a document came from stands in the record's meta."""
    for batch in batches:
        rows = []
        for record in batch.records:
            numbers = [ref.cursor.sample_id[2] for ref in record.meta.contributors]
            samples = record.payload["packed_samples"]
            rows.append([{**sample, "row": number} for number, sample in zip(numbers, samples, strict=True)])
            record.payload = {}
        batch.records[0].payload = common.collate(rows, job)
    return batches


@functools.cache
def _folder(data: str, columns: tuple[str, ...], rows: int | None, *, whole: bool) -> Path:
    """A folder with the job's rows: Zephon reads folders, and all columns of their files.

    The file itself where the job takes `whole` of it, else a copy of its first rows and of the columns that it needs.
    """
    folder = Path(tempfile.mkdtemp(prefix="zephon-peer-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if rows is None and whole:
        (folder / "data.parquet").symlink_to(Path(data).resolve())
        return folder
    table = pq.read_table(data, columns=list(columns))
    table = table if rows is None else table.slice(0, rows)
    pq.write_table(table, folder / "data.parquet", row_group_size=100, compression="none")
    return folder


def own(job: common.Job) -> common.Decode:
    """PIL in a map function: Zephon decodes nothing itself."""
    return partial(common.pil_decode, scaled=job.scaled_decode)


if __name__ == "__main__":
    common.main(stream, own=own, packages=("zephon",), note=NOTE)
