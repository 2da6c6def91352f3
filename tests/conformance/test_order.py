"""Every runner: the same batches in the same order, whatever is slow, and what users' functions may do to a row."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.functions import (
    Counting,
    act,
    act_and_double,
    act_and_repeat,
    add_hundred,
    identity,
    numbers,
    odd,
    pipeline,
    rows,
    salt,
    scribble,
    scribble_on_array,
)
from tests.guarantees.random_pipelines import Spec, build, take
from zephon_ft import PipelineError

TUNINGS = [
    {},
    {"workers": 1},
    {"workers": 5},
    {"task_rows": 1},
    {"task_rows": 7},
    {"prefetch": 1},
    {"memory_budget": 1},
]
SPECS = [
    Spec("rows", (30, 9), (2, 1), 3, 7, 2, ("flat_map", "random_map"), "", 5, ("filter", "capped_map"), 3, 1),
    Spec("text", (30,), (1,), 2, 9, 1, ("random_filter",), "flat", 6, (), 2, 4),
    Spec("images", (20, 11), (3, 2), 4, 8, 1, ("map",), "best_fit", 4, (), 2, 2),
]


@pytest.fixture(scope="module")
def expected() -> dict[Spec, object]:
    return {spec: take(build(spec, runner="inline", task_rows=1), 4) for spec in SPECS}


@pytest.mark.parametrize("tuning", TUNINGS, ids=str)
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_digests_equal_the_reference_under_every_tuning(runner, spec, tuning, expected):
    assert take(build(spec, runner=runner, **tuning), 4) == expected[spec]


def test_one_lane_without_shuffling_delivers_the_file_in_order(runner):
    pipe = pipeline(rows(64), lanes=1, epochs=1).map(identity).batch(4).options(runner=runner)
    assert numbers(pipe) == [list(range(i, i + 4)) for i in range(0, 64, 4)]


def test_late_results_are_put_back_in_order(runner):
    slow = dict.fromkeys(range(0, 60, 7), 0.01)
    pipe = pipeline(rows(60, sleep=slow), lanes=1, epochs=1).map(act).map(identity, parallelism=2).batch(5)
    assert numbers(pipe.options(runner=runner, task_rows=1)) == [list(range(i, i + 5)) for i in range(0, 60, 5)]


def test_batches_come_round_by_round_over_the_lanes(runner):
    pipe = pipeline(rows(80), lanes=4).batch(2).options(runner=runner)
    with iter(pipe) as stream:
        places = [(batch.lane, batch.index, batch.step) for _, batch in zip(range(12), stream)]
    assert places == [(lane, round_, round_) for round_ in range(3) for lane in range(4)]


def test_random_draws_belong_to_the_record(runner):
    pipe = pipeline(rows(40), lanes=1, epochs=1, seed=3).map(salt).shuffle(9).batch(40)
    batch = next(iter(pipe.options(runner=runner, task_rows=3)))
    by_row = dict(zip(batch.columns["n"].tolist(), batch.columns["salt"].tolist()))
    alone = next(iter(pipeline(rows(40), lanes=1, epochs=1, seed=3).map(salt).batch(40).options(runner="inline")))
    assert by_row == dict(zip(alone.columns["n"].tolist(), alone.columns["salt"].tolist()))
    assert len(set(by_row.values())) == 40


def test_filters_and_fan_out_keep_the_order(runner):
    pipe = pipeline(rows(40), lanes=1, epochs=1).filter(odd).flat_map(act_and_double).batch(8)
    got = [n for batch in numbers(pipe.options(runner=runner, task_rows=3)) for n in batch]
    assert got == [n for n in range(1, 40, 2) for _ in range(2)]


def test_state_of_a_user_accumulator_ends_with_its_interval(runner):
    pipe = pipeline(rows(64), lanes=1, epochs=1, flush_every=10).apply(Counting()).batch(1)
    counts = [int(batch.columns["count"][0]) for batch in pipe.options(runner=runner, task_rows=4)]
    assert counts == [1 + n % 10 for n in range(64)]


def test_a_finite_stream_ends_and_the_next_iteration_is_the_next_pass(runner):
    pipe = pipeline(rows(12), lanes=2, epochs=1).batch(3).options(runner=runner)
    passes = [[batch.records()[0][0].repetition for batch in pipe] for _ in range(3)]
    assert passes == [[0] * 4, [1] * 4, [2] * 4]


def test_a_user_function_cannot_change_the_dataset(runner):
    data = [{"n": i, "tags": ["a"], "nested": {"deep": ["b"]}} for i in range(8)]
    pipe = pipeline(data, lanes=1, epochs=3).map(scribble).batch(8).options(runner=runner)
    for batch in pipe:
        assert batch.columns["n"].tolist() == list(range(1000, 1008))
        assert set(batch.columns["tags"]) == {"a mine"}
        assert set(batch.columns["deep"]) == {"b mine"}
    assert data[0] == {"n": 0, "tags": ["a"], "nested": {"deep": ["b"]}}


def test_writing_into_an_array_of_the_dataset_is_a_clear_error(runner):
    data = [{"n": i, "array": np.zeros(3)} for i in range(4)]
    pipe = pipeline(data, lanes=1, epochs=2).map(scribble_on_array).batch(2).options(runner=runner)
    with pytest.raises(PipelineError, match=r"map\(scribble_on_array\).*read-only.*row 0, pass 0"):
        list(pipe)
    assert data[0]["array"].tolist() == [0, 0, 0]


def test_children_that_are_one_and_the_same_dict_become_rows_of_their_own(runner):
    pipe = pipeline(rows(8), lanes=1, epochs=1).flat_map(act_and_repeat).shuffle(4).map(add_hundred).batch(4)
    got = sorted(n for batch in numbers(pipe.options(runner=runner, task_rows=1)) for n in batch)
    assert got == sorted([100 + n for n in range(8)] * 2)
