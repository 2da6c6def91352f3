"""WebDataset tar: samples of members that share a key, read at random through an index of member offsets.

The index is built once (see sidecar.py); it finds what is wrong with an archive before the first row is read. A
sample's key is a member's path up to the first dot of its file name, the rest is the name of a field. Members of a
sample need not lie behind one another.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from zephon_ft.errors import DataError
from zephon_ft.io.dataset import Dataset, Shard, check_rows
from zephon_ft.io.range_reader import RangeReader
from zephon_ft.io.sidecar import Index, load_or_build
from zephon_ft.io.storage import File, LocalFile, each

KEY = "__key__"
_TEXT = frozenset({"txt", "text", "caption"})
_BLOCK = 512
_AHEAD = 1 << 20  # bytes read at once while the headers of a remote archive are walked


class TarDataset(Dataset):
    """Samples of tar archives, plain or compressed with gzip or zstd.

    A row has ``__key__`` and one field per member, named by its extension: ``json`` parsed, ``txt``, ``text`` and
    ``caption`` as str, ``cls`` as int, everything else (``jpg``, ``png``, ``webp``, ...) as bytes.
    """

    format = "tar"

    def __init__(
        self,
        name: str,
        files: Sequence[File],
        *,
        columns: Iterable[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.files = tuple(files)
        self._indexes: list[Index] = each(self.files, lambda file: load_or_build(file, "tar-1", scan))
        counts = [len(index.arrays["first"]) - 1 for index in self._indexes]
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
        """Extensions that occur in any sample, and ``__key__``; None where there is no sample."""
        if not self.rows:
            return None
        names = frozenset({KEY}).union(*(index.facts["fields"] for index in self._indexes))
        return names if self.columns is None else names & self.columns

    def check_fields(self, fields: Iterable[str]) -> None:
        if self.columns is not None and self.rows:  # so that the error lists what the archives have
            known = frozenset({KEY}).union(*(index.facts["fields"] for index in self._indexes))
            missing = sorted(self.columns - known)
            if missing:
                raise self.missing_fields(missing, known)
        super().check_fields(fields)

    def fetch(
        self, shard: int, rows: Sequence[int], fields: frozenset[str] | None = None
    ) -> list[dict[str, Any] | DataError]:
        if not len(rows):
            return []
        check_rows(self, shard, int(min(rows)), int(max(rows)))
        if self.columns is not None:
            fields = self.columns if fields is None else fields & self.columns
        index = self._indexes[shard]
        names, arrays = index.facts["fields"], index.arrays
        wanted = np.array([fields is None or name in fields for name in names], dtype=bool)
        picked = [np.arange(arrays["first"][row], arrays["first"][row + 1]) for row in rows]
        picked = [members[wanted[arrays["field"][members]]] for members in picked]
        members = np.concatenate(picked)
        starts = arrays["offset"][members]
        pieces, read = index.data.read_ranges(starts, starts + arrays["size"][members])
        self._statistics.add(bytes_read=read, bytes_delivered=sum(map(len, pieces)), rows_delivered=len(picked))
        rest = iter(zip(pieces, arrays["field"][members].tolist(), strict=True))
        out: list[dict[str, Any] | DataError] = []
        for row, mine in zip(rows, picked, strict=True):
            sample = [(names[field], piece) for piece, field in (next(rest) for _ in range(len(mine)))]
            out.append(self._sample(index, shard, int(row), sample, fields is None or KEY in fields))
        return out

    def _sample(
        self, index: Index, shard: int, row: int, members: list[tuple[str, bytes]], with_key: bool
    ) -> dict[str, Any] | DataError:
        bounds = index.arrays["key_end"]
        key = index.arrays["keys"][bounds[row] : bounds[row + 1]].tobytes().decode("utf-8", "surrogateescape")
        out: dict[str, Any] = {KEY: key} if with_key else {}
        for field, data in members:
            try:
                out[field] = _value(field, data)
            except (ValueError, RecursionError) as error:
                return DataError(f"{self.describe(shard, row)}, member {key}.{field}: {_why(field)}: {error}")
        return out

    def fingerprint(self) -> list[dict[str, Any]]:
        return [
            {"name": file.path.rsplit("/", 1)[-1], "size": file.size, "rows": shard.rows, "hash": index.facts["hash"]}
            for shard, file, index in zip(self.shards, self.files, self._indexes, strict=True)
        ]


def _value(field: str, data: bytes) -> Any:
    kind = field.rsplit(".", 1)[-1]
    if kind == "json":
        return json.loads(data)
    if kind in _TEXT:
        return data.decode()
    return int(data) if kind == "cls" else data


def _why(field: str) -> str:
    return {"json": "invalid JSON", "cls": "not a whole number"}.get(field.rsplit(".", 1)[-1], "not UTF-8 text")


def scan(file: File) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Index an archive.

    Returns:
        facts: ``fields``, names of all fields; ``hash``, SHA-256 of everything else.
        arrays: ``first`` int64 (samples + 1,): number of each sample's first member; per member ``offset``, ``size``
            int64 and ``field`` int32 (number in ``fields``); ``keys`` uint8, all keys joined, ``key_end`` int64
            (samples + 1,): where each ends (the first entry is 0).

    Raises:
        DataError: not a tar, truncated, damaged, or a member twice in a sample; names archive and member.
    """
    samples: dict[str, dict[str, tuple[int, int]]] = {}
    ignored = 0
    for member in _members(file):
        where = f"{file.path}, member {member.name}"
        folder, _, base = member.name.rpartition("/")
        stem, dot, field = base.partition(".")
        if member.isdir() or not stem or not dot or not field:
            ignored += not member.isdir()
            continue
        if not member.isreg() or member.issparse():
            raise DataError(f"{where}: is a link or a special file; write the archive with plain files (--dereference)")
        key = f"{folder}/{stem}" if folder else stem
        sample = samples.setdefault(key, {})
        if field.lower() in sample:
            raise DataError(f"{where}: occurs twice in the sample {key!r}; remove one of the two")
        sample[field.lower()] = (member.offset_data, member.size)
    if ignored:
        warnings.warn(f"{file.path}: {ignored} members without key or extension belong to no sample", stacklevel=2)
    return _columns(samples)


