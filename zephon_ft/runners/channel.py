"""Channel: messages between the parent and one worker. Their content lies in shared memory, sockets carry headers.

A message and its answer share a slot, which the parent uses again when it has taken in the answer, so neither side can
overwrite what the other still reads. The parent alone makes slots; an answer that does not fit goes through the socket
once, and the slot grows. A message that the worker has not begun to read can be taken back: its header is one packet,
and the kernel gives it to one reader only. What lies in shared memory already, a message only names: see `payloads`.
"""

from __future__ import annotations

import mmap
import pickle
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from zephon_ft.buffers import size_class
from zephon_ft.record import Media
from zephon_ft.runners.payloads import Lender, ParentPayloads, Payloads, Place, WorkerPayloads
from zephon_ft.runners.pickling import Reducers, dump
from zephon_ft.runners.shared import Arena, Region, Window

_PACKETS = getattr(socket, "SOCK_SEQPACKET", None)
# Messages on their way to a worker: one that it works on, and the next, if that can be taken back.
SLOTS = 2 if _PACKETS is not None else 1
_FIRST_SLOT = 64 << 10
# Slot number, its region (offset, size), length of the pickle, number of places behind it, region that is lent.
_MESSAGE = struct.Struct("=qqqqqqq")
# Slot number, length of the pickle, 1 if that follows on the socket, number of places behind it, finished, short.
_ANSWER = struct.Struct("=qqqqqq")
_PLACE = struct.Struct("=qqqqq")


class Closed(Exception):
    """The other side is gone."""


