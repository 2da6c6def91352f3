"""Cutting: the end of a lane. Units become planned batches, each stamped when it is cut."""

from __future__ import annotations

from typing import Any

from zephon_ft.engine.events import Bundle, Outcome, Planned
from zephon_ft.engine.failure import Failure, wrap
from zephon_ft.engine.plan import Plan
from zephon_ft.engine.stamp import Mark, Stamp, begin
from zephon_ft.errors import PipelineError


class Cutting:
    """Where the units of one lane become batches.

    Args:
        plan: the compiled pipeline.
        lane: number of the lane.
        stamp: the place that it starts behind.

    Attributes:
        batches: batches cut so far.
        failed: the error that ended the lane.
        ended: whether the source is through.
    """

    def __init__(self, plan: Plan, lane: int, stamp: Stamp) -> None:
        self.plan, self.lane = plan, lane
        self.batches = stamp.batches
        self.failed: BaseException | None = None
        self.ended = False
        self._cutter = plan.batch.new_cutter()
        self._skip_children = stamp.children  # units of the first group that were delivered before
        self._mark = stamp.mark  # the interval that the next unit is in
        self._place = (stamp.mark, stamp.units, stamp.children)  # behind the last unit that was taken
        self._batch_bytes = 0
        self._fruitful = begin(stamp.mark)  # source row up to which units are known to have come out
        self._any = False  # whether a unit came out in this interval
        self._patience = plan.patience

    def take(self, item: Any, out: Outcome) -> None:
        """Take in a Bundle, Mark, Failure or End; planned batches go to `out`."""
        if self.failed is not None:
            return
        if type(item) is Bundle:
            self._take_units(item, out)
            self._any = self._any or bool(item.units)
            if not self.plan.stateful:
                self._expect_units(item.stop)
        elif type(item) is Mark:
            self._expect_units(begin(item))
            self._mark = item
            self._place = (item, 0, 0)
            self._skip_children = 0
        elif type(item) is Failure:
            self.failed = item.error
        else:
            if self.plan.remainder == "pad" and len(self._cutter):
                self._cut(out)
            self.ended = True

    def _expect_units(self, row: int) -> None:
        """Give up a stream in which nothing comes out any more: an endless source would never end."""
        if self._any:
            self._fruitful, self._any = row, False
        elif row - self._fruitful > self._patience:
            where = f"lane {self.lane}"
            self.failed = PipelineError(
                f"more than {self._patience:,} source rows of {where}, at least two passes over its data, and not one "
                "record came out: everything is filtered out, skipped or too long (stats() of the iterator counts why)",
                self.plan.batch.name,
                where,
            )

    def cut_masked(self) -> Planned:
        """A batch without units, for a lane that ended before others (``remainder="pad"``)."""
        out = Outcome()
        self._cut(out)
        return out.batches.pop()

    def rest(self) -> list[Any]:
        """Units that fill no batch."""
        return self._cutter.take()

    def _take_units(self, bundle: Bundle, out: Outcome) -> None:
        cutter, units = self._cutter, bundle.units
        base = 0
        if not self.plan.stateful:
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
                out.freed += unit.nbytes
                continue
            try:
                if not cutter.fits(unit):
                    self._cut(out)
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
                self._cut(out)

    def _cut(self, out: Outcome) -> None:
        index = self.batches
        self.batches += 1
        stamp = Stamp(*self._place, self.batches)
        out.batches.append(Planned(index, self._cutter.take(), stamp, self._batch_bytes))
        self._batch_bytes = 0
