"""Dataset: rows that can be fetched by (shard, row), whatever they are stored in.

A dataset knows at build time how many rows each shard has, so that an order over them is arithmetic. Everything but
its caches and statistics is immutable, and every method may be called from any thread. One subclass a format, in its
own file; `Dataset.from_path` finds which.
"""

from __future__ import annotations

import os
import posixpath
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from zephon_ft.errors import ConfigError, DataError

if TYPE_CHECKING:
    from zephon_ft.io.storage import File

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Shard:
    """One data file (or a slice of rows in memory).

    Attributes:
        path: the file's path or URL, as the user would recognise it.
        rows: number of rows.
        row_groups: row counts of the pieces that are read at once (Parquet row groups; one entry for other formats);
            sums to `rows`. A piece may have no rows.
    """

    path: str
    rows: int
    row_groups: tuple[int, ...]


class Statistics:
    """Counters that many threads add to, once per fetch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {"bytes_read": 0, "bytes_delivered": 0, "rows_delivered": 0}

    def add(self, **counts: int) -> None:
        """Add to the named counters."""
        with self._lock:
            for name, value in counts.items():
                self._counts[name] = self._counts.get(name, 0) + value

    def read(self) -> dict[str, int]:
        """A copy of all counters."""
        with self._lock:
            return dict(self._counts)

    def __reduce__(self) -> Any:
        """A copy in another process begins at zero."""
        return Statistics, ()


class Dataset(ABC):
    """A named, immutable collection of rows in shards. Build one with `from_path` or `from_rows`.

    Attributes:
        name: what mixtures and errors call it.
        shards: its shards, in a fixed order (sorted by path for folders and globs); empty shards are kept.
        format: ``"parquet"``, ``"jsonl"``, ``"tar"`` or ``"rows"``.
        remote: whether reading may wait on a network (any protocol but local files and memory).
        columns: names that rows are limited to, or None for all.
        storage_options: what is passed to fsspec for this dataset's protocol.
    """

    format: str = ""
    files: tuple[File, ...] = ()  # the shards' files; none for rows in memory
    random_access: bool = True  # whether single rows are cheap to read; False: pieces are best read whole

    def __init__(
        self,
        name: str,
        shards: Sequence[Shard],
        *,
        remote: bool = False,
        columns: Iterable[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"a dataset's name must be a non-empty string, got {name!r}")
        if isinstance(columns, str):
            raise ConfigError(f"dataset {name!r}: columns must be a list of names, got the string {columns!r}")
        self.name = name
        self.shards = tuple(shards)
        self.remote = remote
        self.columns: frozenset[str] | None = None if columns is None else frozenset(columns)
        self.storage_options = dict(storage_options or {})
        self._statistics = Statistics()

    @classmethod
    def from_path(
        cls,
        name: str,
        path: Path | Sequence[Path],
        fmt: str | None = None,
        *,
        columns: Iterable[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Dataset:
        """Open data files.

        Args:
            name: the dataset's name in mixtures and errors.
            path: a file, a folder (its data files, sorted; sub-folders only if it has none itself), a glob, an fsspec
                URL, or a list of these. Files whose name starts with ``.`` or ``_`` are left out of folders.
            fmt: ``"parquet"``, ``"jsonl"`` or ``"tar"``; None finds it from the suffix, else from the first bytes.
            columns: the only fields that rows will have; None for all.
            storage_options: passed to fsspec.

        Raises:
            ConfigError: nothing there, an unknown or mixed format, a column that is missing.
            DataError, StorageError: a file is damaged or cannot be read.
        """
        from zephon_ft.io.discover import discover

        files, found = discover(name, path, fmt, storage_options)
        # Only the format in use is imported: pyarrow takes a while.
        made = getattr(import_module(f"zephon_ft.io.{found}"), f"{found.capitalize()}Dataset")
        return made(name, files, columns=columns, storage_options=storage_options)

    @classmethod
    def from_rows(
        cls, name: str, rows: Sequence[Mapping[str, Any]], shard_rows: int | Sequence[int] | None = None
    ) -> Dataset:
        """Rows held in memory, for tests and small data.

        Args:
            name: the dataset's name in mixtures and errors.
            rows: dicts; they are copied.
            shard_rows: rows per shard, or a list of the shards' row counts; None makes one shard.
        """
        from zephon_ft.io.rows import RowsDataset

        return RowsDataset(name, rows, shard_rows)

    # -- what a format provides ---------------------------------------------------------------------------------

    @abstractmethod
    def field_names(self) -> frozenset[str] | None:
        """Names of the fields that rows are known to have; None where that is unknown (no rows)."""

    @abstractmethod
    def fetch(
        self, shard: int, rows: Sequence[int], fields: frozenset[str] | None = None
    ) -> list[dict[str, Any] | DataError]:
        """Read rows of one shard, in the order asked for.

        Args:
            shard: number of the shard.
            rows: row numbers within it.
            fields: the fields wanted; None for all. Others are neither returned nor, where the format allows, read.

        Returns:
            one new dict per row; a row that cannot be parsed is a `DataError` object in its place (not raised), so
            that the caller decides whether to skip it.

        Raises:
            StorageError: reading failed, after retries.
        """

    @abstractmethod
    def fingerprint(self) -> list[dict[str, Any]]:
        """Per shard: ``name``, ``size`` in bytes, ``rows``, and ``hash``: SHA-256 of its footer or index, in hex."""

    def _base(self, shard: int) -> str:
        """Folder or URL that relative paths of this shard start from; empty for the working directory."""
        path = self.shards[shard].path
        return posixpath.dirname(path) if "/" in path else ""

    # -- common to all ------------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """Rows of all shards."""
        return sum(shard.rows for shard in self.shards)

    def check_fields(self, fields: Iterable[str]) -> None:
        """Raise `ConfigError`, listing what is there, if a field is known not to exist."""
        known = self.field_names()
        missing = sorted(set(fields) - known) if known is not None else []
        if missing:
            raise self.missing_fields(missing, known or frozenset())

    def missing_fields(self, missing: Sequence[str], known: Iterable[str], place: str = "") -> ConfigError:
        """The error for fields that are not there."""
        what = ", ".join(repr(name) for name in missing)
        there = ", ".join(sorted(known)) or "nothing"
        return ConfigError(f"dataset {self.name!r}: no field {what}{place}; there is: {there}")

    def describe(self, shard: int, row: int) -> str:
        """Where a row is, for errors: ``dataset 'web', shard 3 (part-3.jsonl), row 17``."""
        path = self.shards[shard].path
        return f"dataset {self.name!r}, shard {shard} ({posixpath.basename(path) or path}), row {row}"

    def resolve(self, path: str, shard: int) -> str:
        """The full path or URL of a file that a row names: relative ones start at the row's data file."""
        from zephon_ft.io.storage import is_url

        if is_url(path) or os.path.isabs(path):
            return path
        base = self._base(shard)
        return posixpath.join(base, path) if base else path

    def read_file(self, path: str) -> bytes:
        """Content of a file that a row names (see `resolve`).

        Raises:
            DataError: there is no such file, or it is empty.
            StorageError: it could not be read, after retries.
        """
        from zephon_ft.io.storage import read_whole

        data = read_whole(path, self.storage_options)
        self._statistics.add(bytes_read=len(data), bytes_delivered=len(data))
        return data

    def set_cache_limit(self, nbytes: int) -> None:
        """Bound what the reader keeps, in bytes. At 0 it keeps only what calls in progress need."""
        if nbytes < 0:
            raise ConfigError(f"dataset {self.name!r}: the cache limit must be at least 0 bytes, got {nbytes}")

    def cached_bytes(self) -> int:
        """Bytes that the reader keeps now, indexes left out."""
        return 0

    def stats(self) -> dict[str, int]:
        """Counters: ``bytes_read`` from storage, ``bytes_delivered`` in rows, ``rows_delivered``, ..."""
        return self._statistics.read()

    def add_stats(self, counts: Mapping[str, int]) -> None:
        """Add to the counters what a copy of this dataset in another process counted."""
        self._statistics.add(**counts)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {self.rows} rows in {len(self.shards)} shards>"


def check_rows(dataset: Dataset, shard: int, low: int, high: int) -> None:
    """Raise IndexError where the row numbers `low` to `high` are not all in the shard."""
    if low < 0 or high >= dataset.shards[shard].rows:
        bad = low if low < 0 else high
        raise IndexError(f"{dataset.describe(shard, bad)}: the shard has {dataset.shards[shard].rows} rows")
