"""Payloads: the encoded bytes of media stay in shared memory; the parent, which never looks at them, has views of them.

A worker that makes media writes their bytes once, into regions that its parent has lent it, and its answer says where.
The parent's media hold read-only views of these places; a worker that is sent such media reads them where they lie. A
region is used again when the last view of it is gone: the parent keeps the views of whatever a worker may still read.

Regions that are lent take up at most a given number of bytes, however few views hold them. Beyond that, and until a
worker has shown that it makes media at all, payloads travel inside the messages, and arrive as bytes.
"""

from __future__ import annotations

import pickle
import weakref
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from zephon_ft.buffers import BufferPool, size_class
from zephon_ft.record import Media
from zephon_ft.runners.shared import Arena, Region, Window

LARGE = 4096  # bytes; smaller payloads cost less inside the message
_LENT = 2  # regions that a worker has: one that it fills, and the next
_FIT = 8  # payloads as large as the largest so far that a region holds
_SMALLEST, _LARGEST = 1 << 20, 16 << 20  # bytes of a region, unless a single payload is larger


class Place(NamedTuple):
    """Bytes in shared memory: their region, the first of them there, how many, and 1 if nobody may write to them."""

    offset: int
    size: int
    first: int
    length: int
    fixed: int


class Payloads:
    """Of one end of a channel: what the message that is being pickled only names.

    Attributes:
        places: of the buffers that the message names, in order.
    """

    def __init__(self) -> None:
        self.places: list[Place] = []
        self._named: pickle.PickleBuffer | None = None

    def begin(self) -> None:
        """A new message will be pickled, perhaps in several attempts."""

    def reduce(self, media: Media) -> Any:
        """A media item taken apart: its bytes are named where that is possible."""
        m, data = media, media.data
        content: Any = data
        if data is not None:
            place = self._place(data) if len(data) >= LARGE else None
            if place is not None:
                self.places.append(place)
                content = self._named = pickle.PickleBuffer(data)
            else:
                content = bytes(data)
        return Media, (m.kind, m.tokens, m.rows, m.facts, content, m.offset, m.key, m.position, m.index)

    def inside(self, buffer: pickle.PickleBuffer) -> bool:
        """For pickle's `buffer_callback`: whether the message must hold this buffer."""
        if buffer is not self._named:
            return True
        self._named = None
        return False

    def _place(self, data: Any) -> Place | None:
        """Where these bytes lie in shared memory; None: the message has to hold them."""
        raise NotImplementedError


class Loan(NamedTuple):
    """A region that is lent, and the read-only view of it that keeps it from being used again, as its slices do."""

    region: Region
    view: memoryview


