"""Rows of one Parquet file by number, for loaders that take a sequence; and the order in which they are asked for."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np

from zephon_ft.ab.job import Job
from zephon_ft.ab.recipe import reading

GROUPS_KEPT = 4  # row groups in memory, per process
ROW = "row number"  # key of a row's number among its fields


def columns(job: Job) -> list[str]:
    """Names of the columns that the job needs."""
    how = reading(job)
    return [*(how.images[:1] if job.mode != "text" else ()), *(how.text if job.mode != "fetch" else ())]


class Rows:
    """Rows of a Parquet file by number: a sequence. Row groups are read whole, once where the order allows.

    Shared by threads; in another process it opens the file anew.
    """

    def __init__(self, job: Job) -> None:
        import pyarrow.parquet as pq

        if not job.data.endswith(".parquet"):
            sys.exit(f"{job.data}: the adapters of other loaders read one Parquet file")
        self._path = job.data
        names = columns(job)
        self._large = [name for name in names if name in reading(job).images]
        self._small = [name for name in names if name not in self._large]
        file = pq.ParquetFile(self._path)
        sizes = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        self._starts = np.cumsum([0, *sizes])
        self._length = min(int(self._starts[-1]), job.rows or sys.maxsize)
        self._open()

    def _open(self) -> None:
        self._file: Any = None
        self._groups: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("_path", "_large", "_small", "_starts", "_length")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def __deepcopy__(self, memo: dict[int, Any]) -> Rows:
        """Itself: loaders that copy their pipeline for every thread share the row groups all the same."""
        return self

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, row: int) -> dict[str, Any]:
        """`ROW`: its number, and the columns that the job needs, as the data have them."""
        number = int(np.searchsorted(self._starts, row, "right")) - 1
        place = row - int(self._starts[number])
        with self._lock:
            group = self._groups.get(number) or self._read(number)
            self._groups.move_to_end(number)
        fields = {name: group[name][place] for name in self._small}
        for name in self._large:
            fields[name] = group[name][place].as_py()  # copied only now, and only this row
        fields[ROW] = row
        return fields

    def _read(self, number: int) -> dict[str, Any]:
        import pyarrow.parquet as pq

        if self._file is None:
            self._file = pq.ParquetFile(self._path, memory_map=True)
        table = self._file.read_row_group(number, columns=self._large + self._small, use_threads=False)
        group: dict[str, Any] = {name: table.column(name).combine_chunks() for name in self._large}
        group.update({name: table.column(name).to_pylist() for name in self._small})
        self._groups[number] = group
        while len(self._groups) > GROUPS_KEPT:
            self._groups.popitem(last=False)
        return group


def order(job: Job, part: int = 0, parts: int = 1) -> Iterator[int]:
    """Row numbers in file order, as often as the job says; `part` of `parts` takes every `parts`-th row.

    File order is the cheapest there is to read; zephon_ft's own side shuffles.
    """
    length = len(Rows(job))
    number = 0
    while job.passes is None or number < job.passes:
        yield from range(part, length, parts)
        number += 1
