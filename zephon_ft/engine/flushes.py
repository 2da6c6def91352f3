"""Flushes: what flush intervals cost, and a warning where a shuffle buffer is larger than an interval."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zephon_ft.engine.events import Interval
    from zephon_ft.engine.plan import Plan

logger = logging.getLogger("zephon_ft")


class Flushes:
    """Totals over finished intervals, per stateful operator. Used under the engine's lock."""

    def __init__(self, plan: Plan) -> None:
        self._operators = {s.index: s.head.operator for s in plan.segments if s.head is not None}
        self._totals = {index: [0, 0, 0, 0] for index in self._operators}  # intervals, units, groups, at the end
        self._warned = False

    def add(self, intervals: Iterable[Interval]) -> None:
        """Count intervals; warn once where a buffer never fills."""
        for interval in intervals:
            total = self._totals[interval.segment]
            for i, value in enumerate((1, interval.units, interval.groups, interval.flushed)):
                total[i] += value
            size = getattr(self._operators[interval.segment], "buffer_size", 0)
            # The first intervals are shortened on purpose: look at the mean of several.
            if not self._warned and total[0] >= 8 and total[1] / total[0] < size:
                self._warned = True
                logger.warning(
                    "%s(buffer_size=%d) gets %d units per flush interval on average, so it never fills: raise "
                    "flush_every, or choose a smaller buffer",
                    self._operators[interval.segment].name,
                    size,
                    total[1] // total[0],
                )

    def summary(self) -> dict[str, dict[str, Any]]:
        """See `Engine.stats`."""
        out = {}
        for index, (count, units, groups, flushed) in self._totals.items():
            if count:
                out[self._operators[index].name] = {
                    "intervals": count,
                    "units_per_flush": units / count,
                    "groups_per_flush": groups / count,
                    "cut_short": flushed / groups if groups else 0.0,
                }
        return out
