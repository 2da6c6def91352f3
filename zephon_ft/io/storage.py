"""Storage: byte ranges of files, local or behind any fsspec URL.

Local files are read with plain `pread`. Everything else goes through fsspec; what may wait on a network does so under
a time-out with retries (see retry.py). Neighbouring ranges are joined into one request. Every failure is a
`StorageError` that names the file; only a missing file that a row names is content, a `DataError`.
"""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from zephon_ft.errors import ConfigError, DataError, StorageError
from zephon_ft.io.retry import retrying

T = TypeVar("T")
R = TypeVar("R")

NEVER_WAITS = frozenset({"file", "local", "memory", "data"})  # protocols that do not touch a network
BLOCK = 8 << 20  # bytes per request when a file is read through


def is_url(path: str) -> bool:
    """Whether fsspec has to open it (anything but a plain local path)."""
    return "://" in path or "::" in path or path.startswith("data:")


def is_remote(path: str) -> bool:
    """Whether reading it may wait on a network."""
    if not is_url(path):
        return False
    protocols = [part.split("://")[0].split(":")[0] for part in path.split("::")]
    return not all(protocol in NEVER_WAITS for protocol in protocols)


class File(ABC):
    """One file that does not change. Safe to use from any thread; holds nothing open.

    Attributes:
        path: as the user would recognise it.
        size: in bytes.
        stamp: changes when the content does (size and time of the last change, or the server's tag).
        remote: whether reading may wait on a network.
    """

    gap = 4 << 10  # bytes between two ranges that are read along rather than making two requests
    longest = 1 << 20  # bytes after which no further range is joined to a request

    def __init__(self, path: str, size: int, stamp: str, remote: bool) -> None:
        self.path = path
        self.size = size
        self.stamp = stamp
        self.remote = remote

    @abstractmethod
    def read_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Exactly the bytes of each (start, end)."""

    def read(self, start: int, end: int) -> bytes:
        """Exactly the bytes from `start` up to `end`."""
        return self.read_many([(start, end)])[0]

    def read_ranges(self, starts: np.ndarray, ends: np.ndarray) -> tuple[list[bytes], int]:
        """The bytes of each range (int64 arrays of one length), in that order, and how many bytes were read for it."""
        if len(starts) == 0:
            return [], 0
        low, high = int(starts.min()), int(ends.max())
        if high - low <= min(int((ends - starts).sum()) + self.gap, self.longest):
            data = self.read(low, high)
            return [data[a:b] for a, b in zip((starts - low).tolist(), (ends - low).tolist(), strict=True)], len(data)
        order = np.argsort(starts, kind="stable")
        first, last = starts[order], ends[order]
        reach = np.maximum.accumulate(last)
        cut = (first[1:] > reach[:-1] + self.gap) | (first[1:] // self.longest != first[:-1] // self.longest)
        heads = np.concatenate(([0], np.flatnonzero(cut) + 1))
        runs = list(zip(first[heads].tolist(), np.maximum.reduceat(last, heads).tolist(), strict=True))
        blocks = self.read_many(runs)
        run_of = np.repeat(np.arange(len(heads)), np.diff(np.append(heads, len(order)))).tolist()
        out: list[bytes] = [b""] * len(order)
        for place, run, a, b in zip(order.tolist(), run_of, first.tolist(), last.tolist(), strict=True):
            base = runs[run][0]
            out[place] = blocks[run][a - base : b - base]
        return out, sum(map(len, blocks))

    def blocks(self) -> Iterator[bytes]:
        """The whole file, block by block."""
        for start in range(0, self.size, BLOCK):
            yield self.read(start, min(start + BLOCK, self.size))


class LocalFile(File):
    """A file of the operating system, opened for each call: no descriptor is kept."""

    def __init__(self, path: str, shown: str | None = None) -> None:
        self.real = path
        try:
            facts = os.stat(path)
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror or error}") from error
        super().__init__(shown or path, facts.st_size, f"{facts.st_size}:{facts.st_mtime_ns}", False)

    def check(self, handle: int | None = None) -> None:
        """Raise StorageError if the file has another size than when it was opened."""
        size = os.stat(self.real if handle is None else handle).st_size
        if size != self.size:
            raise StorageError(
                f"{self.path}: has {size} bytes now, had {self.size} when it was opened; "
                "data must not change while it is used"
            )

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        try:
            handle = os.open(self.real, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self.check(handle)
                return [self._read(handle, start, end) for start, end in ranges]
            finally:
                os.close(handle)
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(f"reading {self.path}: {error.strerror or error}") from error

    def _read(self, handle: int, start: int, end: int) -> bytes:
        data = os.pread(handle, end - start, start)
        while len(data) < end - start:  # one system call returns at most 2 GiB
            more = os.pread(handle, end - start - len(data), start + len(data))
            if not more:
                raise StorageError(f"{self.path}: ends at byte {start + len(data)}, bytes up to {end} were expected")
            data += more
        return data


class UrlFile(File):
    """A file behind an fsspec URL."""

    gap = 256 << 10
    longest = 8 << 20

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self.remote = is_remote(url)
        self._fs, self._inner = filesystem(url, storage_options)
        facts = self._call(lambda: self._fs.info(self._inner), url)
        size = facts.get("size")
        if size is None:
            raise StorageError(f"{url}: the server does not tell its size, so parts of it cannot be read")
        tags = [facts.get(k) for k in ("ETag", "etag", "LastModified", "last_modified", "mtime", "updated", "created")]
        stamp = ":".join(str(tag) for tag in tags if tag is not None)
        super().__init__(url, int(size), f"{size}:{stamp}", self.remote)

    def _call(self, call: Callable[[], T], what: str) -> T:
        try:
            return retrying(call, what) if self.remote else call()
        except StorageError:
            raise
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StorageError(f"reading {what}: {error}") from error

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        wanted = [(start, end) for start, end in ranges if end > start]

        def read() -> list[bytes]:
            if len(wanted) == 1:
                found = [self._fs.cat_file(self._inner, start=wanted[0][0], end=wanted[0][1])]
            else:
                starts, ends = [start for start, _ in wanted], [end for _, end in wanted]
                found = self._fs.cat_ranges([self._inner] * len(wanted), starts, ends, on_error="raise")
            return [self._exact(data, start, end) for data, (start, end) in zip(found, wanted, strict=True)]

        where = f"{self.path} (bytes {wanted[0][0]} to {wanted[-1][1]})" if wanted else self.path
        try:
            found = iter(self._call(read, where) if wanted else [])
        except FileNotFoundError as error:
            raise StorageError(f"{self.path}: is gone; data must not change while it is used") from error
        return [next(found) if end > start else b"" for start, end in ranges]

    def _exact(self, data: bytes, start: int, end: int) -> bytes:
        if len(data) == self.size and end - start < self.size:  # a server that ignores ranges sends everything
            return bytes(data[start:end])
        if len(data) != end - start:
            raise OSError(f"got {len(data)} bytes of {end - start}")  # a cut connection: worth another attempt
        return data


def filesystem(url: str, storage_options: Mapping[str, Any] | None) -> tuple[Any, str]:
    """The fsspec file system of a URL, and the path in it."""
    import fsspec

    try:
        return fsspec.core.url_to_fs(url, **dict(storage_options or {}))
    except (ImportError, ValueError) as error:
        raise ConfigError(f"{url}: cannot be opened: {error}") from error


def open_file(path: str, storage_options: Mapping[str, Any] | None = None) -> File:
    """The file at a path or URL. FileNotFoundError or StorageError where it cannot be opened."""
    if not is_url(path):
        return LocalFile(path)
    if path.startswith(("file://", "local://")) and "::" not in path:
        return LocalFile(filesystem(path, None)[1], shown=path)
    return UrlFile(path, storage_options)


def read_whole(path: str, storage_options: Mapping[str, Any] | None = None) -> bytes:
    """All bytes of a file that a row names; see `Dataset.read_file` for the errors."""
    try:
        if is_url(path):
            data = _read_url(path, storage_options)
        else:
            with open(path, "rb", buffering=0) as handle:
                data = handle.readall()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise DataError(f"{path[:200]}: there is no such file") from error
    except (StorageError, ConfigError):
        raise
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            raise DataError(f"{path[:200]}: does not name a file: {error.strerror}") from error
        raise StorageError(f"reading {path}: {error.strerror or error}") from error
    except ValueError as error:  # a NUL in the name, a damaged data: URL
        raise DataError(f"{path[:200]!r}: does not name a file: {error}") from error
    if not data:
        raise DataError(f"{path[:200]}: the file is empty")
    return data


def _read_url(url: str, storage_options: Mapping[str, Any] | None) -> bytes:
    try:
        fs, inner = filesystem(url, storage_options)
    except TypeError:  # options meant for the dataset's protocol, not for this one
        fs, inner = filesystem(url, None)
    if is_remote(url):
        return retrying(lambda: fs.cat_file(inner), url)
    return fs.cat_file(inner)


def each(items: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """`work` of each item, in order, on up to 8 threads: opening many files is mostly waiting."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(8, len(items)), thread_name_prefix="zephon-ft-open") as pool:
        return list(pool.map(work, items))
