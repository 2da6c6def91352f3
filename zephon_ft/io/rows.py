"""Rows: a dataset in memory, for tests and small data."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from zephon_ft.errors import ConfigError, DataError
from zephon_ft.io.dataset import Dataset, Shard, check_rows


class RowsDataset(Dataset):
    """Rows held in memory. Every fetch returns new dicts and lists; arrays are read-only."""

    format = "rows"

    def __init__(
        self, name: str, rows: Sequence[Mapping[str, Any]], shard_rows: int | Sequence[int] | None = None
    ) -> None:
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise ConfigError(f"dataset {name!r}, row {number}: a row must be a dict, got {type(row).__name__}")
        counts = _shard_counts(name, len(rows), shard_rows)
        starts = np.cumsum([0, *counts]).tolist()
        self._rows = [[_keep(dict(row)) for row in rows[a:b]] for a, b in pairwise(starts)]
        super().__init__(name, [Shard(f"rows-{i}", count, (count,)) for i, count in enumerate(counts)])

    def field_names(self) -> frozenset[str] | None:
        """Keys that occur in any row."""
        names = frozenset[str]().union(*(row for shard in self._rows for row in shard))
        return names if self.rows else None

    def fetch(
        self, shard: int, rows: Sequence[int], fields: frozenset[str] | None = None
    ) -> list[dict[str, Any] | DataError]:
        if len(rows):
            check_rows(self, shard, int(min(rows)), int(max(rows)))
        held = self._rows[shard]
        self._statistics.add(rows_delivered=len(rows))
        if fields is None:
            return [_own(held[row]) for row in rows]
        return [{key: _own(value) for key, value in held[row].items() if key in fields} for row in rows]

    def fingerprint(self) -> list[dict[str, Any]]:
        out = []
        for shard, rows in zip(self.shards, self._rows, strict=True):
            hasher = _Hasher()
            hasher.add(rows)
            out.append({"name": shard.path, "size": hasher.size, "rows": shard.rows, "hash": hasher.hexdigest()})
        return out


def _shard_counts(name: str, total: int, shard_rows: int | Sequence[int] | None) -> list[int]:
    if shard_rows is None:
        return [total]
    if isinstance(shard_rows, int):
        if shard_rows < 1:
            raise ConfigError(f"dataset {name!r}: shard_rows must be at least 1, got {shard_rows}")
        return [min(shard_rows, total - start) for start in range(0, total, shard_rows)] or [0]
    counts = list(shard_rows)
    if any(count < 0 for count in counts) or sum(counts) != total:
        raise ConfigError(f"dataset {name!r}: shard_rows must sum to the {total} rows, got {counts}")
    return counts


def _keep(value: Any) -> Any:
    """A copy of what the caller may change later."""
    if isinstance(value, np.ndarray):
        value = value.copy()
        value.flags.writeable = False
        return value
    if isinstance(value, dict):
        return {key: _keep(item) for key, item in value.items()}
    if isinstance(value, bytearray):
        return bytes(value)
    return [_keep(item) for item in value] if isinstance(value, list) else value


def _own(value: Any) -> Any:
    """The value with dicts and lists of its own."""
    kind = type(value)
    if kind is dict:
        return {key: _own(item) for key, item in value.items()}
    return [_own(item) for item in value] if kind is list else value


class _Hasher:
    """SHA-256 of nested values: type, length, content."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self.size = 0

    def _bytes(self, kind: str, data: bytes) -> None:
        self._sha.update(f"{kind}:{len(data)}:".encode())
        self._sha.update(data)
        self.size += len(data)

    def add(self, value: Any) -> None:
        if isinstance(value, np.ndarray):
            self._bytes(f"array{value.dtype.str}{value.shape}", np.ascontiguousarray(value).tobytes())
        elif isinstance(value, (bytes, str)):
            self._bytes(type(value).__name__, value if isinstance(value, bytes) else value.encode())
        elif isinstance(value, Mapping):
            self._sha.update(f"dict{len(value)}:".encode())
            for key, item in value.items():
                self.add(str(key))
                self.add(item)
        elif isinstance(value, (list, tuple)):
            self._sha.update(f"list{len(value)}:".encode())
            for item in value:
                self.add(item)
        elif isinstance(value, (int, float, bool, type(None), np.generic)):
            self._bytes(type(value).__name__, repr(value).encode())
        else:  # an object of the user's: its address must not get in, so only its type does
            self._bytes("object", type(value).__qualname__.encode())

    def hexdigest(self) -> str:
        return self._sha.hexdigest()
