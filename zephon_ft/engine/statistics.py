"""Statistics: what workers and lanes have counted, merged when somebody asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from zephon_ft.engine.plan import Plan
from zephon_ft.engine.work import WorkerState


def summary(plan: Plan, states: Iterable[WorkerState], drops: Mapping[str, int]) -> dict[str, Any]:
    """What was dropped and skipped.

    Returns:
        counts: number of records by reason.
        skipped: (where the record came from, operator, error) of skipped and blanked records, the first thousand of
            each worker.
        `Engine.stats` adds bytes held now and at most, the fill of rows, and ``flushes``: for each stateful operator
            the intervals finished, the mean of units taken in and of groups given out per interval, and the share of
            groups that came out only because an interval ended.
    """
    counts = dict(drops)
    skipped = []
    for state in states:
        for name, count in list(state.counts.items()):
            counts[name] = counts.get(name, 0) + count
        skipped += [(plan.describe(key), name, error) for key, name, error in list(state.notes) if key]
    return {"counts": counts, "skipped": skipped}
