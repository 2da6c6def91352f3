"""Sources for tests of the order, and lanes read to their end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zephon_ft import Dataset, StaticMixtureWorkSource

Place = tuple[int, int, int, int]  # dataset, shard, row, pass


def source(
    sizes: Sequence[int], weights: Sequence[float] | None = None, shard_rows: Any = 7, **options: Any
) -> StaticMixtureWorkSource:
    """Datasets ``d0``, ``d1``, ... of so many rows."""
    datasets = [
        Dataset.from_rows(f"d{i}", [{"n": n} for n in range(size)], shard_rows=shard_rows)
        for i, size in enumerate(sizes)
    ]
    mixture = None if weights is None else {f"d{i}": w for i, w in enumerate(weights)}
    return StaticMixtureWorkSource(datasets, mixture, **options)


def take(cursor: Any, n: int, step: int = 50) -> list[Place]:
    """Up to n places."""
    out: list[Place] = []
    while len(out) < n:
        chunk = cursor.take(min(step, n - len(out)))
        if not len(chunk):
            break
        out += zip(chunk.dataset, chunk.shard, chunk.row, chunk.passes)
    return out


def lanes_of(work: StaticMixtureWorkSource, lanes: int, iteration: int = 0, most: int = 100_000) -> list[list[Place]]:
    """Every lane of a finite source, to its end."""
    dealt = work.lanes(lanes)
    return [take(dealt.cursor(lane, iteration), most) for lane in range(lanes)]
