"""Parquet files: footers, and the decoding of one row group.

Knows nothing of datasets. Record batches have a bounded size and are never joined: neither the 2 GiB limit of 32-bit
offsets nor nested columns in several chunks can fail.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from zephon_ft.errors import DataError
from zephon_ft.io.range_reader import RangeReader
from zephon_ft.io.storage import File, LocalFile

BATCH_BYTES = 64 << 20  # aim for the decoded size of one record batch
_TAIL = 64 << 10  # bytes read from the end of a file: holds most footers


@dataclass(frozen=True, slots=True)
class Footer:
    """What is kept of every file."""

    names: tuple[str, ...]  # top-level columns
    hash: str  # SHA-256 of the footer's bytes
    starts: np.ndarray  # int64 (row groups,): first row of each
    row_groups: tuple[int, ...]
    largest: int  # bytes of the largest row group, uncompressed


@dataclass(frozen=True, slots=True)
class ColumnSizes:
    """Of some columns of one row group."""

    decoded: int  # bytes expected in memory
    stored: int  # bytes in the file
    ranges: tuple[tuple[int, int], ...]  # (start, end) in the file, ascending


def column_sizes(group: pq.RowGroupMetaData, names: set[str]) -> ColumnSizes:
    decoded = stored = 0
    ranges = []
    for i in range(group.num_columns):
        column = group.column(i)
        if _top_level(column.path_in_schema, names):
            start = column.data_page_offset
            if column.dictionary_page_offset:
                start = min(start, column.dictionary_page_offset)
            decoded += column.total_uncompressed_size
            stored += column.total_compressed_size
            ranges.append((start, start + column.total_compressed_size))
    return ColumnSizes(decoded, stored, tuple(sorted(ranges)))


def _top_level(path: str, names: set[str]) -> bool:
    """Whether a leaf column (``images.list.element.bytes``) belongs to one of the top-level names."""
    return path in names or any(path.startswith(name + ".") for name in names)


def decode(
    file: File, metadata: pq.FileMetaData, group: int, names: list[str], sizes: ColumnSizes
) -> list[pa.RecordBatch]:
    """Record batches of a row group, each of about `BATCH_BYTES` at most."""
    rows = metadata.row_group(group).num_rows
    if not rows:
        return []
    blocks: list[tuple[int, bytes]] = []
    if isinstance(file, LocalFile):
        file.check()
    else:  # few large requests at once, instead of one per column
        starts, ends = (np.array(side, dtype=np.int64) for side in zip(*sizes.ranges, strict=True))
        parts, _ = file.read_ranges(starts, ends)
        blocks = [(int(start), part) for start, part in zip(starts, parts, strict=True)]
    size = max(1, min(rows, rows * BATCH_BYTES // max(sizes.decoded, 1)))
    while True:
        source = pa.OSFile(file.real) if isinstance(file, LocalFile) else pa.PythonFile(RangeReader(file, blocks), "r")
        with source, pq.ParquetFile(source, metadata=metadata, pre_buffer=False) as reader:
            smaller = max(1, size // 8)
            try:
                batches: list[pa.RecordBatch] = []
                for batch in reader.iter_batches(size, row_groups=[group], columns=names, use_threads=False):
                    if batch.nbytes > 4 * BATCH_BYTES and batch.num_rows > 1 and not batches:
                        smaller = max(1, batch.num_rows * BATCH_BYTES // batch.nbytes)
                        break  # dictionary pages expand: the footer's sizes were far too small
                    batches.append(batch)
                else:
                    return batches
            except (pa.ArrowNotImplementedError, pa.ArrowCapacityError):
                if size == 1:  # rows of very unequal size, a batch past 2 GiB: not a matter of its length any more
                    raise
        size = min(smaller, size - 1) or 1


def summarise(name: str, file: File) -> Footer:
    metadata, content = read_footer(name, file)
    try:
        names = tuple(field.name for field in metadata.schema.to_arrow_schema())
    except pa.ArrowException as error:
        raise DataError(f"dataset {name!r}: {file.path}: its schema cannot be read: {error}") from error
    if len(set(names)) < len(names):
        raise DataError(f"dataset {name!r}: {file.path}: two columns have the same name: {', '.join(sorted(names))}")
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    rows = tuple(group.num_rows for group in groups)
    return Footer(
        names=names,
        hash=hashlib.sha256(content).hexdigest(),
        starts=np.cumsum([0, *rows])[:-1].astype(np.int64),
        row_groups=rows or (0,),
        largest=max((group.total_byte_size for group in groups), default=0),
    )


def read_footer(name: str, file: File) -> tuple[pq.FileMetaData, bytes]:
    """The parsed footer, and its bytes. One request, two for a large footer."""
    where = f"dataset {name!r}: {file.path}"
    if file.size == 0:
        raise DataError(f"{where}: the file is empty, not a Parquet file")
    tail = file.read(max(file.size - _TAIL, 0), file.size)
    if tail[-4:] != b"PAR1" or file.size < 12:
        head = file.read(0, min(4, file.size))
        why = "is truncated (its footer is missing)" if head == b"PAR1" else "is not a Parquet file"
        raise DataError(f"{where}: {why}, size {file.size} bytes; copy or write it again")
    length = int.from_bytes(tail[-8:-4], "little")
    if length + 12 > file.size:
        raise DataError(f"{where}: is damaged: a footer of {length} bytes in a file of {file.size}")
    if length + 8 > len(tail):
        tail = file.read(file.size - length - 8, file.size)
    footer = tail[-length - 8 : -8]
    try:
        return pq.read_metadata(pa.BufferReader(b"PAR1" + footer + tail[-8:])), footer
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{where}: its footer cannot be read: {error}") from error
