"""Every runner: an error reaches the consumer once, at one place, with what, where and why; nothing hangs."""

from __future__ import annotations

import traceback

import numpy as np
import pytest

from tests.conformance.functions import (
    Counting,
    act,
    act_and_double,
    act_and_keep,
    act_if_kept,
    identity,
    numbers,
    pipeline,
    rows,
)
from zephon_ft import ClosedError, PipelineError

BAD = {"raise": {37: "ValueError"}}
CHAINS = {
    "map(act)": lambda p: p.map(act),
    "filter(act_and_keep)": lambda p: p.filter(act_and_keep),
    "flat_map(act_and_double)": lambda p: p.flat_map(act_and_double),
}


def failure(pipe, runner: str, **options: object) -> tuple[int, PipelineError]:
    """Batches delivered before the error, and the error."""
    count = 0
    with pytest.raises(PipelineError) as caught:
        for _ in pipe.options(runner=runner, **options):
            count += 1
    return count, caught.value


@pytest.mark.parametrize("name", CHAINS)
def test_a_function_that_raises_is_named_with_its_record_and_traceback(runner, name):
    pipe = CHAINS[name](pipeline(rows(60, **BAD), lanes=1, epochs=1)).batch(2)
    _, error = failure(pipe, runner)
    assert error.operator == name
    assert error.record == "dataset 'd', shard 0 (rows-0), row 37, pass 0"
    assert name in str(error)
    assert error.record in str(error)
    assert isinstance(error.__cause__, ValueError)
    assert "in act" in "".join(traceback.format_exception(error))


@pytest.mark.parametrize("place", ["push", "work"])
def test_an_operator_of_the_users_that_raises_is_named_with_its_record(runner, place):
    pipe = pipeline(rows(60), lanes=1, epochs=1, flush_every=20).apply(Counting(place)).batch(2)
    _, error = failure(pipe, runner)
    assert error.operator == "counting"
    assert "row 37" in error.record
    assert isinstance(error.__cause__, ValueError)


SHAPES = {
    "stateless": lambda p: p.map(act).batch(2),
    "hand-over": lambda p: p.map(act).map(identity, parallelism=1).batch(2),
    "shuffled": lambda p: p.map(act).shuffle(5).batch(2),
    "work behind a shuffle": lambda p: p.map(act).shuffle(5).map(identity).batch(2),
    "two shuffles": lambda p: p.map(act).shuffle(4).map(identity).shuffle(3).map(identity).batch(2),
    "fails behind a shuffle": lambda p: p.shuffle(5).map(act).batch(2),
    "fails in an accumulator": lambda p: p.shuffle(5).map(identity).apply(Counting("push")).map(identity).batch(2),
    "fails in group work": lambda p: p.shuffle(5).apply(Counting("work")).map(identity).batch(2),
}


@pytest.mark.parametrize("flush_every", [2, 9, 1000])
@pytest.mark.parametrize("shape", SHAPES)
def test_everything_before_the_failure_is_delivered_whatever_the_task_size(runner, shape, flush_every):
    def run(runner: str, **options: object) -> tuple[int, str]:
        pipe = SHAPES[shape](pipeline(rows(60, **BAD), lanes=2, flush_every=flush_every))
        count, error = failure(pipe, runner, **options)
        return count, str(error)

    expected = run("inline", task_rows=1)
    for task_rows in (1, 4, 60):
        assert run(runner, task_rows=task_rows, workers=4) == expected


def test_a_flush_behind_the_failing_row_does_not_happen_in_any_run(runner):
    # One row is kept, so the interval would end by source rows (32), behind the bad row: nothing may come out, though a
    # large task reaches as far.
    def run(runner: str, task_rows: int) -> int:
        data = rows(64, keep={3: True}, **{"raise": {25: "ValueError"}})
        pipe = pipeline(data, lanes=1, flush_every=2).filter(act_if_kept).shuffle(30).batch(1)
        return failure(pipe, runner, task_rows=task_rows)[0]

    assert [run(runner, n) for n in (1, 5, 64)] == [0, 0, 0]


def test_a_failure_ends_the_iterator_and_says_so_afterwards(runner):
    stream = iter(pipeline(rows(40, **{"raise": {0: "ValueError"}}), lanes=1).map(act).batch(2).options(runner=runner))
    with pytest.raises(PipelineError):
        next(stream)
    assert stream.closed
    with pytest.raises(ClosedError, match="row 0"):
        next(stream)


@pytest.mark.parametrize("kind", ["OSError", "TimeoutError", "MemoryError"])
def test_failures_of_storage_and_memory_are_never_skipped(runner, kind):
    pipe = pipeline(rows(40, **{"raise": {11: kind}}), lanes=1, epochs=1, on_error="skip").map(act).batch(2)
    _, error = failure(pipe, runner)
    assert type(error.__cause__).__name__ == kind
    assert "row 11" in error.record


@pytest.mark.parametrize("kind", ["ValueError", "DataError", "StopIteration"])
def test_bad_records_are_skipped_counted_and_named(runner, kind):
    data = rows(40, **{"raise": {11: kind, 23: kind}})
    stream = iter(pipeline(data, lanes=1, epochs=1, on_error="skip").map(act).batch(2).options(runner=runner))
    got = [n for batch in numbers(stream) for n in batch]
    assert got == [n for n in range(40) if n not in (11, 23)]
    stats = stream.stats()
    assert stats["counts"]["map(act): skipped"] == 2
    named = sorted((where, operator) for where, operator, _ in stats["skipped"])
    assert named == [(f"dataset 'd', shard 0 (rows-0), row {n}, pass 0", "map(act)") for n in (11, 23)]


def test_stop_iteration_in_a_user_function_is_an_error_not_the_end(runner):
    pipe = pipeline(rows(40, **{"raise": {11: "StopIteration"}}), lanes=1, epochs=1).map(act).batch(2)
    count, error = failure(pipe, runner)
    assert count == 5
    assert isinstance(error.__cause__, StopIteration)


def test_a_batch_that_cannot_be_laid_out_is_named(runner):
    data = [{"n": 0}, {"n": 1, "input_ids": np.arange(3, dtype=np.int32)}]
    _, error = failure(pipeline(data, lanes=1, epochs=1).batch(2), runner)
    assert error.operator == "batch"
    assert "row 0" in error.record


def test_a_record_that_fits_no_batch_is_named_behind_all_batches_before_it(runner):
    data = [{"n": n, "input_ids": np.arange(90 if n == 7 else 4, dtype=np.int32)} for n in range(12)]
    count, error = failure(pipeline(data, lanes=1, epochs=1).batch(tokens=8), runner)
    assert (count, error.operator) == (4, "batch")  # rows 0 to 6
    assert "row 7" in error.record


def test_the_other_pipelines_go_on_after_a_failure(runner):
    bad = pipeline(rows(20, **{"raise": {3: "ValueError"}}), lanes=1).map(act).batch(2)
    good = iter(pipeline(rows(40), lanes=2).map(identity).batch(2).options(runner=runner))
    first = numbers(good, 3)
    failure(bad, runner)
    assert len(first + numbers(good, 20)) == 23
    good.close()
