"""Lane: one logical stream as a deterministic state machine. Single-threaded; knows nothing of threads.

Results go in, in any order; tasks and planned batches come out. Results are put back in order, accumulators take their
units one at a time, groups get numbers, and flush markers travel between them. Whoever drains a lane owns it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zephon_ft.engine.failure import Failure, wrap
from zephon_ft.engine.plan import SOURCE_ROWS_PER_FLUSH, Plan, Segment
from zephon_ft.engine.stamp import ITERATION_BITS, Mark, Stamp
from zephon_ft.errors import PipelineError
from zephon_ft.ops.base import Accumulator, AccumulatorContext


@dataclass(slots=True)
class Bundle:
    """Units in stream order. All units of one group or source row (`unit.position`) are in the same bundle.

    `anchor` and `stop` are set on bundles from the source: the cursor at the last anchor, and the row behind the last.
    `failure` is the error of the unit that would have come next (its row is `stop`): the lane ends there.
    """

    units: list[Any]
    stop: int = 0
    anchor: tuple[int, ...] = ()
    failure: BaseException | None = None


class End:
    """The source is exhausted."""


@dataclass(slots=True)
class Work:
    """Work for a segment's function: groups of its stateful operator, or a bundle that is handed over."""

    segment: int
    seq: int  # its number in this segment
    groups: list[list[Any]] | Bundle
    first: int  # position of the first group; the units that come of group i get position first + i
    nbytes: int


@dataclass(slots=True)
class Planned:
    """A batch whose units are decided."""

    index: int  # number within its lane, since the run began
    units: list[Any]
    stamp: Stamp
    nbytes: int


class Interval(NamedTuple):
    """One flush interval that a stateful operator has finished."""

    segment: int
    units: int  # taken in
    groups: int  # given out
    flushed: int  # of these, because the interval ended


@dataclass(slots=True)
class Outcome:
    """What one `advance` brought."""

    tasks: list[Work] = field(default_factory=list)
    batches: list[Planned] = field(default_factory=list)
    freed: int = 0  # bytes of units that were dropped
    drops: dict[str, int] = field(default_factory=dict)
    intervals: list[Interval] = field(default_factory=list)


class _Stage:
    """A segment of this lane: its accumulator, and the results that wait for their turn."""

    __slots__ = (
        "accumulator",
        "deaf",
        "doing",
        "dropped",
        "emitted",
        "held",
        "issued",
        "next",
        "passed",
        "pending",
        "segment",
        "skip",
        "stopped",
        "taken",
    )

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


