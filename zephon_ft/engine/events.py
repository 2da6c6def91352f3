"""What goes into and comes out of a lane: bundles of units, markers, tasks, planned batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zephon_ft.engine.stamp import Stamp


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
