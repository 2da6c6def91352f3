"""Stage: one segment of one lane: its accumulator, the results that wait for their turn, and what it has counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zephon_ft.engine.events import Outcome
from zephon_ft.engine.plan import Plan, Segment
from zephon_ft.errors import PipelineError
from zephon_ft.ops.base import Accumulator, AccumulatorContext


class Stage:
    """A segment of this lane: its accumulator, and the results that wait for their turn."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.pending: dict[int, Any] = {}  # results by number
        self.next = 0  # the number whose turn it is
        self.issued = 0  # numbers given away
        self.accumulator: Accumulator | None = None
        self.emitted = 0  # groups emitted in this interval
        self.skip = 0  # groups of this interval that were delivered before
        self.taken = self.dropped = self.passed = 0  # units in, dropped and out in this interval
        self.held = 0  # bytes of units inside the accumulator
        self.stopped = False  # its work failed: later results do not count
        self.deaf = False  # it, or something before it, failed: nothing more goes in
        self.doing: Any = None  # what its accumulator takes in now, for the report on a stuck worker

    def open(self, plan: Plan, lane: int, flush: int, out: Callable[[], Outcome]) -> None:
        """A new accumulator for a flush interval; what it drops is counted in ``out()``."""
        step = self.segment.head
        assert step is not None

        def drop(unit: Any, reason: str) -> None:
            self.held -= unit.nbytes
            self.dropped += 1
            outcome = out()
            outcome.freed += unit.nbytes
            outcome.drops[reason] = outcome.drops.get(reason, 0) + 1

        self.emitted = self.taken = self.dropped = self.passed = self.held = self.skip = 0
        self.accumulator = step.operator.accumulator()
        self.accumulator.open(AccumulatorContext(plan.seed, lane, flush, step.position, drop))

    def check_groups(self, groups: list[Any]) -> None:
        """Raise where an accumulator returned something else than groups."""
        for group in groups:
            if not isinstance(group, list):
                raise PipelineError(
                    f"{self.name}: push() and finish() return groups, each a list of units, but there is a "
                    f"{type(group).__name__} among them: return [[unit]] where one unit is a group",
                    self.name,
                )

    def check_conserved(self) -> None:
        """At the end of an interval: raise where units went in and neither came out nor were reported."""
        assert self.accumulator is not None
        if self.accumulator.conserves and self.passed + self.dropped != self.taken:
            raise PipelineError(
                f"{self.name}: of {self.taken} units of a flush interval {self.passed} came out and {self.dropped} "
                f"were reported as dropped; {self.taken - self.passed - self.dropped} are missing. Return them from "
                "finish(), report them with context.drop, or set `conserves = False` on the accumulator if it makes "
                "units of its own.",
                self.name,
            )

    @property
    def name(self) -> str:
        """Name of the stateful operator."""
        assert self.segment.head is not None
        return self.segment.head.operator.name