class Lane:
    """The state of one lane.

    Args:
        index: its number, 0 .. lanes-1.
        plan: the compiled pipeline.
        stamp: where it starts; a fresh lane's is flush 0 at its first row.
    """

    def __init__(self, index: int, plan: Plan, stamp: Stamp, group_size: Any = None) -> None:
        self.index, self.plan = index, plan
        self.stages = [_Stage(segment) for segment in plan.segments]
        stateful = plan.stateful
        self._first = stateful[0] if stateful else None
        self._last = stateful[-1] if stateful else 0
        self._cutter = plan.batch.new_cutter()
        self._group_size = group_size or (lambda segment: 32)
        self.batches = stamp.batches
        self.failed: BaseException | None = None
        self.ended = False
        self.failing = False  # a failure is on its way to `batch`: reading on is of no use
        self._skip_children = stamp.children  # units of the first group that were delivered before
        self._mark = stamp.mark  # the interval that `batch` is in
        self._flush = stamp.mark.flush  # the interval that the first stateful operator is in
        self._place = (stamp.mark, stamp.units, stamp.children)  # behind the last unit that `batch` took
        self._batch_bytes = 0
        self._fruitful = plan_position(stamp.mark)  # source row up to which units are known to have come out
        self._any = False  # whether a unit came out in this interval
        self._patience = plan.patience
        self._out = Outcome()
        self._begin_interval(plan_position(stamp.mark))
        self.stages[self._last].skip = stamp.units

    # -- events ------------------------------------------------------------------------------------------------

    def advance(self, events: Iterable[tuple[int, int, Any]]) -> Outcome:
        """Take in results (segment, number, result) and go as far as they allow."""
        for segment, seq, result in events:
            self.stages[segment].pending[seq] = result
            self._pump(segment)
        out, self._out = self._out, Outcome()
        return out

    def waiting(self) -> int:
        """Numbers given to source tasks whose turn has not come: how far the lane has read ahead."""
        return self.stages[0].issued - self.stages[0].next

    def release(self) -> None:
        """Let go of all units (the lane is not used any more)."""
        for stage in self.stages:
            stage.pending.clear()
            stage.accumulator = stage.doing = None
        self._cutter.take()
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
                stage.stopped = self.failing = True
                self._feed(segment + 1, Failure(result.failure))

    def _feed(self, index: int, item: Any) -> None:
        """Give `item` (Bundle, Mark, End or Failure) to segment `index`; behind the last segment stands `batch`."""
        if index == len(self.stages):
            if self.failed is None:
                self._batch(item)
            return
        stage = self.stages[index]
        if stage.deaf:
            return
        try:
            self._take_in(stage, item)
        except Exception as error:  # of this stage: those behind it catch their own
            stage.deaf = self.failing = True
            self._forward(stage, Failure(self._error(stage, error, None)))

    def _take_in(self, stage: _Stage, item: Any) -> None:
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

    def _open(self, stage: _Stage, flush: int) -> None:
        step = stage.segment.head
        assert step is not None

        def drop(unit: Any, reason: str) -> None:
            stage.held -= unit.nbytes
            stage.dropped += 1
            self._out.freed += unit.nbytes
            self._out.drops[reason] = self._out.drops.get(reason, 0) + 1

        try:
            stage.accumulator = step.operator.accumulator()
        except Exception as error:
            raise self._error(stage, error, None) from error
        stage.emitted = stage.taken = stage.dropped = stage.passed = stage.held = stage.skip = 0
        try:
            stage.accumulator.open(AccumulatorContext(self.plan.seed, self.index, flush, step.position, drop))
        except Exception as error:
            raise self._error(stage, error, None) from error

    def _accumulate(self, stage: _Stage, bundle: Bundle) -> None:
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

    def _end_interval(self, stage: _Stage, bundle: Bundle) -> None:
        """The first stateful operator's interval ends before source row `_due`: finish, send the marker, start anew."""
        start = self._due
        self._finish(stage)
        self._flush += 1
        mark = Mark(self._flush, bundle.anchor, start - bundle.anchor[0])
        self._open(stage, self._flush)
        self._begin_interval(start)
        self._forward(stage, mark)

    def _finish(self, stage: _Stage) -> None:
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
        if stage.accumulator.conserves and stage.passed + stage.dropped != stage.taken:
            assert stage.segment.head is not None
            name = stage.segment.head.operator.name
            lost = stage.taken - stage.passed - stage.dropped
            raise PipelineError(
                f"{name}: of {stage.taken} units of a flush interval {stage.passed} came out and {stage.dropped} were "
                f"reported as dropped; {lost} are missing. Return them from finish(), report them with context.drop, "
                "or set `conserves = False` on the accumulator if it makes units of its own.",
                name,
            )
        self._out.freed += stage.held  # an accumulator that made new units of its own left the old ones behind
        stage.held = 0

    def _emit(self, stage: _Stage, groups: list[list[Any]]) -> None:
        if not groups:
            return
        for group in groups:
            if not isinstance(group, list):
                assert stage.segment.head is not None
                name = stage.segment.head.operator.name
                raise PipelineError(
                    f"{name}: push() and finish() return groups, each a list of units, but there is a "
                    f"{type(group).__name__} among them: return [[unit]] where one unit is a group",
                    name,
                )
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

    def _settle(self, stage: _Stage) -> None:
        """More bytes came out than went in (an accumulator made units of its own): they count from here on."""
        if stage.held < 0:
            self._out.freed += stage.held
            stage.held = 0

    # -- passing on --------------------------------------------------------------------------------------------

    def _hand_over(self, stage: _Stage, item: Any) -> None:
        """A segment without a stateful operator: units go to a worker as they are, one group for each position."""
        if type(item) is not Bundle:
            self._forward(stage, item)
        else:
            nbytes = sum(unit.nbytes for unit in item.units)
            self._out.tasks.append(Work(stage.segment.index, stage.issued, item, 0, nbytes))
            stage.issued += 1

    def _forward(self, stage: _Stage, item: Any) -> None:
        """Send a marker behind everything that was emitted before it."""
        if stage.segment.has_work:
            stage.pending[stage.issued] = item
            stage.issued += 1
            self._pump(stage.segment.index)
        else:
            self._feed(stage.segment.index + 1, item)

    # -- batch -------------------------------------------------------------------------------------------------

    def _batch(self, item: Any) -> None:
        if type(item) is Bundle:
            self._take_units(item)
            self._any = self._any or bool(item.units)
            if self._first is None:
                self._expect_units(item.stop)
        elif type(item) is Mark:
            self._expect_units(plan_position(item))
            self._mark = item
            self._place = (item, 0, 0)
            self._skip_children = 0
        elif type(item) is Failure:
            self.failed = item.error
        else:
            if self.plan.remainder == "pad" and len(self._cutter):
                self._cut()
            self.ended = True

    def _expect_units(self, row: int) -> None:
        """Give up a stream in which nothing comes out any more: an endless source would never end."""
        if self._any:
            self._fruitful, self._any = row, False
        elif row - self._fruitful > self._patience:
            self.failing = True
            where = f"lane {self.index}"
            self.failed = PipelineError(
                f"more than {self._patience:,} source rows of {where}, at least two passes over its data, and not one "
                "record came out: everything is filtered out, skipped or too long (stats() of the iterator counts why)",
                self.plan.batch.name,
                where,
            )

    def cut_masked(self) -> Planned:
        """A batch without units, for a lane that ended before others (``remainder="pad"``)."""
        self._cut()
        return self._out.batches.pop()

    def rest(self) -> list[Any]:
        """Units that fill no batch."""
        return self._cutter.take()

    def _take_units(self, bundle: Bundle) -> None:
        cutter, units = self._cutter, bundle.units
        base = 0
        if self._first is None:
            # Without stateful operators the interval is the stretch between two anchors of the source.
            anchor = bundle.anchor
            base = anchor[0]
            if anchor != self._mark.anchor:
                self._mark = Mark(self._mark.flush + 1, anchor, 0)
                self._place = (self._mark, 0, 0)
        last = len(units) - 1
        for number, unit in enumerate(units):
            position = unit.position - base
            _, done, children = self._place
            child = children if position == done else 0
            if self._skip_children and position == done:
                self._skip_children -= 1
                self._out.freed += unit.nbytes
                continue
            try:
                if not cutter.fits(unit):
                    self._cut()
                cutter.add(unit)
            except Exception as error:
                self.failed = wrap(self.plan, "batch", unit, error)
                return
            self._batch_bytes += unit.nbytes
            if number == last or units[number + 1].position != unit.position:
                self._place = (self._mark, position + 1, 0)
            else:
                self._place = (self._mark, position, child + 1)
            if cutter.complete:
                self._cut()

    def _cut(self) -> None:
        index = self.batches
        self.batches += 1
        stamp = Stamp(*self._place, self.batches)
        self._out.batches.append(Planned(index, self._cutter.take(), stamp, self._batch_bytes))
        self._batch_bytes = 0

    def _error(self, stage: _Stage, error: Exception, unit: Any) -> PipelineError:
        assert stage.segment.head is not None
        return wrap(self.plan, stage.segment.head.operator.name, unit, error, f"lane {self.index}")


def plan_position(mark: Mark) -> int:
    """Source row of the lane at which an interval begins."""
    return mark.anchor[0] + mark.rows
