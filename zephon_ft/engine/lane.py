"""Lane: one logical stream as a deterministic state machine. Single-threaded; knows nothing of threads.

Results go in, in any order; tasks and planned batches come out. Results are put back in order, accumulators take their
units one at a time, groups get numbers, and flush markers travel between them. Whoever drains a lane owns it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zephon_ft.engine.cutting import Cutting
from zephon_ft.engine.events import Bundle, Interval, Outcome, Work
from zephon_ft.engine.failure import Failure, wrap
from zephon_ft.engine.plan import SOURCE_ROWS_PER_FLUSH, Plan
from zephon_ft.engine.stage import Stage
from zephon_ft.engine.stamp import ITERATION_BITS, Mark, Stamp, begin
from zephon_ft.errors import PipelineError


class Lane:
    """The state of one lane.

    Args:
        index: its number, 0 .. lanes-1.
        plan: the compiled pipeline.
        stamp: where it starts; a fresh lane's is flush 0 at its first row.
    """

    def __init__(self, index: int, plan: Plan, stamp: Stamp, group_size: Any = None) -> None:
        self.index, self.plan = index, plan
        self.stages = [Stage(segment) for segment in plan.segments]
        stateful = plan.stateful
        self._first = stateful[0] if stateful else None
        self._last = stateful[-1] if stateful else 0
        self._group_size = group_size or (lambda segment: 32)
        self.end = Cutting(plan, index, stamp)
        self._failing = False  # a failure is on its way to the end: reading on is of no use
        self._flush = stamp.mark.flush  # the interval that the first stateful operator is in
        self._out = Outcome()
        self._begin_interval(begin(stamp.mark))
        self.stages[self._last].skip = stamp.units

    @property
    def batches(self) -> int:
        """Batches cut so far."""
        return self.end.batches

    @property
    def failed(self) -> BaseException | None:
        """The error that ended the lane."""
        return self.end.failed

    @property
    def failing(self) -> bool:
        """Whether the lane has failed, or will as soon as earlier results are in."""
        return self._failing or self.end.failed is not None

    @property
    def ended(self) -> bool:
        """Whether the source is through and everything has come out."""
        return self.end.ended

    # -- events ------------------------------------------------------------------------------------------------

    def advance(self, events: Iterable[tuple[int, int, Any]]) -> Outcome:
        """Take in results (segment, number, result) and go as far as they allow."""
        for segment, seq, result in events:
            self.stages[segment].pending[seq] = result
            self._pump(segment)
        out, self._out = self._out, Outcome()
        return out

    def release(self) -> None:
        """Let go of all units (the lane is not used any more)."""
        for stage in self.stages:
            stage.pending.clear()
            stage.accumulator = stage.doing = None
        self.end.rest()
        self._out = Outcome()

    def outstanding(self) -> int:
        """Tasks of later segments whose results have not been taken in, at most of any segment."""
        return max((stage.issued - stage.next for stage in self.stages[1:]), default=0)

    def _pump(self, segment: int) -> None:
        stage = self.stages[segment]
        while not stage.stopped and (result := stage.pending.pop(stage.next, None)) is not None:
            stage.next += 1
            self._feed(segment + 1, result)
            if type(result) is Bundle and result.failure is not None:
                stage.stopped = self._failing = True
                self._feed(segment + 1, Failure(result.failure))

    def _feed(self, index: int, item: Any) -> None:
        """Give `item` (Bundle, Mark, End or Failure) to segment `index`; behind the last segment stands `batch`."""
        if index == len(self.stages):
            self.end.take(item, self._out)
            return
        stage = self.stages[index]
        if stage.deaf:
            return
        try:
            self._take_in(stage, item)
        except Exception as error:  # of this stage: those behind it catch their own
            stage.deaf = self._failing = True
            self._forward(stage, Failure(self._error(stage, error, None)))

    def _take_in(self, stage: Stage, item: Any) -> None:
        if type(item) is Failure:
            stage.deaf = True
            self._forward(stage, item)
        elif stage.segment.head is None:
            self._hand_over(stage, item)
        elif type(item) is Bundle:
            self._accumulate(stage, item)
        elif type(item) is Mark:
            self._finish(stage)
            self._open(stage, item.flush)
            self._forward(stage, item)
        else:
            self._finish(stage)
            self._forward(stage, item)

    # -- stateful operators ------------------------------------------------------------------------------------

    def _begin_interval(self, start: int) -> None:
        every = self.plan.flush_every
        # The first interval is shortened, lane by lane, so that lanes do not all flush at the same step.
        first = self._flush & ((1 << ITERATION_BITS) - 1) == 0
        limit = every if not first else max(1, every * (self.index + 1) // self.plan.lanes)
        self._limit, self._interval_taken = limit, 0
        self._due = start + SOURCE_ROWS_PER_FLUSH * limit  # source row before which the interval ends
        if self._first is not None and self.stages[self._first].accumulator is None:
            for index in self.plan.stateful:
                self._open(self.stages[index], self._flush)

    def _open(self, stage: Stage, flush: int) -> None:
        try:
            stage.open(self.plan, self.index, flush, lambda: self._out)
        except Exception as error:
            raise self._error(stage, error, None) from error

    def _accumulate(self, stage: Stage, bundle: Bundle) -> None:
        groups: list[list[Any]] = []
        first = stage.segment.index == self._first
        assert stage.accumulator is not None
        push = stage.accumulator.push
        for unit in bundle.units:
            if first:
                if unit.position >= self._due:
                    self._emit(stage, groups)
                    groups = []
                    self._end_interval(stage, bundle)
                    push = stage.accumulator.push
                self._interval_taken += 1
                if self._interval_taken == self._limit:
                    self._due = min(self._due, unit.position + 1)
            stage.taken += 1
            stage.held += unit.nbytes
            stage.doing = unit
            try:
                groups.extend(push(unit))
            except Exception as error:
                self._emit(stage, groups)
                raise self._error(stage, error, unit) from error
        stage.doing = None
        self._emit(stage, groups)
        if first:
            while bundle.stop >= self._due:
                self._end_interval(stage, bundle)

    def _end_interval(self, stage: Stage, bundle: Bundle) -> None:
        """The first stateful operator's interval ends before source row `_due`: finish, send the marker, start anew."""
        start = self._due
        self._finish(stage)
        self._flush += 1
        mark = Mark(self._flush, bundle.anchor, start - bundle.anchor[0])
        self._open(stage, self._flush)
        self._begin_interval(start)
        self._forward(stage, mark)

    def _finish(self, stage: Stage) -> None:
        assert stage.accumulator is not None
        stage.doing = "finish"
        try:
            groups = list(stage.accumulator.finish())
        except Exception as error:
            raise self._error(stage, error, None) from error
        stage.doing = None
        before = stage.emitted
        self._emit(stage, groups)
        self._out.intervals.append(Interval(stage.segment.index, stage.taken, stage.emitted, stage.emitted - before))
        stage.check_conserved()
        self._out.freed += stage.held  # an accumulator that made new units of its own left the old ones behind
        stage.held = 0

    def _emit(self, stage: Stage, groups: list[list[Any]]) -> None:
        if not groups:
            return
        stage.check_groups(groups)
        first = stage.emitted
        stage.emitted += len(groups)
        stage.passed += sum(map(len, groups))
        if first < stage.skip:
            skipped = min(len(groups), stage.skip - first)
            for group in groups[:skipped]:
                stage.held -= sum(unit.nbytes for unit in group)
                self._out.freed += sum(unit.nbytes for unit in group)
            groups, first = groups[skipped:], first + skipped
        if not stage.segment.has_work:
            units = []
            for position, group in enumerate(groups, first):
                for unit in group:
                    unit.position = position
                    stage.held -= unit.nbytes
                    units.append(unit)
            self._settle(stage)
            self._feed(stage.segment.index + 1, Bundle(units))
            return
        size = self._group_size(stage.segment.index)
        for start in range(0, len(groups), size):
            part = groups[start : start + size]
            nbytes = sum(unit.nbytes for group in part for unit in group)
            stage.held -= nbytes
            self._out.tasks.append(Work(stage.segment.index, stage.issued, part, first + start, nbytes))
            stage.issued += 1
        self._settle(stage)

    def _settle(self, stage: Stage) -> None:
        """More bytes came out than went in (an accumulator made units of its own): they count from here on."""
        if stage.held < 0:
            self._out.freed += stage.held
            stage.held = 0

    # -- passing on --------------------------------------------------------------------------------------------

    def _hand_over(self, stage: Stage, item: Any) -> None:
        """A segment without a stateful operator: units go to a worker as they are, one group for each position."""
        if type(item) is not Bundle:
            self._forward(stage, item)
        else:
            nbytes = sum(unit.nbytes for unit in item.units)
            self._out.tasks.append(Work(stage.segment.index, stage.issued, item, 0, nbytes))
            stage.issued += 1

    def _forward(self, stage: Stage, item: Any) -> None:
        """Send a marker behind everything that was emitted before it."""
        if stage.segment.has_work:
            stage.pending[stage.issued] = item
            stage.issued += 1
            self._pump(stage.segment.index)
        else:
            self._feed(stage.segment.index + 1, item)

    def _error(self, stage: Stage, error: Exception, unit: Any) -> PipelineError:
        assert stage.segment.head is not None
        return wrap(self.plan, stage.segment.head.operator.name, unit, error, f"lane {self.index}")
