"""Tijdeman's schedule: after n choices each dataset is less than one away from its share."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zephon_ft.work import schedule
from zephon_ft.work.schedule import Schedule, integer_weights


@settings(deadline=None, max_examples=60, derandomize=True)
@given(st.lists(st.integers(1, 300), min_size=2, max_size=6))
def test_every_prefix_is_less_than_one_away_from_its_share(weights):
    n = min(2 * sum(weights), 400)
    chosen = Schedule(weights).choices(0, [0] * len(weights), n)
    total = sum(weights)
    counts = [0] * len(weights)
    for step, choice in enumerate(chosen.tolist(), 1):
        counts[choice] += 1
        assert all(abs(count * total - step * weight) < total for count, weight in zip(counts, weights))


@settings(deadline=None, max_examples=20, derandomize=True)
@given(st.lists(st.integers(1, 50), min_size=2, max_size=4), st.integers(0, 300), st.integers(1, 100))
def test_a_long_period_gives_the_same_choices_as_the_table(weights, start, n):
    table = Schedule(weights)
    counts = [int((table.choices(0, [], start) == i).sum()) for i in range(len(weights))]
    computed = Schedule(weights)
    computed._table = None
    assert computed.choices(start, counts, n).tolist() == table.choices(start, counts, n).tolist()


def test_weights_beyond_the_table_are_computed(monkeypatch):
    weights = [70_001, 1_000, 3]
    made = Schedule(weights)
    assert made._table is None
    assert made.period > schedule._TABLE
    chosen = made.choices(0, [0, 0, 0], 71_004).tolist()
    assert [chosen.count(i) for i in range(3)] == weights


@pytest.mark.parametrize(
    ("weights", "whole"),
    [([1, 1], [1, 1]), ([0.5, 0.25, 0.25], [2, 1, 1]), ([0.1, 0.2], [1, 2]), ([3], [1]), ([1 / 3, 2 / 3], [1, 2])],
)
def test_weights_become_the_smallest_whole_numbers(weights, whole):
    assert integer_weights(weights) == whole


def test_the_schedule_is_the_one_that_it_has_always_been():
    assert Schedule([5, 3, 2]).choices(0, [0, 0, 0], 20).tolist() == GOLDEN


GOLDEN = [0, 1, 0, 2, 0, 1, 0, 2, 1, 0, 0, 1, 0, 2, 0, 1, 0, 2, 1, 0]
