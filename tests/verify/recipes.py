"""Pipelines that `verify` is given: a good one, and ones that are broken on purpose."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterable
from typing import Any

from zephon_ft import Accumulator, Dataset, Operator, Pipeline, Record, StaticMixtureWorkSource

COUNTER = itertools.count()
SEEN: set[int] = set()


def pipeline(function: Callable[..., Any], lanes: int = 4, epochs: int | None = None) -> Pipeline:
    made = [{"n": i, "text": f"row {i}"} for i in range(120)]
    datasets = [Dataset.from_rows("a", made), Dataset.from_rows("b", made[:40])]
    source = StaticMixtureWorkSource(datasets, seed=1, epochs=epochs)
    return Pipeline(source, lanes, flush_every=9).map(double).map(function).shuffle(6).batch(2)


def double(row: dict) -> dict:
    return {**row, "double": row["n"] * 2}


def keyed(row: dict, rng: Any) -> dict:
    return {**row, "noise": rng.random()}


def counted(row: dict) -> dict:
    return {**row, "stamp": next(COUNTER)}


def noisy(row: dict) -> dict:
    return {**row, "noise": random.random()}


def clocked(row: dict) -> dict:
    return {**row, "when": time.perf_counter_ns()}


def first_seen(row: dict) -> dict:
    new = row["n"] not in SEEN
    SEEN.add(row["n"])
    return {**row, "new": new}


class Hoard(Operator):
    """Keeps what it holds in its class, so that it outlives a flush."""

    name = "hoard"
    stateful = True

    def accumulator(self) -> Accumulator:
        return _Hoarder()

    def has_work(self) -> bool:
        return False

    def recipe(self) -> dict[str, Any]:
        return {}


class _Hoarder(Accumulator):
    conserves = False
    held: list[Record] = []

    def push(self, unit: Record) -> Iterable[list[Record]]:
        self.held.append(unit)
        return [[self.held.pop(0)]] if len(self.held) > 5 else []

    def finish(self) -> Iterable[list[Record]]:
        return []


def good() -> Pipeline:
    return pipeline(keyed)


def finite() -> Pipeline:
    return pipeline(keyed, epochs=1)


def counter() -> Pipeline:
    return pipeline(counted)


def chance() -> Pipeline:
    return pipeline(noisy)


def clock() -> Pipeline:
    return pipeline(clocked)


def memory() -> Pipeline:
    return pipeline(first_seen)


def hoarding() -> Pipeline:
    made = [{"n": i} for i in range(120)]
    source = StaticMixtureWorkSource([Dataset.from_rows("a", made)], seed=1)
    return Pipeline(source, 2, flush_every=9).apply(Hoard()).batch(2)


def images() -> Pipeline:
    from tests.guarantees.random_pipelines import Spec, build

    return build(Spec("images", (40,), (1,), 4, 30, 1, (), "best_fit", 4, (), 2, 1))


def nothing() -> None:
    return None
