"""Compression: gzip and zstd files are decompressed once, as a stream, into a copy that can be read at random."""

from __future__ import annotations

from zephon_ft.errors import DataError, StorageError
from zephon_ft.io.range_reader import RangeReader
from zephon_ft.io.storage import BLOCK, File, LocalFile

_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


def compression_of(file: File) -> str | None:
    """``"gzip"``, ``"zstd"``, or None, by the first bytes."""
    head = file.read(0, min(4, file.size))
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


def decompress(file: File, compression: str, target: str) -> None:
    """Write the decompressed content to the path `target`.

    Raises:
        DataError: the file is truncated or damaged.
        StorageError: it cannot be read.
        OSError: `target` cannot be written.
    """
    import pyarrow as pa

    source = pa.OSFile(file.real) if isinstance(file, LocalFile) else pa.PythonFile(RangeReader(file, ahead=BLOCK), "r")
    with source, open(target, "wb") as out, pa.CompressedInputStream(source, compression) as stream:
        while True:
            try:
                block = stream.read(BLOCK)
            except StorageError:
                raise
            except (pa.ArrowException, OSError) as error:
                raise DataError(f"{file.path}: the {compression} data is truncated or damaged: {error}") from error
            if not block:
                return
            out.write(block)
