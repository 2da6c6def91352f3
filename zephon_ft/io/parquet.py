"""Parquet: one row group at a time, only the columns needed, in record batches of bounded size.

Row counts come from the footers, which are all that is read at build time. A decoded row group is shared by all that
read from it, and kept while the cache limit allows. What is delivered owns its memory: no row keeps a row group alive.
"""

from __future__ import annotations

import hashlib
import threading
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from zephon_ft.errors import DataError, StorageError
from zephon_ft.io.arrow import rows_of
from zephon_ft.io.cache import ByteCache
from zephon_ft.io.dataset import Dataset, Shard, check_rows
from zephon_ft.io.parquet_file import (
    ColumnSizes,
    column_sizes,
    decode,
    read_footer,
    summarise,
)
from zephon_ft.io.storage import File, each

CACHE_BYTES = 1 << 30
LARGE_GROUP = 1 << 30  # bytes; a row group is read whole, so a larger one is worth a warning
_FOOTERS_KEPT = 256  # parsed footers are some 100 KB each


@dataclass(frozen=True, slots=True)
class _Group:
    """A decoded row group, or some columns of it."""

    batches: tuple[pa.RecordBatch, ...]
    starts: np.ndarray  # int64 (batches,): first row of each within the row group


class ParquetDataset(Dataset):
    """Rows of Parquet files. Nested values, nulls and binary columns come as plain Python values."""

    format = "parquet"
    random_access = False

    def __init__(
        self,
        name: str,
        files: Sequence[File],
        *,
        columns: Iterable[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.files = tuple(files)
        self._footer_lock = threading.Lock()
        self._parsed: OrderedDict[int, pq.FileMetaData] = OrderedDict()
        self._cache: ByteCache[_Group] = ByteCache(CACHE_BYTES)
        self._footers = each(self.files, lambda file: summarise(name, file))
        super().__init__(
            name,
            [Shard(f.path, sum(t.row_groups), t.row_groups) for f, t in zip(self.files, self._footers, strict=True)],
            remote=any(file.remote for file in self.files),
            columns=columns,
            storage_options=storage_options,
        )
        if self.columns is not None:
            self.check_fields(self.columns)
        self._warn_of_large_groups()

    def __getstate__(self) -> dict[str, Any]:
        """Without the parsed footers, which are read again where they are needed."""
        return {**self.__dict__, "_footer_lock": None, "_parsed": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _footer_lock=threading.Lock(), _parsed=OrderedDict())

    def _warn_of_large_groups(self) -> None:
        largest = max(range(len(self.files)), key=lambda i: self._footers[i].largest, default=None)
        if largest is not None and self._footers[largest].largest > LARGE_GROUP:
            warnings.warn(
                f"dataset {self.name!r}: {self.files[largest].path} has a row group of "
                f"{self._footers[largest].largest / (1 << 30):.1f} GiB; a row group is read whole, so write the files "
                "with a smaller row_group_size",
                stacklevel=4,
            )

    def field_names(self) -> frozenset[str] | None:
        """Columns that every file has."""
        names = frozenset.intersection(*(frozenset(footer.names) for footer in self._footers))
        return names if self.columns is None else names & self.columns

    def check_fields(self, fields: Iterable[str]) -> None:
        """As in `Dataset`; the error names the first file without the column."""
        wanted = set(fields)
        for file, footer in zip(self.files, self._footers, strict=True):
            there = set(footer.names) if self.columns is None else set(footer.names) & self.columns
            missing = sorted(wanted - there)
            if missing:
                known = footer.names if self.columns is None or not self.columns <= set(footer.names) else self.columns
                raise self.missing_fields(missing, known, f" in {file.path}")

    def fetch(
        self, shard: int, rows: Sequence[int], fields: frozenset[str] | None = None
    ) -> list[dict[str, Any] | DataError]:
        wanted: np.ndarray = np.asarray(rows, dtype=np.int64)
        if not len(wanted):
            return []
        check_rows(self, shard, int(wanted.min()), int(wanted.max()))
        footer = self._footers[shard]
        names = [
            n for n in footer.names if (fields is None or n in fields) and (self.columns is None or n in self.columns)
        ]
        if not names:
            return [{} for _ in range(len(wanted))]
        out: list[Any] = [None] * len(wanted)
        delivered = 0
        for group, places in _runs(footer.starts, wanted):
            delivered += self._take(shard, group, names, wanted[places] - footer.starts[group], places, out)
        self._statistics.add(bytes_delivered=delivered, rows_delivered=len(out))
        return out

    def _take(
        self, shard: int, group: int, names: list[str], rows: np.ndarray, places: np.ndarray, out: list[Any]
    ) -> int:
        """Put the rows of one row group in their places; returns the Arrow bytes that they took."""
        delivered = 0
        with self._cache.hold(
            (shard, group),
            frozenset(names),
            lambda: self._sizes(shard, group, names).decoded,
            lambda: self._load(shard, group, names),
        ) as held:
            for number, mine in _runs(held.starts, rows):
                batch = held.batches[number]
                found, nbytes = rows_of(names, [batch.column(name) for name in names], rows[mine] - held.starts[number])
                delivered += nbytes
                for place, row in zip(places[mine].tolist(), found, strict=True):
                    out[place] = row
        return delivered

    def _sizes(self, shard: int, group: int, names: list[str]) -> ColumnSizes:
        return column_sizes(self._metadata(shard).row_group(group), set(names))

    def _load(self, shard: int, group: int, names: list[str]) -> tuple[_Group, int]:
        """Read and decode columns of a row group; and its size in bytes."""
        file, sizes = self.files[shard], self._sizes(shard, group, names)
        try:
            batches = decode(file, self._metadata(shard), group, names, sizes)
        except (StorageError, MemoryError):
            raise
        except (pa.ArrowException, OSError) as error:
            raise StorageError(
                f"dataset {self.name!r}: row group {group} of {file.path} cannot be read (columns "
                f"{', '.join(names)}): {error}"
            ) from error
        if sum(batch.num_rows for batch in batches) != self.shards[shard].row_groups[group]:
            raise StorageError(
                f"dataset {self.name!r}: row group {group} of {file.path} has not as many rows as stated"
            )
        starts = np.cumsum([0] + [batch.num_rows for batch in batches])[:-1]
        self._statistics.add(bytes_read=sizes.stored, row_groups_read=1)
        return _Group(tuple(batches), starts), sum(batch.get_total_buffer_size() for batch in batches)

    def _metadata(self, shard: int) -> pq.FileMetaData:
        """The parsed footer of a file, from the few that are kept or read again."""
        with self._footer_lock:
            if shard in self._parsed:
                self._parsed.move_to_end(shard)
                return self._parsed[shard]
        metadata, content = read_footer(self.name, self.files[shard])
        if hashlib.sha256(content).hexdigest() != self._footers[shard].hash:
            raise StorageError(f"{self.files[shard].path}: has changed since it was opened")
        with self._footer_lock:
            self._parsed[shard] = metadata
            if len(self._parsed) > _FOOTERS_KEPT:
                self._parsed.popitem(last=False)
        return metadata

    def fingerprint(self) -> list[dict[str, Any]]:
        return [
            {"name": shard.path.rsplit("/", 1)[-1], "size": file.size, "rows": shard.rows, "hash": footer.hash}
            for shard, file, footer in zip(self.shards, self.files, self._footers, strict=True)
        ]

    def set_cache_limit(self, nbytes: int) -> None:
        super().set_cache_limit(nbytes)
        self._cache.set_limit(nbytes)

    def cached_bytes(self) -> int:
        return self._cache.nbytes


def _runs(starts: np.ndarray, rows: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Which part each row lies in, given where parts start: pairs of (part, places of its rows), both ascending."""
    part_of = np.searchsorted(starts, rows, side="right") - 1
    first = int(part_of[0])
    if (part_of == first).all():
        yield first, np.arange(len(rows))
        return
    for part in np.unique(part_of).tolist():
        yield part, np.flatnonzero(part_of == part)