def _columns(samples: dict[str, dict[str, tuple[int, int]]]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    fields = sorted({field for sample in samples.values() for field in sample})
    number = {field: i for i, field in enumerate(fields)}
    rows = [(number[field], *place) for sample in samples.values() for field, place in sample.items()]
    table = np.array(rows, dtype="<i8").reshape(-1, 3)
    keys = [key.encode("utf-8", "surrogateescape") for key in samples]
    arrays = {
        "first": np.cumsum([0, *map(len, samples.values())]).astype("<i8"),
        "field": table[:, 0].astype("<i4"),
        "offset": np.ascontiguousarray(table[:, 1]),
        "size": np.ascontiguousarray(table[:, 2]),
        "keys": np.frombuffer(b"".join(keys), dtype=np.uint8),
        "key_end": np.cumsum([0, *map(len, keys)]).astype("<i8"),
    }
    hasher = hashlib.sha256(json.dumps(fields).encode())
    for name in sorted(arrays):
        hasher.update(arrays[name].tobytes())
    return {"fields": fields, "hash": hasher.hexdigest()}, arrays


def _stream(file: File) -> io.BufferedReader:
    if isinstance(file, LocalFile):
        return open(file.real, "rb")
    return io.BufferedReader(RangeReader(file, ahead=_AHEAD))


def _members(file: File) -> Iterable[tarfile.TarInfo]:
    """Every member of an archive that is whole; tarfile alone takes a damaged header for the end."""
    if file.size == 0:
        raise DataError(f"{file.path}: the file is empty, not a tar archive")
    last = None
    with _stream(file) as source:
        try:
            with tarfile.open(fileobj=source, mode="r:") as archive:
                while (member := archive.next()) is not None:
                    archive.members.clear()  # type: ignore[attr-defined] # it would keep every header
                    last = member.name
                    if member.isreg() and member.offset_data + member.size > file.size:
                        raise DataError(
                            f"{file.path}: is truncated inside the member {last}: {member.size} bytes from byte "
                            f"{member.offset_data} on, but the file ends at {file.size}"
                        )
                    yield member
                end = archive.offset
        except tarfile.TarError as error:
            after = f" after the member {last}" if last else ""
            raise DataError(f"{file.path}: is not a tar archive, or is truncated or damaged{after}: {error}") from error
    block = file.read(min(end, file.size), min(end + _BLOCK, file.size))
    if not block:
        warnings.warn(
            f"{file.path}: has no end mark behind the member {last}: its writer was not closed or it was cut there, so "
            "its last samples may be missing",
            stacklevel=3,
        )
    elif block.strip(b"\0") or len(block) < _BLOCK:
        raise DataError(f"{file.path}: is truncated or damaged at byte {end}, behind the member {last}")
