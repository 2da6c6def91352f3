"""StaticMixtureWorkSource: which row of which dataset comes next in a lane.

A pure function of (data, recipe, lane, k). A cursor only remembers where it stands: one (window, offset) per dataset,
so seeking costs O(datasets), and a lane costs nothing until it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from zephon_ft.errors import ConfigError
from zephon_ft.random import ORDER_VERSION
from zephon_ft.work.order import DatasetOrder, Window
from zephon_ft.work.schedule import Schedule, integer_weights

if TYPE_CHECKING:
    from zephon_ft.io.dataset import Dataset

EXHAUSTED = ("redistribute", "stop", "repeat")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive source rows of one lane: equally long lists."""

    dataset: list[int]
    shard: list[int]
    row: list[int]
    passes: list[int]

    def __len__(self) -> int:
        return len(self.row)

    def extend(self, more: Chunk) -> None:
        """Append the rows that follow."""
        self.dataset.extend(more.dataset)
        self.shard.extend(more.shard)
        self.row.extend(more.row)
        self.passes.extend(more.passes)


class StaticMixtureWorkSource:
    """Rows of several datasets, mixed record by record with fixed shares.

    In any K consecutive records of a lane each dataset has K * weight +- 2.

    Args:
        datasets: the datasets; names must differ.
        mixture: {name: weight > 0} for every dataset, normalised; default equal weights. Shares count records.
        seed: seed of the order.
        epochs: None is endless; n passes every dataset exactly n times, and iterating again goes on with the next n.
        exhausted: what happens in a lane when a dataset has finished its `epochs` before the others: ``redistribute``
            (the others go on, weights renormalised), ``stop`` (the lane ends), ``repeat`` (it starts over until every
            dataset has finished).
        shuffle: False keeps the files' order (lanes take turns by block).
        window_rows: rows are shuffled inside windows of at least so many rows on average (whole blocks, at least one).

    Raises:
        ConfigError: names that do not match, weights <= 0, no rows at all.
    """

    def __init__(
        self,
        datasets: Sequence[Dataset],
        mixture: Mapping[str, float] | None = None,
        *,
        seed: int = 0,
        epochs: int | None = None,
        exhausted: str = "redistribute",
        shuffle: bool = True,
        window_rows: int = 1,
    ) -> None:
        self.datasets = tuple(datasets)
        names = [d.name for d in self.datasets]
        mixture = dict.fromkeys(names, 1.0) if mixture is None else dict(mixture)
        if not names:
            raise ConfigError("datasets: at least one is needed")
        if len(set(names)) < len(names):
            raise ConfigError(f"datasets: names must differ, got {names}")
        if missing := [n for n in mixture if n not in names]:
            raise ConfigError(f"mixture: no dataset is named {missing}; the datasets are {names}")
        if missing := [n for n in names if n not in mixture]:
            raise ConfigError(f"mixture: no weight for {missing}; give each dataset a weight > 0 or leave it out")
        for name, weight in mixture.items():
            if not (isinstance(weight, (int, float)) and 0 < weight < float("inf")):
                raise ConfigError(f"mixture: weight of {name!r} is {weight!r}; weights must be numbers > 0")
        if epochs is not None and (not isinstance(epochs, int) or epochs < 1):
            raise ConfigError(f"epochs must be None (endless) or a whole number >= 1, got {epochs!r}")
        if exhausted not in EXHAUSTED:
            raise ConfigError(f"exhausted must be one of {EXHAUSTED}, got {exhausted!r}")
        if window_rows < 1:
            raise ConfigError(f"window_rows must be >= 1, got {window_rows}")
        for dataset in self.datasets:
            if not sum(shard.rows for shard in dataset.shards):
                raise ConfigError(f"dataset {dataset.name!r} has no rows; leave it out of the mixture")
        self.mixture = {name: float(mixture[name]) for name in names}
        self.weights = integer_weights([self.mixture[name] for name in names])
        if min(self.weights) == 0:
            raise ConfigError(f"mixture: a weight is below a millionth of another: {self.mixture}")
        self.seed, self.epochs, self.exhausted = seed, epochs, exhausted
        self.shuffle, self.window_rows = shuffle, window_rows

    def lanes(self, lanes: int) -> LaneSource:
        """The same source, dealt to `lanes` lanes."""
        return LaneSource(self, lanes)

    def recipe(self) -> dict[str, Any]:
        """Everything that decides the order."""
        return {
            "datasets": {d.name: d.fingerprint() for d in self.datasets},
            "mixture": self.mixture,
            "seed": self.seed,
            "epochs": self.epochs,
            "exhausted": self.exhausted,
            "shuffle": self.shuffle,
            "window_rows": self.window_rows,
            "order_version": ORDER_VERSION,
        }


class LaneSource:
    """A work source dealt to a fixed number of lanes; shared by all of them, immutable but for cached schedules."""

    def __init__(self, source: StaticMixtureWorkSource, lanes: int) -> None:
        self.source = source
        self.orders = [
            DatasetOrder(
                dataset.name,
                [shard.row_groups for shard in dataset.shards],
                random_access=dataset.random_access,
                lanes=lanes,
                seed=source.seed,
                shuffle=source.shuffle,
                window_rows=source.window_rows,
            )
            for dataset in source.datasets
        ]
        self._schedules: dict[tuple[int, ...], Schedule] = {}

    def schedule(self, active: tuple[int, ...]) -> Schedule:
        """The schedule of those datasets that still have rows."""
        found = self._schedules.get(active)
        if found is None:
            found = self._schedules[active] = Schedule(integer_weights([self.source.weights[i] for i in active]))
        return found

    def cursor(self, lane: int, iteration: int = 0) -> Cursor:
        """A cursor at the first row of `lane`; iteration i of a finite source starts with pass i * epochs."""
        return Cursor(self, lane, iteration)


