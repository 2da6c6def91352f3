"""RangeReader: a file object over byte ranges, for libraries that want one (pyarrow, tarfile)."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Any

from zephon_ft.io.storage import File


class RangeReader(io.RawIOBase):
    """A readable, seekable view of a `File`, for libraries that want a Python file object.

    Args:
        file: what is read.
        blocks: parts already here, as (start, bytes); other reads become requests of `ahead` bytes at least.
    """

    def __init__(self, file: File, blocks: Sequence[tuple[int, bytes]] = (), ahead: int = 0) -> None:
        super().__init__()
        self._file = file
        self._blocks = list(blocks)
        self._ahead = ahead
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._file.size}[whence]
        return self._at

    def size(self) -> int:
        return self._file.size

    def read(self, size: int | None = -1) -> bytes:
        left = max(self._file.size - self._at, 0)
        wanted = left if size is None or size < 0 else min(size, left)
        start, end = self._at, self._at + wanted
        self._at = end
        for base, data in self._blocks:
            if base <= start and end <= base + len(data):
                return data[start - base : end - base]
        if not self._ahead:
            return self._file.read(start, end)
        data = self._file.read(start, min(max(end, start + self._ahead), self._file.size))
        self._blocks = [(start, data)]
        return data[:wanted]

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
