"""JSONL: one JSON object a line, found through an index of line offsets.

The index is built once (see sidecar.py). Blank lines are no rows; the last line needs no newline. Rows of a fetch that
lie near each other cost one read. Each row is parsed on its own, so a bad line is one bad row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from zephon_ft.errors import DataError
from zephon_ft.io.dataset import Dataset, Shard, check_rows
from zephon_ft.io.sidecar import Index, load_or_build
from zephon_ft.io.storage import File, each

_NEWLINE = 10
_SPACE = b" \t\r\n"
_SPACES = " \t\r\n"
_LOOK_AT_FIRST = 32  # rows whose keys are taken as the known fields
_LOOK_AT_MORE = 256  # rows, spread over the data, that are asked before a field is said not to exist


class JsonlDataset(Dataset):
    """Rows of JSON-lines files, plain or compressed with gzip or zstd."""

    format = "jsonl"

    def __init__(
        self,
        name: str,
        files: Sequence[File],
        *,
        columns: Iterable[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.files = tuple(files)
        self._indexes: list[Index] = each(self.files, lambda file: load_or_build(file, "jsonl-1", scan))
        counts = [len(index.arrays["offsets"]) - 1 for index in self._indexes]
        super().__init__(
            name,
            [Shard(file.path, rows, (rows,)) for file, rows in zip(self.files, counts, strict=True)],
            remote=any(index.data.remote for index in self._indexes),
            columns=columns,
            storage_options=storage_options,
        )
        if self.columns is not None:
            self.check_fields(self.columns)

    def field_names(self) -> frozenset[str] | None:
        """Keys of the first rows of the first shard that has any; None where there is no good row."""
        shard = next((i for i, shard in enumerate(self.shards) if shard.rows), None)
        if shard is None:
            return None
        return _keys(self.fetch(shard, range(min(self.shards[shard].rows, _LOOK_AT_FIRST))))

    def check_fields(self, fields: Iterable[str]) -> None:
        """As in `Dataset`. Optional keys may be absent from the first rows, so others are looked at as well."""
        wanted, known = set(fields), self.field_names()
        if known is None or wanted <= known:
            return
        if self.columns is not None and not wanted <= self.columns:
            raise self.missing_fields(sorted(wanted - self.columns), self.columns)
        share = max(1, _LOOK_AT_MORE // len(self.shards))
        for number in np.unique(np.linspace(0, len(self.shards) - 1, _LOOK_AT_MORE).astype(int)).tolist():
            rows = self.shards[number].rows
            if rows:
                places = np.unique(np.linspace(0, rows - 1, share).astype(int))
                known |= _keys(self.fetch(number, places.tolist())) or frozenset()
        if not wanted <= known:
            raise self.missing_fields(sorted(wanted - known), known)

    def fetch(
        self, shard: int, rows: Sequence[int], fields: frozenset[str] | None = None
    ) -> list[dict[str, Any] | DataError]:
        count = len(rows)
        if not count:
            return []
        index = self._indexes[shard]
        pieces, read = _read(self, index, shard, rows)
        if self.columns is not None:
            fields = self.columns if fields is None else fields & self.columns
        # One decoder a call: its memo of keys is then no object that threads share.
        scan_once = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
        out: list[dict[str, Any] | DataError] = []
        for place, piece in enumerate(pieces):
            try:
                text = piece.decode()
                row, end = scan_once(text, 0)
                if type(row) is not dict or (end + 1 != len(text) and text[end:].strip(_SPACES)):
                    raise ValueError
            except (ValueError, StopIteration, RecursionError):
                row = self._parse_slowly(piece, shard, int(rows[place]))
            if fields is not None and type(row) is dict:
                row = {key: value for key, value in row.items() if key in fields}
            out.append(row)
        self._statistics.add(bytes_read=read, bytes_delivered=sum(map(len, pieces)), rows_delivered=count)
        return out

    def _parse_slowly(self, piece: bytes, shard: int, row: int) -> dict[str, Any] | DataError:
        """What the fast path did not take: leading blanks, a byte order mark, or an error worth a good message."""
        skipped = np.searchsorted(self._indexes[shard].arrays["blank"], row, side="right")
        where = f"{self.describe(shard, row)}, line {row + 1 + int(skipped)}"
        try:
            value = json.loads(piece.decode("utf-8-sig").strip(_SPACES))
        except json.JSONDecodeError as error:
            return DataError(f"{where}: invalid JSON: {error.msg} at column {error.colno}")
        except UnicodeDecodeError as error:
            return DataError(f"{where}: not UTF-8: {error.reason} at byte {error.start} of the line")
        except (ValueError, RecursionError) as error:
            return DataError(f"{where}: cannot be parsed: {error}")
        if type(value) is not dict:
            kind = "an array" if isinstance(value, list) else repr(value)[:40]
            return DataError(f"{where}: a row must be a JSON object, this line holds {kind}")
        return value

    def fingerprint(self) -> list[dict[str, Any]]:
        return [
            {"name": file.path.rsplit("/", 1)[-1], "size": file.size, "rows": shard.rows, "hash": index.facts["hash"]}
            for shard, file, index in zip(self.shards, self.files, self._indexes, strict=True)
        ]


def _read(dataset: Dataset, index: Index, shard: int, rows: Sequence[int]) -> tuple[list[bytes], int]:
    """The bytes of each row, with what blank there is behind it; and how many bytes were read."""
    offsets = index.arrays["offsets"]
    first, last = int(rows[0]), int(rows[-1])
    if last - first == len(rows) - 1 and (isinstance(rows, range) or list(rows) == list(range(first, last + 1))):
        check_rows(dataset, shard, first, last)
        bounds = offsets[first : last + 2].tolist()
        base = bounds[0]
        data = index.data.read(base, bounds[-1])
        return [data[a - base : b - base] for a, b in pairwise(bounds)], len(data)
    wanted: np.ndarray = np.asarray(rows, dtype=np.int64)
    check_rows(dataset, shard, int(wanted.min()), int(wanted.max()))
    return index.data.read_ranges(offsets[wanted], offsets[wanted + 1])


def _keys(rows: Iterable[dict[str, Any] | DataError]) -> frozenset[str] | None:
    good = [row for row in rows if isinstance(row, dict)]
    return frozenset().union(*good) if good else None


def scan(file: File) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Index a JSON-lines file.

    Returns:
        facts: ``hash``, the SHA-256 of the offsets.
        arrays: ``offsets`` int64 (rows + 1,): row i lies in bytes offsets[i] to offsets[i + 1], blanks behind it
            included; ``blank`` int64: for each blank line, the number of the row that follows it.
    """
    starts: list[np.ndarray] = []  # of all lines
    firsts: list[np.ndarray] = []  # the first byte of each
    position, line_open = 0, False
    for block in file.blocks():
        data = np.frombuffer(block, dtype=np.uint8)
        begins = np.flatnonzero(data == _NEWLINE) + 1
        if not line_open:
            begins = np.concatenate(([0], begins))
        line_open = bool(data[-1] != _NEWLINE)
        begins = begins[begins < len(data)]
        starts.append(begins + position)
        firsts.append(data[begins])
        position += len(data)
    lines = np.concatenate(starts).astype(np.int64) if starts else np.zeros(0, dtype=np.int64)
    blank = _blank_lines(file, lines, np.concatenate(firsts) if firsts else np.zeros(0, dtype=np.uint8))
    offsets = np.append(lines[~blank], file.size).astype("<i8")
    following = (np.cumsum(~blank) - ~blank)[blank].astype("<i8")
    if len(offsets) > 1 and file.read(int(offsets[0]), int(offsets[0]) + 1) == b"[":
        _refuse_array(file)
    return {"hash": hashlib.sha256(offsets.tobytes()).hexdigest()}, {"offsets": offsets, "blank": following}


def _blank_lines(file: File, lines: np.ndarray, firsts: np.ndarray) -> np.ndarray:
    """bool (lines,): which hold nothing but blanks. Only lines that begin with one are looked at."""
    blank = firsts == _NEWLINE
    ends = np.append(lines[1:], file.size)
    doubtful = np.flatnonzero(np.isin(firsts, np.frombuffer(_SPACE, dtype=np.uint8)) & ~blank)
    for few in np.array_split(doubtful, len(doubtful) // 256 + 1):
        pieces, _ = file.read_ranges(lines[few], ends[few])
        blank[few] = [not piece.strip(_SPACE) for piece in pieces]
    return blank


def _refuse_array(file: File) -> None:
    raise DataError(
        f"{file.path}: holds one JSON array, not one JSON object a line; convert it once: "
        'python -c "import json,sys; [print(json.dumps(r)) for r in json.load(open(sys.argv[1]))]" in.json > out.jsonl'
    )