class Cursor:
    """Where one lane stands in its source. Not thread-safe: one owner."""

    def __init__(self, lanes: LaneSource, lane: int, iteration: int) -> None:
        self._lanes, self._lane = lanes, lane
        epochs = lanes.source.epochs
        first = 0 if epochs is None else iteration * epochs
        self._ends = [None if epochs is None else (first + epochs) * order.blocks for order in lanes.orders]
        count = len(lanes.orders)
        self._places = [list(order.start_of_pass(lane, first)) for order in lanes.orders]
        self._windows: list[Window | None] = [None] * count
        self._active = tuple(range(count))
        self._pending = set(self._active) if epochs is not None else set()  # not yet through their epochs
        self._counts = [0] * count  # choices since the schedule of the active datasets began
        self.position = 0  # rows taken so far in this iteration
        self.ended = False

    def take(self, n: int) -> Chunk:
        """The next rows: n of them unless a dataset is exhausted on the way; an empty chunk means the lane's end."""
        while not self.ended:
            chunk = self._take(n)
            if len(chunk):
                self.position += len(chunk)
                return chunk
        return Chunk([], [], [], [])

    def _take(self, n: int) -> Chunk:
        active = self._active
        if len(active) == 1:
            shard, row, passes = self._draw(active[0], n)
            if len(row) == 0:
                self._exhaust(active[0])
            self._counts[active[0]] += len(row)
            return Chunk([active[0]] * len(row), shard.tolist(), row.tolist(), passes.tolist())
        counts = [self._counts[i] for i in active]
        chosen = self._lanes.schedule(active).choices(sum(counts), counts, n)
        # A dataset with too few rows left cuts the chunk just before the first choice that it cannot serve.
        empty = None
        for index, i in enumerate(active):
            places = np.flatnonzero(chosen == index)
            left = self._left(i, len(places))
            if left < len(places) and places[left] < n:
                n, empty = int(places[left]), i
        chosen = chosen[:n]
        columns = [np.empty(n, np.int64) for _ in range(4)]
        for index, i in enumerate(active):
            places = np.flatnonzero(chosen == index)
            if not len(places):
                continue
            columns[0][places] = i
            drawn = self._draw_all(i, len(places))
            for column, values in zip(columns[1:], drawn, strict=True):
                column[places] = values
            self._counts[i] += len(places)
        if n == 0 and empty is not None:
            self._exhaust(empty)
        return Chunk(*(column.tolist() for column in columns))

    def _window(self, i: int) -> Window:
        window = self._windows[i]
        if window is None:
            window = self._lanes.orders[i].window(self._lane, self._places[i][0], self._ends[i])
            self._windows[i] = window
        return window

    def _draw(self, i: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Up to n next rows of dataset i, from one window; none means that it is exhausted."""
        window, place = self._window(i), self._places[i]
        if len(window.row) and place[1] >= len(window.row):
            place[0] += 1
            place[1] = 0
            self._windows[i] = None
            window = self._window(i)
        part = slice(place[1], place[1] + n)
        place[1] += len(window.row[part])
        return window.shard[part], window.row[part], window.passes[part]

    def _draw_all(self, i: int, n: int) -> list[np.ndarray]:
        parts = []
        while n:
            parts.append(self._draw(i, n))
            n -= len(parts[-1][1])
        return [np.concatenate(column) for column in zip(*parts, strict=True)]

    def _left(self, i: int, n: int) -> int:
        """How many of the next n rows dataset i still has (n where it has them all)."""
        if self._ends[i] is None:
            return n
        number, offset = self._places[i]
        left = len(self._window(i).row) - offset
        while left < n:
            number += 1
            more = len(self._lanes.orders[i].window(self._lane, number, self._ends[i]).row)
            if not more:
                return left
            left += more
        return n

    def _exhaust(self, i: int) -> None:
        """Dataset i has no row left: end, start it over, or go on without it, as the source says."""
        policy = self._lanes.source.exhausted
        self._pending.discard(i)
        if policy == "stop" or not self._pending:
            self.ended = True
        elif policy == "repeat":
            order = self._lanes.orders[i]
            passes = self._ends[i] // order.blocks  # type: ignore[operator]
            self._places[i] = list(order.start_of_pass(self._lane, passes))
            self._ends[i] = None
            self._windows[i] = None
        else:
            self._active = tuple(j for j in self._active if j != i)
            self._counts = [0] * len(self._counts)

    def state(self) -> list[int]:
        """Position as whole numbers: O(datasets). Feed it to `seek` of a cursor of the same lane and iteration."""
        out = [self.position, int(self.ended)]
        for i, place in enumerate(self._places):
            flags = (i in self._active) | (i in self._pending) << 1 | (self._ends[i] is None) << 2
            out += [*place, self._counts[i], flags]
        return out

    def seek(self, state: Sequence[int]) -> None:
        """Go to a place that `state()` named."""
        self.position, self.ended = state[0], bool(state[1])
        active = []
        for i in range(len(self._places)):
            window, offset, count, flags = state[2 + 4 * i : 6 + 4 * i]
            self._places[i] = [window, offset]
            self._windows[i] = None
            self._counts[i] = count
            if flags & 1:
                active.append(i)
            (self._pending.add if flags & 2 else self._pending.discard)(i)
            if flags & 4:
                self._ends[i] = None
        self._active = tuple(active)
