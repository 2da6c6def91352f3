"""`BufferPool`: memory for media buffers, reused only when nobody can see it any more.

Fresh pages of tens of megabytes per batch cost more than the copies into them, so finished batches give theirs back.
A lease is a numpy array over an anonymous memory map; views, slices and tensors made from it all keep the same small
owner object alive, and the memory returns to the pool when that object dies, on whatever thread. Nothing waits: an
empty pool allocates. The pool keeps at most `max_free_bytes` of unused memory.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections import deque
from functools import partial
from typing import Any, Protocol

import numpy as np

_POISON = 0xA5
_SMALLEST = 1 << 16  # bytes; below this nothing is gained by reuse


class Memory(Protocol):
    """Where a pool's memory comes from."""

    def map(self, size: int) -> mmap.mmap:
        """At least `size` bytes. Raises OSError where there is no room."""

    def release(self, memory: mmap.mmap) -> None:
        """The pool gives this memory up. Nobody reads or writes it any more, but its last owner may be half-way
        through its own end."""


class PrivateMemory:
    """Anonymous memory, seen by this process only."""

    def map(self, size: int) -> mmap.mmap:
        return mmap.mmap(-1, size)

    def release(self, memory: mmap.mmap) -> None:
        """Nothing to do: dropping the map unmaps it."""


class BufferPool:
    """Leases uint8 memory.

    Args:
        max_free_bytes: unused memory kept for later leases; the longest unused is given up first.
        poison: fill leased memory with 0xA5, so that tests see bytes that were never written.

    Attributes:
        memory: where memory comes from; set it before the first lease. Default: this process's own.

    Thread-safe. Leases outlive the last reference to their pool.
    """

    def __init__(self, max_free_bytes: int = 1 << 30, poison: bool = False) -> None:
        self._max_free = max_free_bytes
        self._poison = poison
        self.memory: Memory = PrivateMemory()
        self._lock = threading.Lock()
        self._free: deque[mmap.mmap] = deque()  # longest unused first
        self._free_bytes = 0
        # Finalizers may run in the middle of any statement, also of one that holds the lock, so they never wait for it.
        self._returned: deque[mmap.mmap] = deque()
        self.allocated = 0  # memory maps made so far
        self.reused = 0  # leases served from returned memory

    def lease(self, nbytes: int) -> np.ndarray:
        """Uninitialised memory: uint8 (nbytes,), owned by the result and everything derived from it."""
        if nbytes == 0:
            return np.empty(0, np.uint8)
        size = size_class(nbytes)
        with self._lock:
            self._settle()
            memory = next((m for m in reversed(self._free) if len(m) == size), None)
            if memory is not None:
                self._free.remove(memory)
                self._free_bytes -= size
                self.reused += 1
            else:
                self.allocated += 1
        if memory is None:
            memory = self.memory.map(size)
        owner = _owner_type(size).from_buffer(memory)
        owner.end = partial(self._give_back, memory)
        array = np.frombuffer(owner, np.uint8, nbytes)
        if self._poison:
            array[:] = _POISON
        return array

    @property
    def free_bytes(self) -> int:
        """Bytes of unused memory that the pool holds now."""
        with self._lock:
            self._settle()
            return self._free_bytes

    def _give_back(self, memory: mmap.mmap) -> None:
        self._returned.append(memory)
        if self._lock.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._lock.release()

    def _settle(self) -> None:
        """Take in what finalizers gave back, then keep to the limit (the lock is held)."""
        while self._returned:
            memory = self._returned.popleft()
            self._free.append(memory)
            self._free_bytes += len(memory)
        while self._free_bytes > self._max_free:
            # Not closed by hand: its last owner may be half-way through its own end. Dropping the map unmaps it.
            memory = self._free.popleft()
            self._free_bytes -= len(memory)
            self.memory.release(memory)


def size_class(nbytes: int) -> int:
    """The size that is allocated for `nbytes`: eight steps per power of two, so at most an eighth is wasted."""
    if nbytes <= _SMALLEST:
        return _SMALLEST
    step = 1 << ((nbytes - 1).bit_length() - 4)
    return -(-nbytes // step) * step


def _owner_type(size: int) -> Any:
    """A ctypes array type of `size` bytes whose objects call `end` when they die.

    Not `weakref.finalize`: the interpreter walks its registry at exit, while workers may still add to it.
    """
    return _OWNERS.get(size) or _OWNERS.setdefault(size, type("Lease", (ctypes.c_uint8 * size,), {"__del__": _end}))


def _end(owner: Any) -> None:
    owner.end()


_OWNERS: dict[int, Any] = {}  # one type per size class: a few hundred at most
