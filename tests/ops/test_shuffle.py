"""Guarantees of `shuffle`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import Interval
from zephon_ft.errors import ConfigError
from zephon_ft.ops.shuffle import Shuffle


def order(count: int, size: int, **context: int) -> list[int]:
    seed = context.pop("operator_seed", None)
    groups = Interval(Shuffle(size, seed).accumulator(), **context).run(range(count))
    return [unit for group in groups for unit in group]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 300), st.integers(1, 200), st.integers(0, 3))
def test_an_interval_comes_out_as_a_permutation_of_what_went_in(count: int, size: int, flush: int) -> None:
    out = order(count, size, flush=flush)
    assert sorted(out) == list(range(count))
    assert out == order(count, size, flush=flush)
    assert all(source < place + max(size, 1) for place, source in enumerate(out))


def test_seed_lane_flush_and_position_each_give_another_order() -> None:
    contexts = [{}, {"seed": 1}, {"lane": 1}, {"flush": 1}, {"position": 2}, {"operator_seed": 5}]
    orders = {tuple(order(100, 50, **context)) for context in contexts}
    assert len(orders) == len(contexts)
    assert order(100, 50, operator_seed=5) == order(100, 50, operator_seed=5, seed=1)


def test_a_buffer_of_one_leaves_the_order_as_it_is() -> None:
    assert order(50, 1) == list(range(50))


@pytest.mark.parametrize(("size", "first"), [(1024, 16), (4, 4)])
def test_units_leave_from_the_16th_on_and_the_buffer_grows_to_its_size(size: int, first: int) -> None:
    accumulator = Shuffle(size).accumulator()
    Interval(accumulator)
    held, most, leaving = 0, 0, []
    for unit in range(4 * size + 100):
        out = sum(len(group) for group in accumulator.push(unit))
        held += 1
        most = max(most, held)
        held -= out
        leaving.append(out)
    assert leaving.index(1) == first - 1
    assert most == size
    assert leaving[-1] == 1


def test_units_move_far_and_evenly() -> None:
    out = np.array(order(20_000, 1000))
    distance = np.abs(np.arange(20_000) - out)
    assert 400 < distance.mean() < 1500
    assert abs(np.corrcoef(out[:-1] - np.arange(19_999), out[1:] - np.arange(1, 20_000))[0, 1]) < 0.05


def test_it_has_no_work_function_and_its_recipe_names_what_decides() -> None:
    assert not Shuffle(8).has_work()
    assert Shuffle(8).recipe() == {"buffer_size": 8, "seed": None}


def test_a_buffer_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="buffer_size"):
        Shuffle(0)