class Lender:
    """Lends regions to all workers of a pipeline. For one thread.

    Args:
        limit: bytes that regions may take which are lent, or of which there are views. Beside them, unused ones take a
            quarter of it at most.
    """

    def __init__(self, arena: Arena, limit: int) -> None:
        self._arena, self._limit = arena, limit
        self._pool = BufferPool(max_free_bytes=limit // 4)
        self._pool.memory = arena
        self._lent: list[tuple[weakref.ref[np.ndarray], int]] = []

    def lend(self, size: int) -> Loan | None:
        """A region of at least `size` bytes; None where that is beyond the limit, or there is no room."""
        size = size_class(size)
        self._lent = [(lease, taken) for lease, taken in self._lent if lease() is not None]
        if sum(taken for _, taken in self._lent) + size > self._limit:
            return None
        try:
            lease = self._pool.lease(size)
        except OSError:
            return None
        self._lent.append((weakref.ref(lease), size))
        found = self._arena.locate(lease)
        assert found is not None
        return Loan(found[0], memoryview(lease).toreadonly())


class ParentPayloads(Payloads):
    """The parent's end: what one worker has been lent, and what it is being sent."""

    def __init__(self, arena: Arena, lender: Lender) -> None:
        super().__init__()
        self._arena, self._lender = arena, lender
        self._loans: deque[Loan] = deque()
        self._size = 0  # of the next region; 0: it needs none
        self._finished = 0
        self._reading: dict[int, dict[Place, memoryview]] = {}  # by message
        self._sending: dict[Place, memoryview] = {}

    def begin(self) -> None:
        self._sending = {}

    def inside(self, buffer: pickle.PickleBuffer) -> bool:
        """Arrays that lie in shared memory (a batch's pixels) are named too: the worker writes into them."""
        if not super().inside(buffer):
            return False
        raw = buffer.raw()
        place = self._locate(raw, raw.readonly) if raw.nbytes else None
        if place is not None:
            self.places.append(place)
        return place is None

    def next_region(self) -> Region:
        """What the worker is lent with the next message; an empty region where it needs no more."""
        if not self._size or (len(self._loans) >= _LENT and self._loans[-1].region.size >= self._size):
            return Region(0, 0)
        loan = self._lender.lend(self._size)
        if loan is None:
            return Region(0, 0)
        self._loans.append(loan)
        return loan.region

    def sent(self, number: int) -> None:
        """What was pickled last is on its way: the worker may read it until it has answered."""
        self._reading[number], self._sending = self._sending, {}

    def taken_back(self, number: int, region: Region) -> None:
        """The worker will not read that message, and has not got that region."""
        del self._reading[number]
        if region.size:
            self._loans.pop()

    def answered(self, number: int, places: Iterable[Place]) -> list[memoryview]:
        """The payloads of an answer: views of what the worker has written, or was sent."""
        sent = self._reading.pop(number, {})
        return [sent.get(place) or self._written(place) for place in places]

    def settle(self, finished: int, short: int) -> None:
        """What the worker has told with its answer.

        Args:
            finished: regions that it will write no more to, since it began.
            short: size of the largest payload that found no room; 0: all did.
        """
        for _ in range(finished - self._finished):
            self._loans.popleft()
        self._finished = finished
        if short:
            self._size = max(self._size, short, min(max(_FIT * short, _SMALLEST), _LARGEST))

    def close(self) -> None:
        """The worker is gone."""
        self._loans.clear()
        self._reading.clear()

    def _place(self, data: Any) -> Place | None:
        place = self._locate(data, True) if type(data) is memoryview else None
        if place is not None:
            self._sending[place] = data
        return place

    def _locate(self, view: memoryview, fixed: bool) -> Place | None:
        found = self._arena.locate(np.frombuffer(view, np.uint8))
        return None if found is None else Place(*found[0], found[1], view.nbytes, int(fixed))

    def _written(self, place: Place) -> memoryview:
        view = next(loan.view for loan in self._loans if loan.region.offset == place.offset)
        return view[place.first : place.first + place.length]


class WorkerPayloads(Payloads):
    """The worker's end.

    Attributes:
        finished, short: see `ParentPayloads.settle`.
    """

    def __init__(self, window: Window) -> None:
        super().__init__()
        self._window = window
        self._regions: deque[Region] = deque()  # lent, the first is being filled
        self._end = 0  # of what is written there
        self.finished = self.short = 0
        # By the id of what holds the bytes, with that itself: no other gets its id.
        self._received: dict[int, tuple[Any, Place]] = {}
        self._written: dict[int, tuple[Any, Place]] = {}

    def receive(self, region: Region, places: Iterable[Place]) -> list[memoryview]:
        """Take a region that was lent, if any, and map what a message names."""
        if region.size:
            self._regions.append(region)
        views = []
        for place in places:
            offset, size, first, length, fixed = place
            view = memoryview(self._window.map(Region(offset, size)))[first : first + length]
            if fixed:
                view = view.toreadonly()
                self._received[id(view)] = view, place
            views.append(view)
        return views

    def begin(self) -> None:
        self._written.clear()
        self.short = 0

    def end(self) -> None:
        """The message has been answered: nothing is kept while the worker waits."""
        self._received.clear()
        self._written.clear()

    def _place(self, data: Any) -> Place | None:
        known = self._received.get(id(data)) or self._written.get(id(data))
        if known is not None:
            return known[1]
        place = self._write(data)
        if place is not None:
            self._written[id(data)] = data, place
        return place

    def _write(self, data: Any) -> Place | None:
        """Write a payload behind the others; None where it finds no room."""
        length = len(data)
        if not self._regions or self._end + length > self._regions[0].size:
            past = next((n for n, region in enumerate(self._regions) if n and region.size >= length), None)
            if past is None:
                self.short = max(self.short, length)
                return None
            for _ in range(past):
                self._regions.popleft()
            self.finished += past
            self._end = 0
        region, first = self._regions[0], self._end
        self._end += length
        self._window.map(region)[first : self._end] = data
        return Place(*region, first, length, 1)
