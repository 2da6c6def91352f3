"""Closing, dropping and collecting an iterator never blocks, never leaks, and never touches another pipeline."""

from __future__ import annotations

import gc
import os
import threading
import time
import warnings

import pytest

from tests.conformance.functions import act, identity, numbers, rows
from tests.engine.pipes import pipeline
from zephon_ft import StuckWorkerWarning
from zephon_ft.runners.thread import the_pool


def chain(n: int = 100, lanes: int = 2, **special):
    return pipeline(rows(n, **special), lanes=lanes, flush_every=10).map(act).shuffle(5).map(identity).batch(2)


def wait_for(condition, seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return bool(condition())


def workers() -> int:
    return sum(thread.name.startswith("zephon_ft") for thread in threading.enumerate())


def open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0


def test_threads_and_files_are_constant_over_a_hundred_iterators_dropped_half_way():
    def drop(times: int) -> None:
        for i in range(times):
            stream = iter(chain().options(workers=3))
            for _ in range(i % 4):
                next(stream)
            del stream

    drop(3)
    assert wait_for(lambda: workers() == 0)
    before = threading.active_count(), open_files()
    drop(100)
    assert wait_for(lambda: workers() == 0)
    assert (threading.active_count(), open_files()) == before


def test_a_dropped_iterator_stops_its_workers():
    stream = iter(chain(sleep=dict.fromkeys(range(100), 0.01)).options(workers=4))
    next(stream)
    assert workers() == 4
    del stream
    assert wait_for(lambda: workers() == 0)


def test_dropping_does_not_wait_for_a_function_that_runs():
    stream = iter(chain(sleep=dict.fromkeys(range(100), 1.0)).options(workers=1))
    time.sleep(0.1)
    start = time.monotonic()
    del stream
    assert time.monotonic() - start < 1
    assert wait_for(lambda: workers() == 0)


def test_an_iterator_that_the_collector_finds_inside_a_lock_of_the_pool_is_stopped_all_the_same():
    # The collector may run at any point of a worker: also where it holds what stopping needs.
    class Box:
        pass

    box = Box()
    box.me, box.stream = box, iter(chain().options(workers=2))
    next(box.stream)
    crew = the_pool()._crews[0]
    done = threading.Event()

    def collect() -> None:
        nonlocal box
        with crew.condition:
            box = None
            gc.collect()
        done.set()

    threading.Thread(target=collect, daemon=True).start()
    assert done.wait(5)
    assert wait_for(lambda: not crew.engines)


def test_iterators_in_cycles_are_collected_while_another_pipeline_runs():
    class Box:
        pass

    other = iter(chain(lanes=4).options(workers=4, task_rows=1))
    before = gc.get_threshold()
    gc.set_threshold(5, 2, 2)
    try:
        until, rounds = time.monotonic() + 1.0, 0
        while time.monotonic() < until and rounds < 50:
            box = Box()
            box.me, box.stream = box, iter(chain().options(workers=2))
            next(box.stream)
            del box
            numbers(other, 5)
            rounds += 1
    finally:
        gc.set_threshold(*before)
    other.close()
    gc.collect()
    assert wait_for(lambda: workers() == 0)


def test_a_function_that_does_not_return_is_named_and_leaves_the_pool_usable():
    release = threading.Event()

    def stuck(row: dict) -> dict:
        if row["n"] == 5:
            release.wait()
        return row

    stream = iter(pipeline(rows(40), lanes=1).map(stuck).batch(2).options(workers=2, close_timeout=0.2, task_rows=1))
    next(stream)
    time.sleep(0.1)
    start = time.monotonic()
    with pytest.warns(StuckWorkerWarning, match=r"map\(stuck\) on dataset 'd', shard 0 \(rows-0\), row 5, pass 0"):
        stream.close()
    assert time.monotonic() - start < 5
    assert len(numbers(iter(chain().options(workers=2)), 20)) == 20
    release.set()
    assert wait_for(lambda: workers() == 0)


@pytest.mark.parametrize("where", ["push", "finish", "work"])
def test_an_operator_of_the_users_that_does_not_return_is_named(where):
    from zephon_ft import Accumulator, Operator

    release = threading.Event()

    class Held(Accumulator):
        def push(self, unit):
            if where == "push":
                release.wait()
            return ([unit],)

        def finish(self):
            if where == "finish":
                release.wait()
            return ()

    class Stuck(Operator):
        name, stateful = "stuck", True

        def accumulator(self):
            return Held()

        def bind(self, context):
            def work(group):
                if where == "work":
                    release.wait()
                return group

            return work

    stream = iter(pipeline(rows(40), lanes=1, flush_every=8).apply(Stuck()).batch(2).options(close_timeout=0.2))
    time.sleep(0.2)
    with pytest.warns(StuckWorkerWarning, match="stuck on"):
        stream.close()
    release.set()
    assert wait_for(lambda: workers() == 0)


def test_reading_that_does_not_return_is_named():
    release = threading.Event()
    pipe = pipeline(rows(40), lanes=1).map(act).batch(2).options(close_timeout=0.2)
    dataset = pipe._source.datasets[0]
    fetch = dataset.fetch
    dataset.fetch = lambda *args: release.wait() and fetch(*args)
    stream = iter(pipe)
    time.sleep(0.2)
    with pytest.warns(StuckWorkerWarning, match="read on dataset 'd', shard 0"):
        stream.close()
    release.set()
    assert wait_for(lambda: workers() == 0)


def test_closing_does_not_work_off_the_rest_of_a_task():
    stream = iter(chain(sleep=dict.fromkeys(range(100), 0.1)).options(workers=1, task_rows=60))
    time.sleep(0.05)
    start = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream.close()
    assert time.monotonic() - start < 3
