"""Shared memory of one pipeline: a file without a name that the parent and its workers map piece by piece.

The parent cuts regions off its end and lends them: batch buffers, the message slots of workers. A region that is given
back returns its pages to the system at once. The file is memory (Linux: memfd, whatever the size of /dev/shm) or an
unlinked temporary file; either way nothing is left behind, even after SIGKILL.
"""

from __future__ import annotations

import bisect
import ctypes
import mmap
import os
import sys
import tempfile
import threading
from collections import OrderedDict, deque
from typing import Any, NamedTuple

import numpy as np

PAGE = mmap.ALLOCATIONGRANULARITY  # bytes; regions begin at multiples of it
_MAPPED = 256  # regions that a worker keeps mapped


class Region(NamedTuple):
    """A piece of the file, in bytes."""

    offset: int
    size: int


class Arena:
    """The parent's side: makes regions and maps them. Thread-safe.

    Raises:
        OSError: neither memory nor a temporary file can be had.
    """

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):
            self.fd = os.memfd_create("zephon_ft", os.MFD_CLOEXEC)
        else:
            with tempfile.TemporaryFile() as file:
                self.fd = os.dup(file.fileno())
        self._lock = threading.Lock()
        self._released: deque[mmap.mmap] = deque()  # by finalizers, which never wait for the lock
        self._end = 0
        # By the address at which they are mapped. The maps are held: an address must not get another meaning.
        self._regions: dict[int, tuple[Region, mmap.mmap]] = {}
        self._addresses: list[int] = []  # sorted
        self._unused: dict[int, list[mmap.mmap]] = {}  # by size, where pages cannot be returned

    def map(self, size: int) -> mmap.mmap:
        """Memory of at least `size` bytes that workers can map too, zero where it was not written.

        Raises:
            OSError: there is no room; names the size and what to do.
        """
        size = -(-size // PAGE) * PAGE
        with self._lock:
            self._settle()
            if self._unused.get(size):
                return self._unused[size].pop()
            region = Region(self._end, size)
            try:
                os.ftruncate(self.fd, region.offset + size)
                if hasattr(os, "posix_fallocate"):  # fail here, not with SIGBUS where it is written to
                    os.posix_fallocate(self.fd, region.offset, size)
                memory = _map(self.fd, region)
            except (OSError, ValueError) as error:
                raise OSError(
                    getattr(error, "errno", None),
                    f"no room for {size} bytes of shared memory ({getattr(error, 'strerror', error)}); allow more "
                    '(cgroup, ulimit -f, disk), hold less (memory_budget, prefetch), or use runner="thread"',
                ) from error
            self._end += size
            address = _address(memory)
            self._regions[address] = region, memory
            bisect.insort(self._addresses, address)
            return memory

    def release(self, memory: mmap.mmap) -> None:
        """Nobody uses this memory any more: return its pages."""
        self._released.append(memory)
        if self._lock.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._lock.release()

    def _settle(self) -> None:
        while self._released:
            memory = self._released.popleft()
            try:
                memory.madvise(mmap.MADV_REMOVE)
            except (AttributeError, OSError):  # not Linux, or a file system that cannot
                self._unused.setdefault(len(memory), []).append(memory)
                continue
            address = _address(memory)
            del self._regions[address]
            self._addresses.remove(address)

    def region(self, memory: mmap.mmap) -> Region:
        """Where this memory lies in the file."""
        return self._regions[_address(memory)][0]

    def locate(self, array: np.ndarray) -> tuple[Region, int] | None:
        """The region that an array lies in, and its first byte there; None for other memory."""
        address = array.__array_interface__["data"][0]
        with self._lock:
            index = bisect.bisect_right(self._addresses, address) - 1
            if index < 0:
                return None
            start = self._addresses[index]
            region, _ = self._regions[start]
            return (region, address - start) if address - start < region.size else None

    def close(self) -> None:
        """No more regions; memory in use stays valid."""
        os.close(self.fd)


class Window:
    """A worker's side: the regions that it is told of, mapped when they are first used."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._maps: OrderedDict[Region, mmap.mmap] = OrderedDict()

    def map(self, region: Region) -> mmap.mmap:
        """The region's memory."""
        memory = self._maps.get(region)
        if memory is None:
            memory = self._maps[region] = _map(self._fd, region)
            if len(self._maps) > _MAPPED:
                self._maps.popitem(last=False)
        else:
            self._maps.move_to_end(region)
        return memory

    def map_private(self, region: Region) -> mmap.mmap:
        """The region's memory; what is written to it is seen by this process only."""
        return _map(self._fd, region, access=mmap.ACCESS_COPY)


def _map(fd: int, region: Region, **options: Any) -> mmap.mmap:
    if sys.version_info >= (3, 13):  # before, each map kept a descriptor of its own
        options["trackfd"] = False
    return mmap.mmap(fd, region.size, offset=region.offset, **options)


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))
