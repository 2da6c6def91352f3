"""Stamp: the position of a batch in its lane's stream, a pure function of that stream.

To restore a stamp: seek the source to `anchor`, pass over `rows` rows without fetching them, start the flush interval
`flush`, and drop the first `units` groups of the last stateful operator and `children` units of the next one.
"""

from __future__ import annotations

from dataclasses import dataclass

ITERATION_BITS = 32  # flush numbers of iteration i over a finite source begin at i << 32
ANCHOR_ROWS = 1024  # source cursors are noted every so many rows of a lane; where an interval begins lies in between


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a flush interval begins: its number, and its first source row as (cursor at an anchor, rows after it)."""

    flush: int
    anchor: tuple[int, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class Stamp:
    """A place between two units of a lane.

    Attributes:
        mark: the flush interval it lies in.
        units: groups of the last stateful operator (without one: source rows) used up since the interval began.
        children: units used up of the group behind them.
        batches: batches cut before this place.
    """

    mark: Mark
    units: int
    children: int
    batches: int


def begin(mark: Mark) -> int:
    """Source row of the lane at which an interval begins."""
    return mark.anchor[0] + mark.rows
