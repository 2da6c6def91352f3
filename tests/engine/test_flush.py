"""Where a lane flushes, that no state outlives a flush, and that batches are full all the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.conformance.functions import identity, numbers, rows
from tests.engine.pipes import pipeline
from zephon_ft import Accumulator, DataError, Operator, PipelineError
from zephon_ft.engine.plan import FLUSH_EVERY, default_flush_every


class Probe(Operator):
    """Passes records on, with (flush number, number in the interval, lane) written into each."""

    name, stateful = "probe", True

    def __init__(self, field: str = "place", log: list | None = None) -> None:
        self.field, self.log = field, log

    def accumulator(self) -> Accumulator:
        return _Probe(self)

    def has_work(self) -> bool:
        return False

    def recipe(self) -> dict[str, Any]:
        return {}


class _Probe(Accumulator):
    def __init__(self, probe: Probe) -> None:
        self.probe, self.count, self.done = probe, 0, False

    def open(self, context: Any) -> None:
        self.context = context

    def push(self, unit: Any) -> Iterable[list[Any]]:
        assert not self.done
        unit.fields[self.probe.field] = [self.context.flush, self.count, self.context.lane]
        self.count += 1
        return ([unit],)

    def finish(self) -> Iterable[list[Any]]:
        self.done = True
        if self.probe.log is not None:
            self.probe.log.append((self.context.lane, self.context.flush, self.count))
        return ()


def keep(row: dict) -> bool:
    return row["n"] % 10 == 3


def drop_all(row: dict) -> bool:
    return row["n"] < 0


def triple(row: dict) -> list[dict]:
    return [{**row, "c": c} for c in range(3)]


def intervals(pipe: Any, lanes: int, steps: int) -> list[list[int]]:
    """Records of each finished interval, lane by lane."""
    sizes: list[list[int]] = [[] for _ in range(lanes)]
    with iter(pipe.batch(1).options(runner="inline", task_rows=5)) as stream:
        for _, batch in zip(range(steps * lanes), stream):
            flush, count, lane = batch.columns["place"][0]
            assert lane == batch.lane
            if flush == len(sizes[lane]):
                assert count == 0
                sizes[lane].append(0)
            assert (flush, count) == (len(sizes[lane]) - 1, sizes[lane][-1])
            sizes[lane][-1] += 1
    return [lane[:-1] for lane in sizes]


def test_an_interval_is_so_many_records_and_the_first_is_shortened_lane_by_lane():
    pipe = pipeline(rows(400), lanes=4, flush_every=12).apply(Probe())
    assert intervals(pipe, 4, 40) == [[3, 12, 12, 12], [6, 12, 12], [9, 12, 12], [12, 12, 12]]


def test_records_count_after_filters_and_fan_out():
    pipe = pipeline(rows(400), lanes=1, flush_every=12)
    assert intervals(pipe.filter(keep).apply(Probe()), 1, 40) == [[12, 12, 12]]
    # A flush comes between source rows: the children of one row are never torn apart.
    assert intervals(pipe.flat_map(triple).apply(Probe()), 1, 40) == [[12, 12, 12]]
    pipe = pipeline(rows(400), lanes=1, flush_every=10)
    assert intervals(pipe.flat_map(triple).apply(Probe()), 1, 40) == [[12, 12, 12]]


def test_an_interval_ends_after_sixteen_times_as_many_source_rows():
    # One row of 100 is kept, so 5 records never come together: 16 * 5 = 80 source rows end the interval.
    def rare(row: dict) -> bool:
        return row["n"] % 100 == 50

    pipe = pipeline(rows(1600), lanes=1, epochs=1, flush_every=5).filter(rare).apply(Probe()).batch(1)
    places = [batch.columns["place"][0] for batch in pipe.options(runner="inline", task_rows=7)]
    assert [place[0] for place in places] == [(100 * i + 50) // 80 for i in range(16)]


@pytest.mark.parametrize("task_rows", [1, 3, 100])
def test_intervals_end_even_where_everything_is_filtered_out(task_rows):
    log: list = []
    pipe = pipeline(rows(200), lanes=1, epochs=1, flush_every=2).filter(drop_all).apply(Probe(log=log)).batch(1)
    with pytest.raises(DataError, match="not even one step"):
        list(pipe.options(runner="inline", task_rows=task_rows))
    assert log == [(0, flush, 0) for flush in range(200 // 32 + 1)]


def test_markers_reach_a_stateful_operator_behind_work_behind_another_one():
    log: list = []
    pipe = pipeline(rows(100), lanes=1, epochs=1, flush_every=10)
    pipe = pipe.map(identity).shuffle(4).map(identity).apply(Probe(log=log)).map(identity).batch(3)
    for task_rows in (1, 7, 100):
        log.clear()
        list(pipe.options(task_rows=task_rows, workers=4))
        assert log == [(0, flush, 10) for flush in range(10)] + [(0, 10, 0)]


def test_batches_are_full_and_carry_over_flushes():
    pipe = pipeline(rows(99), lanes=1, epochs=1, flush_every=10).shuffle(100).batch(7).options(runner="inline")
    got = numbers(pipe)
    assert [len(batch) for batch in got] == [7] * 14
    # Each interval is shuffled within itself.
    flat = [n for batch in got for n in batch]
    for start in range(0, 90, 10):
        assert sorted(flat[start : start + 10]) == list(range(start, start + 10))


def test_shuffled_intervals_have_orders_of_their_own():
    pipe = pipeline(rows(100), lanes=1, epochs=1, flush_every=20).shuffle(50).batch(20).options(runner="inline")
    orders = {tuple(n % 20 for n in batch) for batch in numbers(pipe)}
    assert len(orders) == 5


@pytest.mark.parametrize(("length", "every"), [(None, 4096), (2048, 4096), (8192, 4096), (32768, 16384)])
def test_longer_rows_have_longer_intervals(length, every):
    assert default_flush_every(length) == every
    assert FLUSH_EVERY == 4096


class Odd(Operator):
    """An operator whose accumulator misbehaves."""

    name, stateful = "odd", True

    def __init__(self, **methods: Any) -> None:
        self.methods = methods

    def accumulator(self) -> Accumulator:
        if "accumulator" in self.methods:
            return self.methods["accumulator"]()
        plain = {
            "push": lambda self, unit: ([unit],),
            "finish": lambda self: (),
            "open": lambda self, context: setattr(self, "context", context),
        }
        return type("Odd", (Accumulator,), {**plain, **self.methods})()

    def bind(self, context: Any) -> Any:
        return self.methods.get("work")

    def has_work(self) -> bool:
        return "work" in self.methods

    def recipe(self) -> dict[str, Any]:
        return {}


def fail(*_: Any) -> None:
    raise ValueError("of mine")


def run(**methods: Any) -> list[list[int]]:
    pipe = pipeline(rows(40), lanes=1, epochs=1, flush_every=10).apply(Odd(**methods)).batch(2)
    return numbers(pipe.options(workers=2))


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        ({"push": lambda self, unit: ([unit],) if unit.fields["n"] != 7 else ()}, "1 are missing.*context.drop"),
        ({"push": lambda self, unit: ([unit, unit],)}, "of 10 units.*20 came out"),
        ({"push": lambda self, unit: [unit]}, r"a Record among them.*\[\[unit\]\]"),
        ({"push": lambda self, unit: None}, "TypeError.*row 0"),
        ({"push": lambda self, unit: ([17],)}, "odd: AttributeError"),
        ({"push": fail}, "odd: ValueError: of mine.*row 0"),
        ({"finish": fail}, "odd: ValueError: of mine.*lane 0"),
        ({"finish": lambda self: None}, "odd: TypeError"),
        ({"open": fail}, "odd: ValueError: of mine"),
        ({"accumulator": fail}, "odd: ValueError: of mine"),
        ({"work": fail}, "odd: ValueError: of mine.*row 0"),
        ({"work": lambda group: None}, "odd: .*row 0"),
        ({"work": lambda group: [17]}, "odd: .*row 0"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_an_accumulator_that_breaks_its_contract_is_named_and_never_hangs(methods, words):
    with pytest.raises(PipelineError, match=words) as caught:
        run(**methods)
    assert caught.value.operator == "odd"


def test_units_that_are_reported_as_dropped_are_counted():
    def push(self: Any, unit: Any) -> Any:
        if unit.fields["n"] % 4 == 1:
            self.context.drop(unit, "not wanted")
            return ()
        return ([unit],)

    stream = iter(pipeline(rows(40), lanes=1, epochs=1, flush_every=10).apply(Odd(push=push)).batch(2))
    assert [n for batch in numbers(stream) for n in batch] == [n for n in range(40) if n % 4 != 1]
    assert stream.stats()["counts"]["not wanted"] == 10
    assert stream.stats()["held_bytes"] == 0


def test_an_accumulator_that_makes_units_of_its_own_says_so():
    def push(self: Any, unit: Any) -> Any:
        from dataclasses import replace

        return ([replace(unit, fields=dict(unit.fields))], [replace(unit, fields=dict(unit.fields))])

    assert [n for batch in run(push=push, conserves=False) for n in batch] == [n for n in range(40) for _ in range(2)]


def test_an_operator_whose_start_fails_is_named():
    class NoStart(Operator):
        name = "no start"

        def bind(self, context: Any) -> Any:
            raise OSError("no such model")

        def recipe(self) -> dict[str, Any]:
            return {}

    with pytest.raises(PipelineError, match="no start: OSError: no such model"):
        list(pipeline(rows(4), lanes=1).apply(NoStart()).batch(1))


def test_a_work_function_that_returns_something_else_is_named():
    class Dict(Operator):
        name = "returns a dict"

        def bind(self, context: Any) -> Any:
            return lambda record: record.fields

        def recipe(self) -> dict[str, Any]:
            return {}

    with pytest.raises(PipelineError, match=r"returns a dict: TypeError.*row 0"):
        list(pipeline(rows(4), lanes=1).apply(Dict()).batch(1))
