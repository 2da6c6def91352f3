"""The first difference between two runs, down to lane, row, field and the records behind it."""

from __future__ import annotations

from dataclasses import dataclass

from zephon_ft.engine.plan import Plan
from zephon_ft.verify.summary import Part, Summary

_SHOWN = 4  # records of a row that are named


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two runs part.

    Attributes:
        step: the optimizer step.
        text: what differs, in words.
        records: where the records behind it came from.
    """

    step: int
    text: str
    records: tuple[str, ...] = ()


def first_difference(plan: Plan, straight: Summary, other: Summary | None) -> Difference | None:
    """How a lane batch of another run differs from the straight run's, if it does."""
    place = f"step {straight.step}, lane {straight.lane}, batch {straight.index} of the lane"
    if other is None:
        return Difference(straight.step, f"{place}: not delivered")
    if straight.digest == other.digest:
        return None
    mine = _numbered(straight.parts)
    theirs = _numbered(other.parts)
    for name, part in mine.items():
        found = theirs.get(name)
        if found is None or found.hash != part.hash:
            values = f": {part.text} and {found.text}" if found is not None and part.text and found.text else ""
            missing = " is missing in the other run" if found is None else ""
            row = f", row {part.row}" if part.row >= 0 else ""
            return Difference(
                straight.step,
                f"{place}{row}, field {part.field!r}{values}{missing}",
                _records(plan, straight, other, part.row),
            )
    more = next(part for name, part in theirs.items() if name not in mine)
    row = f", row {more.row}" if more.row >= 0 else ""
    text = f"{place}{row}, field {more.field!r} is only in the other run"
    return Difference(straight.step, text, _records(plan, straight, other, more.row))


def _numbered(parts: tuple[Part, ...]) -> dict[tuple[str, int, int], Part]:
    """Parts by field, row, and number among those of the same field and row (several images)."""
    out: dict[tuple[str, int, int], Part] = {}
    counts: dict[tuple[str, int], int] = {}
    for part in parts:
        name = part.field, part.row
        out[(*name, counts.get(name, 0))] = part
        counts[name] = counts.get(name, 0) + 1
    return out


def _records(plan: Plan, straight: Summary, other: Summary, row: int) -> tuple[str, ...]:
    found = [_of_row(plan, summary, row) for summary in (straight, other)]
    if found[0] == found[1]:
        return found[0]
    return tuple([f"straight run: {text}" for text in found[0]] + [f"other run: {text}" for text in found[1]])


def _of_row(plan: Plan, summary: Summary, row: int) -> tuple[str, ...]:
    rows = summary.keys if row < 0 else summary.keys[row : row + 1]
    keys = [key for keys in rows for key in keys]
    shown = [plan.describe(key) for key in keys[:_SHOWN]]
    return (*shown, *([f"and {len(keys) - _SHOWN} more"] if len(keys) > _SHOWN else []))
