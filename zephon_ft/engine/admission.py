"""Admission: which lane reads on next. Used under the engine's lock.

The lane that lacks the batch nearest to the trainer comes first. Over the byte budget only the lane that the consumer
waits for is admitted, one task at a time, so that no budget can hang the stream.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace

from zephon_ft.engine.delivery import Delivery
from zephon_ft.engine.lane_slot import LaneSlot


class Admission:
    """The lanes that want source rows.

    Args:
        delivery: knows which batches are needed.
        ahead: source tasks of a lane whose results may wait for their turn.
        outstanding: tasks of a later segment of a lane that may be unfinished.
    """

    def __init__(self, delivery: Delivery, ahead: int, outstanding: int) -> None:
        self._delivery, self._ahead, self._outstanding = delivery, ahead, outstanding
        self._hungry: list[tuple[int, LaneSlot]] = []  # a heap by the batch that a lane lacks next

    def __bool__(self) -> bool:
        """Whether any lane may want rows."""
        return bool(self._hungry)

    def consider(self, slot: LaneSlot) -> None:
        """Something about a lane has changed: it may want rows now."""
        if not slot.hungry and self._wants(slot):
            slot.hungry = True
            heappush(self._hungry, (self._delivery.needed(slot), slot))

    def next(self, over_budget: bool, share: tuple[int, int] = (0, 1)) -> LaneSlot | None:
        """The lane that gets a source task now, which is counted as issued; None: no lane may read on.

        Args:
            share: (i, n) admits only lanes of the i-th of n shares.
        """
        if over_budget:
            slot = self._waited()
        else:
            slot = self._of_share(*share) if share[1] > 1 else self._nearest()
        if slot is not None:
            slot.issued += 1
        return slot

    def clear(self) -> None:
        """Forget all lanes."""
        self._hungry.clear()

    def _waited(self) -> LaneSlot | None:
        slot = self._delivery.waited()
        if slot is None or slot.issued > slot.done or slot.outstanding or not self._wants(slot):
            return None
        return slot

    def _of_share(self, part: int, parts: int) -> LaneSlot | None:
        return next(
            (slot for _, slot in sorted(self._hungry) if slot.place % parts == part and self._wants(slot)), None
        )

    def _nearest(self) -> LaneSlot | None:
        while self._hungry:
            need, slot = self._hungry[0]
            if not self._wants(slot):
                heappop(self._hungry)
                slot.hungry = False
            elif need != (now := self._delivery.needed(slot)):  # it has planned batches since it was put there
                heapreplace(self._hungry, (now, slot))
            else:
                return slot
        return None

    def _wants(self, slot: LaneSlot) -> bool:
        if slot.source_ended or slot.lane.failing or slot.ended or slot.outstanding >= self._outstanding:
            return False
        return slot.planned < self._delivery.target(slot) and slot.issued - slot.done < self._ahead
