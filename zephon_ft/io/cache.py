"""ByteCache: decoded pieces of files, bounded in bytes, each read once however many threads ask for it.

A piece in use is pinned and counts; a new read starts only when it fits beside what is pinned or being read, or when
nothing is, so that memory stays under the larger of the limit and one piece, and no limit, not even zero, can block.
A caller must not ask for a second piece while it holds one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from zephon_ft.errors import StorageError

V = TypeVar("V")
Key = tuple[Hashable, frozenset[str]]  # (place, columns)


class _Entry(Generic[V]):
    """One piece: being read (`ready` False) or here."""

    __slots__ = ("error", "nbytes", "ready", "users", "value")

    def __init__(self, nbytes: int) -> None:
        self.value: V | None = None
        self.nbytes = nbytes
        self.users = 1
        self.ready = False
        self.error: BaseException | None = None


class ByteCache(Generic[V]):
    """Keeps the pieces used last, up to `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[Key, _Entry[V]] = OrderedDict()  # the least recently used first
        self._kept = 0  # bytes of all entries, with the expected size of those being read
        self._pinned = 0  # bytes of those in use
        self._changed = threading.Condition()

    def __reduce__(self) -> Any:
        """A copy in another process begins empty."""
        return ByteCache, (self._limit,)

    @property
    def nbytes(self) -> int:
        """Bytes kept now, with the expected size of what is being read."""
        with self._changed:
            return self._kept

    def set_limit(self, limit: int) -> None:
        """Change the limit; drops what is too much now."""
        with self._changed:
            self._limit = limit
            self._trim(0)
            self._changed.notify_all()

    @contextmanager
    def hold(
        self, place: Hashable, columns: frozenset[str], expected: Callable[[], int], load: Callable[[], tuple[V, int]]
    ) -> Iterator[V]:
        """The piece at `place` with at least `columns`, pinned while the context lasts.

        Args:
            place: what is cached, e.g. (shard, row group).
            columns: the columns needed; a piece that has more of them serves as well.
            expected: estimates its size in bytes; called only where it has to be read.
            load: reads it; returns the piece and its real size. If it fails, every thread that waits for this read
                raises; nothing is kept.
        Both are called without any lock.
        """
        key: Key = (place, columns)
        entry, mine = self._join(key), False
        if entry is None:
            entry, mine = self._acquire(key, expected())
        try:
            if mine:
                self._load(key, entry, load)
            yield entry.value  # type: ignore[misc]
        finally:
            self._release(entry)

    def _join(self, key: Key) -> _Entry[V] | None:
        """The entry, with one more user, if it is here or being read."""
        with self._changed:
            entry = self._find(key)
            return entry if entry is not None and self._wait_for(entry) else None

    def _acquire(self, key: Key, expected: int) -> tuple[_Entry[V], bool]:
        """The entry, with one more user; and whether the caller has to read it."""
        with self._changed:
            while True:
                entry = self._find(key)
                if entry is not None:
                    if self._wait_for(entry):
                        return entry, False
                elif self._admit(expected):
                    entry = self._entries[key] = _Entry(expected)
                    self._kept += expected
                    self._pinned += expected
                    return entry, True
                else:
                    self._changed.wait()

    def _wait_for(self, entry: _Entry[V]) -> bool:
        """Join the users of an entry; False if its read was given up and has to be made anew."""
        if not entry.users:
            self._pinned += entry.nbytes
        entry.users += 1
        try:
            self._changed.wait_for(lambda: entry.ready or entry.error is not None)
            if isinstance(entry.error, MemoryError):
                raise MemoryError(*entry.error.args) from entry.error
            if isinstance(entry.error, Exception):
                raise StorageError(str(entry.error)) from entry.error
        except BaseException:
            self._leave(entry)
            raise
        if entry.error is not None:  # Ctrl-C in the thread that read
            self._leave(entry)
        return entry.error is None

    def _load(self, key: Key, entry: _Entry[V], load: Callable[[], tuple[V, int]]) -> None:
        try:
            value, nbytes = load()
        except BaseException as error:
            with self._changed:
                entry.error = error
                del self._entries[key]
                self._resize(entry, 0)
                self._changed.notify_all()
            raise
        with self._changed:
            entry.value, entry.ready = value, True
            self._resize(entry, nbytes)
            self._trim(0)
            self._changed.notify_all()

    def _resize(self, entry: _Entry[V], nbytes: int) -> None:
        """Of an entry in use."""
        self._kept += nbytes - entry.nbytes
        self._pinned += nbytes - entry.nbytes
        entry.nbytes = nbytes

    def _release(self, entry: _Entry[V]) -> None:
        with self._changed:
            self._leave(entry)

    def _leave(self, entry: _Entry[V]) -> None:
        entry.users -= 1
        if not entry.users:
            self._pinned -= entry.nbytes
            self._trim(0)
            self._changed.notify_all()

    def _find(self, key: Key) -> _Entry[V] | None:
        if key not in self._entries:
            place, columns = key
            wider = (other for other in self._entries if other[0] == place and columns < other[1])
            key = next(wider, key)
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key]

    def _admit(self, expected: int) -> bool:
        """Whether a read of that size may start now; makes room for it."""
        if self._pinned and self._pinned + expected > self._limit:
            return False
        self._trim(expected)
        return True

    def _trim(self, extra: int) -> None:
        if self._kept + extra <= self._limit:
            return
        for key, entry in list(self._entries.items()):
            if not entry.users:
                self._kept -= self._entries.pop(key).nbytes
                if self._kept + extra <= self._limit:
                    return
