"""Small records and a small media kind for tests of the stateful operators and the batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zephon_ft.ops.base import Accumulator, AccumulatorContext
from zephon_ft.record import Media, Record

IMAGE = 9  # the placeholder's token id


@dataclass(frozen=True)
class FakePlan:
    grid: tuple[int, int, int] = (1, 2, 2)


@dataclass(frozen=True)
class FakeFacts:
    plan: FakePlan = FakePlan()


@dataclass(frozen=True)
class FakeGeometry:
    """M-RoPE over tokens of 2 x 2 patches."""

    rope: str | None = "qwen"
    merge_size: int = 2


@dataclass(frozen=True)
class FakeKind:
    """What `layout` needs of a media kind; a buffer row is a patch of four bytes."""

    name: str = "pixel_values"
    geometry: FakeGeometry = field(default_factory=FakeGeometry)
    row_shape: tuple[int, ...] = (4,)
    dtype: np.dtype[np.uint8] = field(default_factory=lambda: np.dtype(np.uint8))
    column: str = "image_grid_thw"

    def plan(self, media: Media) -> FakePlan:
        return media.facts.plan

    def columns(self, media: Media) -> dict[str, tuple[int, ...]]:
        return {self.column: media.facts.plan.grid}

    def dummy(self) -> Media:
        return Media(self.name, tokens=1, rows=4, facts=FakeFacts(), data=None)


KINDS = {"pixel_values": FakeKind()}


def media(tokens: int = 1, offset: int = -1, kind: str = "pixel_values", index: int = 0) -> Media:
    """An image of 1 x `tokens` merged blocks."""
    facts = FakeFacts(FakePlan((1, 2, 2 * tokens)))
    return Media(kind, tokens=tokens, rows=4 * tokens, facts=facts, data=b"image", offset=offset, index=index)


def record(number: int, length: int, images: tuple[Media, ...] = (), **fields: Any) -> Record:
    """A record whose token ids say where they come from: 1000 * (number + 1) + index."""
    ids = 1000 * (number + 1) + np.arange(length, dtype=np.int32)
    for image in images:
        ids[image.offset : image.offset + image.tokens] = IMAGE
    return Record((0, 2, number, 0), number, {"input_ids": ids.astype(np.int32), **fields}, images)


class Interval:
    """One flush interval of an accumulator; collects what it drops."""

    def __init__(
        self, accumulator: Accumulator, seed: int = 0, lane: int = 0, flush: int = 0, position: int = 1
    ) -> None:
        self.accumulator = accumulator
        self.dropped: list[tuple[Any, str]] = []
        drop = lambda unit, reason: self.dropped.append((unit, reason))  # noqa: E731
        accumulator.open(AccumulatorContext(seed, lane, flush, position, drop))

    def run(self, units: Any) -> list[list[Any]]:
        """All groups of an interval of these units."""
        groups = [list(group) for unit in units for group in self.accumulator.push(unit)]
        return groups + [list(group) for group in self.accumulator.finish()]


def work(operator: Any) -> Any:
    """The operator's work function of one worker (it needs nothing of the context)."""
    return operator.bind(None)


def rows_of(operator: Any, records: list[Record]) -> list[Any]:
    """The rows of one interval of these records."""
    function = work(operator)
    return [function(group) for group in Interval(operator.accumulator()).run(records)]
