"""The data never depends on how it is made: threads, task size, prefetch, memory budget."""

from __future__ import annotations

import sys
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.guarantees.random_pipelines import Spec, build, specs, take
from zephon_ft import Dataset, Pipeline, PipelineError, StaticMixtureWorkSource, ZephonError

PROPERTY = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def outcome(spec: Spec, steps: int, **options: object) -> object:
    """The batches, or the error, that a pipeline yields."""
    try:
        return take(build(spec, **options), steps)
    except ZephonError as error:
        return str(error)


@settings(PROPERTY, max_examples=60)
@given(specs(), st.sampled_from([1, 2, 3, 8, 32]), st.sampled_from([None, 1, 3, 50]), st.integers(1, 9), st.booleans())
def test_any_tuning_gives_the_same_batches(spec, workers, task_rows, prefetch, tiny_budget):
    options = {"workers": workers, "task_rows": task_rows, "prefetch": prefetch}
    if tiny_budget:
        options["memory_budget"] = 1
    assert outcome(spec, 3, runner="thread", **options) == outcome(spec, 3, runner="inline")


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 32])
def test_threads_equal_inline_on_packed_images(workers):
    spec = Spec("images", (50, 23), (3, 1), 4, 16, 1, ("flat_map", "random_filter"), "best_fit", 24, (), 2, 1)
    assert take(build(spec, workers=workers), 12) == take(build(spec, runner="inline"), 12)


PROCESSES = [
    Spec("rows", (30, 9), (2, 1), 3, 7, 2, ("flat_map", "random_map"), "", 5, ("filter", "capped_map"), 3, 1),
    Spec("text", (40,), (1,), 2, 20, 1, ("random_filter",), "flat", 8, (), 2, 0),
    Spec("images", (50, 23), (3, 1), 4, 16, 1, ("flat_map", "random_filter"), "best_fit", 24, (), 2, 1),
]


@pytest.mark.parametrize("spec", PROCESSES, ids=lambda spec: spec.kind)
def test_processes_equal_inline(spec):
    assert take(build(spec, runner="process", workers=3), 8) == take(build(spec, runner="inline"), 8)


def test_one_byte_of_memory_neither_hangs_nor_changes_the_stream():
    spec = Spec("images", (64, 40), (2, 1), 32, 64, 1, ("map",), "best_fit", 1024, (), 2, 3)
    assert take(build(spec, memory_budget=1, workers=4), 3) == take(build(spec, runner="inline"), 3)


def test_slow_and_late_records_do_not_change_the_stream():
    def dawdle(row: dict) -> dict:
        time.sleep(0.02 if row["n"] % 13 == 0 else 0)
        return row

    def with_delay(runner: str):
        rows = [{"n": n} for n in range(60)]
        source = StaticMixtureWorkSource([Dataset.from_rows("d", rows)], seed=2)
        return Pipeline(source, 4, flush_every=10).map(dawdle).shuffle(8).batch(3).options(runner=runner, workers=8)

    assert take(with_delay("thread"), 8) == take(with_delay("inline"), 8)


@pytest.mark.skipif(getattr(sys, "_is_gil_enabled", lambda: True)(), reason="races need threads that run at once")
def test_thirty_two_threads_with_a_tiny_switch_interval():
    spec = Spec("images", (60, 31), (2, 1), 8, 20, 2, ("flat_map", "capped_map", "filter"), "best_fit", 16, (), 2, 5)
    expected = take(build(spec, runner="inline"), 6)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for task_rows in (1, None, 2):
            assert take(build(spec, workers=32, task_rows=task_rows), 6) == expected
    finally:
        sys.setswitchinterval(before)


def test_two_pipelines_share_the_pool_and_stay_what_they_are():
    one = Spec("text", (40,), (1,), 2, 20, 1, ("random_map",), "best_fit", 8, (), 2, 0)
    two = Spec("rows", (30, 8), (2, 1), 3, 7, 1, ("flat_map",), "", 5, ("filter",), 3, 1)
    expected = [take(build(spec, runner="inline"), 10) for spec in (one, two)]
    found: dict[int, object] = {}

    def run(i: int, spec: Spec) -> None:
        found[i] = take(build(spec, workers=3), 10)

    threads = [threading.Thread(target=run, args=(i, spec)) for i, spec in enumerate((one, two))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[0], found[1]] == expected


@pytest.mark.parametrize("workers", [1, 8])
def test_the_error_comes_at_the_same_batch_in_every_run(workers):
    def explode(row: dict) -> dict:
        if row["n"] == 77:
            raise ValueError("boom")
        return row

    def run(**options: object) -> tuple[int, str]:
        source = StaticMixtureWorkSource([Dataset.from_rows("d", [{"n": n} for n in range(120)])], seed=2)
        pipe = Pipeline(source, 3, flush_every=9).map(explode).shuffle(6).batch(2).options(**options)
        batches = 0
        with pytest.raises(PipelineError) as caught:
            for _ in pipe:
                batches += 1
        return batches, str(caught.value)

    expected = run(runner="inline", task_rows=1)
    assert expected[0] > 0
    assert "map(explode): ValueError: boom (dataset 'd', shard 0 (" in expected[1]
    assert "row 77, pass 0" in expected[1]
    for task_rows in (1, 5, None):
        assert run(workers=workers, task_rows=task_rows) == expected
