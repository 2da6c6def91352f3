"""LaneSlot: one lane of this rank with what the engine keeps about it: its source, inbox, and what is on the way."""

from __future__ import annotations

import threading
from typing import Any

from zephon_ft.engine.lane import Lane
from zephon_ft.engine.stamp import Stamp
from zephon_ft.work.mixture import Cursor


class LaneSlot:
    """One lane of this rank, at the place that a stamp names."""

    def __init__(self, lane: Lane, cursor: Cursor, place: int, stamp: Stamp) -> None:
        self.lane, self.cursor, self.place = lane, cursor, place
        cursor.seek(stamp.mark.anchor)
        _pass_over(cursor, stamp.mark.rows + (0 if lane.plan.stateful else stamp.units))
        self.source_lock = threading.Lock()  # guards the cursor, anchor and seq
        self.anchor = stamp.mark.anchor
        self.seq = 0
        self.source_ended = False
        self.inbox_lock = threading.Lock()  # guards the inbox and the draining flag
        self.inbox: list[tuple[int, int, Any]] = []
        self.draining = False
        self.drainer = 0  # thread that drained it last, for the report on a stuck worker
        # Guarded by the engine's lock:
        self.issued = self.done = 0  # source tasks given out; their results taken in, in order
        self.planned = lane.batches
        self.outstanding = 0  # results of later segments that it waits for
        # As its drainer last reported, with every batch planned before: never ahead of `Delivery.add`.
        self.failed: BaseException | None = None
        self.ended = False
        self.hungry = False  # in the engine's queue of lanes that want source rows


def _pass_over(cursor: Cursor, rows: int) -> None:
    while rows:
        taken = len(cursor.take(min(rows, 4096)))
        if not taken:
            return
        rows -= taken