class ParentEnd:
    """The parent's side of a channel.

    Args:
        lender: of all channels of this parent.

    Attributes:
        theirs: file descriptors that the worker must inherit, for `WorkerEnd`; close them with `started`.
        fd: readable when there is an answer, or the worker is gone.
    """

    def __init__(self, arena: Arena, lender: Lender) -> None:
        self._arena = arena
        self._payloads = ParentPayloads(arena, lender)
        self._reducers = Reducers({Media: self._payloads.reduce})
        self._desk, self._tray = socket.socketpair(type=_PACKETS or socket.SOCK_STREAM)
        try:
            self._answers, self._far = socket.socketpair()
        except OSError:
            self._desk.close()
            self._tray.close()
            raise
        self.theirs = (self._tray.fileno(), self._far.fileno())
        self.fd = self._answers.fileno()
        self._slots: list[mmap.mmap | None] = [None] * SLOTS
        self._wanted = [_FIRST_SLOT] * SLOTS  # sizes
        self._free = list(range(SLOTS))

    def started(self) -> None:
        """The worker has what it needs. (The tray stays open here too, to take messages back.)"""
        self._far.close()

    def send(self, message: Any) -> int:
        """Send a message; returns its number, which the answer will have. SLOTS may be on their way at once.

        Raises:
            OSError: no shared memory. Any other Exception: it cannot be pickled. Nothing was sent.
        """
        number = self._free[-1]
        sink = _Sink(self._slot(number), self._payloads)
        length = sink.take(message, self._reducers)
        if sink.rest:
            content = sink.content()
            self._wanted[number] = size_class(len(content) + len(content) // 4)
            self._slot(number)[: len(content)] = content
        self._free.pop()
        self._payloads.sent(number)
        region, lent = self._arena.region(self._slot(number)), self._payloads.next_region()
        with suppress(OSError):  # it is dead, which `receive` tells
            self._desk.sendall(_MESSAGE.pack(number, *region, length, len(self._payloads.places), *lent))
        return number

    def take_back(self) -> int | None:
        """Take back a message that the worker has not begun with; returns its number, None if there is none."""
        try:
            header = self._tray.recv(_MESSAGE.size, socket.MSG_DONTWAIT)
        except OSError:
            return None
        number, *_, offset, size = _MESSAGE.unpack(header)
        self._payloads.taken_back(number, Region(offset, size))
        self._free.append(number)
        return number

    def receive(self) -> tuple[int, Any]:
        """The next answer: the number of its message, and what `pickle.loads` made of it, or the exception it raised.

        Raises:
            Closed: the worker is gone.
        """
        number, length, follows, count, finished, short = _ANSWER.unpack(_receive(self._answers, _ANSWER.size))
        size = length + count * _PLACE.size
        if follows:
            content: Any = memoryview(_receive(self._answers, size))
            self._wanted[number] = size_class(size + size // 4)
        else:
            content = memoryview(self._slot(number))[:size]
        views = self._payloads.answered(number, _places(content, length, count))
        self._payloads.settle(finished, short)
        self._free.append(number)
        try:
            return number, pickle.loads(content[:length], buffers=views)
        except Exception as error:
            return number, error

    def worker_ended(self) -> None:
        """Its process is gone: do not wait for more than it has sent, whoever else may hold its socket."""
        self._answers.setblocking(False)

    def hang_up(self) -> None:
        """The worker sees the end of the channel when it has read what it was sent."""
        with suppress(OSError):
            self._desk.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it and return its memory; the worker must be gone."""
        for sock in (self._desk, self._tray, self._answers, self._far):
            sock.close()
        for memory in filter(None, self._slots):
            self._arena.release(memory)
        self._slots = [None] * SLOTS
        self._payloads.close()

    def _slot(self, number: int) -> mmap.mmap:
        memory = self._slots[number]
        if memory is None or (len(memory) < self._wanted[number] and number in self._free):
            larger = self._arena.map(self._wanted[number])
            if memory is not None:
                self._arena.release(memory)
            memory = self._slots[number] = larger
        return memory


class WorkerEnd:
    """The worker's side of a channel.

    Args:
        theirs: `ParentEnd.theirs`.
    """

    def __init__(self, theirs: tuple[int, int], window: Window) -> None:
        tray, answers = theirs
        self._tray, self._answers = socket.socket(fileno=tray), socket.socket(fileno=answers)
        self._window = window
        self._payloads = WorkerPayloads(window)
        self._reducers = Reducers({Media: self._payloads.reduce})
        self._number, self._region = 0, Region(0, 0)

    def receive(self) -> Any:
        """The next message. Raises Closed."""
        self._number, offset, size, length, count, *lent = _MESSAGE.unpack(_receive(self._tray, _MESSAGE.size))
        self._region = Region(offset, size)
        content = memoryview(self._window.map(self._region))
        views = self._payloads.receive(Region(*lent), _places(content, length, count))
        return pickle.loads(content[:length], buffers=views)

    def answer(self, message: Any) -> None:
        """Answer the message that was received last.

        Raises:
            Exception: it cannot be pickled; nothing was sent. Closed: the parent is gone.
        """
        payloads = self._payloads
        sink = _Sink(self._window.map(self._region), payloads)
        length = sink.take(message, self._reducers)
        header = (self._number, length, bool(sink.rest), len(payloads.places), payloads.finished, payloads.short)
        try:
            self._answers.sendall(_ANSWER.pack(*header))
            if sink.rest:
                self._answers.sendall(sink.content())
        except OSError as error:
            raise Closed from error
        payloads.end()


class _Sink:
    """Writes into a slot, and beside it what does not fit."""

    def __init__(self, slot: mmap.mmap, payloads: Payloads) -> None:
        self._slot, self._payloads = slot, payloads
        self.clear()

    def take(self, message: Any, reducers: Reducers) -> int:
        """Write a message and the places that it names; returns the length of the pickle."""
        self._payloads.begin()
        dump(message, self, reducers, self._payloads.inside)
        length = self.size
        if self._payloads.places:
            self.write(b"".join(_PLACE.pack(*place) for place in self._payloads.places))
        return length

    def clear(self) -> None:
        self.size = 0
        self.rest: list[bytes] = []
        self._payloads.places.clear()

    def write(self, data: Any) -> int:
        count = len(data)
        if not self.rest and self.size + count <= len(self._slot):
            self._slot[self.size : self.size + count] = data
        else:
            self.rest.append(bytes(data))
        self.size += count
        return count

    def content(self) -> bytes:
        """All that was written."""
        inside = self.size - sum(map(len, self.rest))
        return b"".join((self._slot[:inside], *self.rest))


def _places(content: memoryview, length: int, count: int) -> Iterable[Place]:
    """The places behind a pickle of that length."""
    return map(Place._make, _PLACE.iter_unpack(content[length : length + count * _PLACE.size]))


def _receive(sock: socket.socket, size: int) -> bytes | bytearray:
    try:
        first = sock.recv(size)
        if len(first) == size:
            return first
        data = bytearray(size)
        view, got, count = memoryview(data), len(first), len(first)
        view[:got] = first
        while count and got < size:
            count = sock.recv_into(view[got:])
            got += count
    except OSError as error:
        raise Closed from error
    if got < size:
        raise Closed
    return data
