"""Delivery: planned batches in the order in which they reach the trainer, and how far ahead to plan and to decode.

Delivery goes round by round: round 0 of this rank's lanes in ascending order, then round 1. A step is
`batches_per_step` rounds. Batch `round * lanes + place` is number that in this order. Used under the engine's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from zephon_ft.engine.events import Planned
from zephon_ft.errors import ConfigError, DataError

if TYPE_CHECKING:
    from zephon_ft.engine.lane_slot import LaneSlot

_MANY = 8  # batches made ahead


class Slot:
    """One delivered batch on its way: `lanes_per_batch` planned lane batches."""

    __slots__ = ("batch", "failures", "left", "nbytes", "parts", "ready", "size", "started")

    def __init__(self, parts: list[tuple[LaneSlot, Planned]]) -> None:
        self.parts = parts
        self.nbytes = sum(planned.nbytes for _, planned in parts)  # of their units
        self.batch: Any = None
        self.size = 0  # bytes of the batch
        self.started = self.ready = False
        self.left = 0  # fills that are not done
        self.failures: dict[int, BaseException] = {}  # by the number of the media item in the batch


class Delivery:
    """The order of batches of the owned lanes."""

    def __init__(
        self,
        lanes: Sequence[LaneSlot],
        batches_per_step: int,
        prefetch: int,
        lanes_per_batch: int,
        agree: Callable[[bool], bool] | None,
    ) -> None:
        self._lanes, self._rounds, self._joined = lanes, batches_per_step, lanes_per_batch
        self._prefetch = prefetch * lanes_per_batch
        # Where batches are small and many are made ahead, waking a worker for each costs as much: let half go first.
        self._refill = prefetch // 2 * lanes_per_batch if prefetch >= _MANY else 0
        self._planned: dict[int, tuple[LaneSlot, Planned]] = {}  # whose group is not complete yet
        self._slots: dict[int, Slot] = {}  # by the number of their first lane batch
        # A run that goes on inside a step has lanes that are one batch ahead of others.
        self._head = min(lane.planned * len(lanes) + lane.place for lane in lanes)
        if self._head % lanes_per_batch:
            raise ConfigError(
                f"the state was taken {self._head % (len(lanes) * batches_per_step)} lane batches into a step, which "
                f"lanes_per_batch={lanes_per_batch} does not divide; use a divisor of it, or save at a step boundary"
            )
        finite = lanes[0].lane.plan.source.epochs is not None
        self._agree = (agree or (lambda possible: possible)) if finite else None
        # Steps that every rank can deliver. A step that was begun before a stop was agreed then.
        rounds, place = divmod(self._head, len(lanes))
        self._agreed = -(-(rounds + (place > 0)) // batches_per_step)
        self._pad = lanes[0].lane.plan.remainder == "pad"
        self._finishing = False  # the last step was delivered; what is left is only counted
        self.lost: dict[int, int] = {}  # records of each dataset that fill no step
        self._moved: Sequence[LaneSlot] = ()

    @property
    def step(self) -> int:
        """The step that the next batch belongs to."""
        return self._head // len(self._lanes) // self._rounds

    def add(self, lane: LaneSlot, planned: Planned) -> None:
        """A lane has planned its next batch."""
        if self._finishing:
            self._count(planned.units)
            return
        number = planned.index * len(self._lanes) + lane.place
        self._planned[number] = (lane, planned)
        first = number - number % self._joined
        group = range(first, first + self._joined)
        if all(i in self._planned for i in group):
            self._slots[first] = Slot([self._planned.pop(i) for i in group])

    def target(self, lane: LaneSlot) -> int:
        """Batches that a lane should have planned by now: those of the next step, and those about to be decoded."""
        if self._finishing:
            return 1 << 62
        ahead = (self._head + self._prefetch - lane.place - 1) // len(self._lanes) + 1
        return max((self.step + 2) * self._rounds, ahead)

    def needed(self, lane: LaneSlot) -> int:
        """The number of the batch that a lane lacks next; no two lanes have the same."""
        return lane.planned * len(self._lanes) + lane.place

    def waited(self) -> LaneSlot | None:
        """The lane whose plans the consumer waits for, if it waits for plans."""
        if self._agree is not None and self.step >= self._agreed:
            need = self.target(self._lanes[0]) if self._finishing else (self.step + 1) * self._rounds
            for lane in self._lanes:
                if lane.planned < need and not lane.ended and lane.failed is None:
                    return lane
        if self._head in self._slots:
            return None
        missing = next(i for i in range(self._head, self._head + self._joined) if i not in self._planned)
        return self._lanes[missing % len(self._lanes)]

    def is_next(self, slot: Slot) -> bool:
        """Whether the consumer gets this batch next."""
        return self._slots.get(self._head) is slot

    def startable(self, only_head: bool) -> Iterator[Slot]:
        """Planned batches within the fill horizon whose layout has not begun."""
        middle = self._slots.get(self._head + self._refill) if self._refill else None
        ahead = self._refill if middle is not None and middle.started else self._prefetch
        for number in range(self._head, self._head + (1 if only_head else ahead), self._joined):
            slot = self._slots.get(number)
            if slot is not None and not slot.started:
                yield slot

    def head(self) -> str | None:
        """What the consumer can do now: take a ``batch``, ``agree`` with the other ranks, see the ``end``, or wait.

        Raises:
            the error of the batch, or of the lane, that is next.
        """
        if self._finishing:
            for lane in self._lanes:
                if lane.failed is not None:
                    raise lane.failed
            return "end" if all(lane.ended or lane.failed is not None for lane in self._lanes) else None
        if self._agree is not None and self.step >= self._agreed:
            return "agree" if self._step_known() else None
        slot = self._slots.get(self._head)
        if slot is None:
            for number in range(self._head, self._head + self._joined):
                lane = self._lanes[number % len(self._lanes)]
                if number not in self._planned:
                    if lane.failed is not None:
                        raise lane.failed
                    if lane.ended and lane.planned <= number // len(self._lanes):
                        raise DataError(
                            f"lane {lane.lane.index} ended before batch {number // len(self._lanes)}, of a step that "
                            "all ranks had agreed on: data is missing that was there when the state was saved, or "
                            "`agree` said True though a rank had said False"
                        )
                    return None
            return None
        if slot.ready and slot.failures:
            raise slot.failures[min(slot.failures)]  # the first in the batch, whichever was decoded first
        return "batch" if slot.ready else None

    def _step_known(self) -> bool:
        need = (self.step + 1) * self._rounds
        return all(lane.planned >= need or lane.ended or lane.failed is not None for lane in self._lanes)

    def ask(self) -> bool:
        """Agree with the other ranks on one step more (the consumer's thread, no lock held)."""
        assert self._agree is not None
        need, begun = (self.step + 1) * self._rounds, self.step * self._rounds
        if self._pad:
            possible = any(lane.planned > begun or lane.failed is not None for lane in self._lanes)
        else:
            possible = all(lane.planned >= need or lane.failed is not None for lane in self._lanes)
        return self._agree(possible)

    def agreed(self, go_on: bool) -> int:
        """Take in what `ask` brought; returns bytes that were let go (the engine's lock is held)."""
        if not go_on:
            self._finishing = True
            freed = sum(slot.size + (0 if slot.ready else slot.nbytes) for slot in self._slots.values())
            left = [planned for slot in self._slots.values() for _, planned in slot.parts]
            left += [planned for _, planned in self._planned.values()]
            freed += sum(planned.nbytes for _, planned in self._planned.values())
            for planned in left:
                self._count(planned.units)
            for slot in self._slots.values():
                self._count_batch(slot.batch)
            self.clear()
            return freed
        self._agreed += 1
        for lane in self._lanes:
            self.fill_up(lane)
        return 0

    def fill_up(self, lane: LaneSlot) -> None:
        """Give a lane that has ended masked batches for the steps that were agreed (``remainder="pad"``)."""
        if self._pad and lane.ended and lane.failed is None and not self._finishing:
            while lane.planned < self._agreed * self._rounds:
                self.add(lane, lane.lane.end.cut_masked())
                lane.planned += 1

    def finish(self) -> dict[int, int]:
        """Records of each dataset that were read but fill no step."""
        for lane in self._lanes:
            self._count(lane.lane.end.rest())
        return self.lost

    def _count(self, units: list[Any]) -> None:
        for unit in units:
            for key in getattr(unit, "keys", None) or (unit.key,):
                self.lost[key[0]] = self.lost.get(key[0], 0) + 1

    def _count_batch(self, batch: Any) -> None:
        for keys in batch.keys if batch is not None else ():
            for key in keys:
                self.lost[key[0]] = self.lost.get(key[0], 0) + 1

    def pop(self) -> tuple[Any, int]:
        """The batch that is next, and the bytes of its arrays."""
        slot = self._slots.pop(self._head)
        step = self.step
        self._head += self._joined
        last = self._head + self._prefetch
        count = len(self._lanes)
        moved = tuple(self._lanes[number % count] for number in range(last - self._joined, last))
        self._moved = self._lanes if self.step != step else moved
        return slot.batch, slot.size

    def moved(self) -> Sequence[LaneSlot]:
        """Lanes whose target the last `pop` moved."""
        return self._moved

    def clear(self) -> None:
        """Let go of all batches."""
        self._slots.clear()
        self._planned.clear()
