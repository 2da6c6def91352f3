"""Bytes read from Parquet over bytes delivered: 1,000-row row groups, 32 lanes, as one rank and as one of 8.

A row group is read whole and shared by the lanes that need it, so the ratio over one pass should be near 1. It is read
again where the cache limit (half the memory budget) made room for others meanwhile. Both counts are of the bytes of
column values: stored for what is read, in memory for what is delivered; the file is written without compression or
dictionaries so that they compare. The stream is stopped after `--passes` over the data, and what lanes have read
ahead by then counts as delivered as far as it was given to them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import common
import numpy as np

LANES, GROUP = 32, 1000


def make(path: Path, groups: int, row_bytes: int) -> None:
    """Rows of random bytes and a number."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    schema = pa.schema({"n": pa.int64(), "payload": pa.binary()})
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for group in range(groups):
            numbers = list(range(group * GROUP, (group + 1) * GROUP))
            payload = [rng.bytes(int(size)) for size in rng.integers(row_bytes // 2, row_bytes * 3 // 2, GROUP)]
            writer.write_table(pa.table({"n": numbers, "payload": payload}, schema), row_group_size=GROUP)


def size(fields: dict[str, Any]) -> dict[str, Any]:
    """What the map makes of a row: its number and length."""
    return {"n": fields["n"], "length": len(fields["payload"])}


def ratio(path: Path, world: int, passes: float, budget: int) -> dict[str, float]:
    """Counters of rank 0 of `world` after some passes over its share."""
    from zephon_ft import Dataset, Pipeline, StaticMixtureWorkSource

    dataset = Dataset.from_path("rows", path)
    source = StaticMixtureWorkSource([dataset], seed=1)
    pipeline = Pipeline(source, lanes=LANES).map(size).batch(32)
    stream = iter(pipeline.options(workers=2, runner="thread", memory_budget=budget, rank=0, world_size=world))
    taken, share = 0, dataset.rows * passes / world
    while taken < share:
        taken += len(next(stream))
    stats = dataset.stats()
    stream.close()
    return {
        "ratio": stats["bytes_read"] / stats["bytes_delivered"],
        "read": stats["bytes_read"] / 1e6,
        "groups": float(stats.get("row_groups_read", 0)),
    }


def main() -> None:
    """Command line."""
    parser = common.parser(__doc__)
    parser.set_defaults(repeats=1)
    parser.add_argument("--groups", default="32,320", help="row groups in the file: few, so that lanes share; many")
    parser.add_argument("--row-bytes", type=int, default=1000)
    parser.add_argument("--passes", type=float, default=1.0)
    parser.add_argument("--budget", type=int, default=1 << 30, help="memory budget in bytes; half of it is the cache")
    options = parser.parse_args()
    report = common.Report("reads")
    report.fact("row groups", f"{GROUP} rows, about {GROUP * options.row_bytes / 1e6:.1f} MB each; {LANES} lanes")
    report.begin()
    for groups in map(int, options.groups.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.parquet"
            make(path, groups, options.row_bytes)
            for world in (1, 8):
                runs = [ratio(path, world, options.passes, options.budget) for _ in range(options.repeats)]
                values = [figures["ratio"] for figures in runs]
                name = f"{groups} row groups, rank 0 of {world}"
                met = common.middle(values) <= 1.5
                report.row(f"{name}: bytes read / delivered", values, "", "<= 1.5", met)
                report.row(f"{name}: row groups read", [figures["groups"] for figures in runs])
    report.end(options.json)


if __name__ == "__main__":
    main()
