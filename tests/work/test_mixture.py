"""Shares hold in every stretch, every row comes exactly once a pass, and a place can be left and found again."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.work.places import lanes_of, source, take
from zephon_ft import ConfigError, Dataset, StaticMixtureWorkSource

PROPERTY = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
SHAPES = st.lists(st.integers(1, 60), min_size=1, max_size=4)


@settings(PROPERTY, max_examples=40)
@given(
    st.lists(st.one_of(st.integers(1, 97), st.floats(0.01, 30)), min_size=2, max_size=6),
    st.integers(0, 3),
    st.integers(1, 5),
)
def test_any_stretch_of_a_lane_holds_the_share_of_each_dataset(weights, lane, lanes):
    work = source([5 + 3 * i for i in range(len(weights))], weights, seed=7)
    places = take(work.lanes(lanes).cursor(lane % lanes), 700)
    total = sum(work.weights)
    for i, weight in enumerate(work.weights):
        share, low, high, count = weight / total, 0.0, 0.0, 0
        for n, place in enumerate(places, 1):
            count += place[0] == i
            # The count of every stretch is a difference of these, so its error is at most high - low.
            low, high = min(low, count - n * share), max(high, count - n * share)
        assert high - low <= 2 + 1e-9


@settings(PROPERTY, max_examples=40)
@given(SHAPES, st.integers(1, 20), st.integers(1, 3), st.integers(0, 2), st.booleans(), st.integers(1, 25))
def test_every_row_comes_exactly_once_a_pass_over_all_lanes(sizes, lanes, epochs, iteration, shuffle, window):
    work = source(sizes, epochs=epochs, seed=iteration, shuffle=shuffle, window_rows=window)
    got = Counter(place for lane in lanes_of(work, lanes, iteration) for place in lane)
    passes = range(iteration * epochs, (iteration + 1) * epochs)
    expected = Counter((i, n // 7, n % 7, p) for i, size in enumerate(sizes) for n in range(size) for p in passes)
    assert got == expected


@settings(PROPERTY, max_examples=30)
@given(
    SHAPES,
    st.integers(1, 9),
    st.sampled_from([None, 1, 2]),
    st.sampled_from(["redistribute", "stop", "repeat"]),
    st.integers(0, 120),
    st.integers(1, 30),
)
def test_leaving_anywhere_and_seeking_back_equals_going_straight_on(sizes, lanes, epochs, exhausted, at, step):
    work = source(sizes, list(range(1, len(sizes) + 1)), epochs=epochs, exhausted=exhausted, window_rows=9)
    lane = at % lanes
    straight = take(work.lanes(lanes).cursor(lane), 240)
    cursor = work.lanes(lanes).cursor(lane)
    before = take(cursor, at, step)
    again = work.lanes(lanes).cursor(lane)
    again.seek(cursor.state())
    assert before + take(again, 240 - len(before), 13) == straight
    assert again.position == len(straight)


def test_the_order_does_not_depend_on_how_many_rows_are_taken_at_once():
    work = source([40, 9, 23], [3, 1, 2], epochs=2, seed=5)
    for lane in range(3):
        assert len({tuple(take(work.lanes(3).cursor(lane), 500, step)) for step in (1, 2, 7, 64, 500)}) == 1


def test_a_lane_is_computed_without_the_others():
    work = source([60, 31], [2, 1], seed=1)
    alone = take(work.lanes(16).cursor(11), 100)
    dealt = work.lanes(16)
    for lane in range(16):
        take(dealt.cursor(lane), 37)
    assert take(dealt.cursor(11), 100) == alone


def test_a_lane_costs_nothing_that_grows_with_the_lanes():
    class Watched(StaticMixtureWorkSource):
        pass

    work = source([5000], seed=1, shard_rows=None)
    dealt = work.lanes(256)
    seen: set[int] = set()
    window = dealt.orders[0].window
    dealt.orders[0].window = lambda lane, number, end: (seen.add(lane), window(lane, number, end))[1]
    take(dealt.cursor(200), 40)
    assert seen == {200}


def test_datasets_of_different_names_and_other_seeds_have_other_orders():
    def order(name: str, seed: int) -> list:
        rows = Dataset.from_rows(name, [{"n": n} for n in range(200)])
        return take(StaticMixtureWorkSource([rows], seed=seed).lanes(1).cursor(0), 200)

    orders = [order("a", 0), order("b", 0), order("a", 1)]
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert order("a", 0) == orders[0]


def test_each_pass_has_an_order_of_its_own_and_shuffles_rows_within_windows():
    places = take(source([300], shard_rows=None, window_rows=100).lanes(1).cursor(0), 900)
    passes = [[row for _, _, row, p in places if p == number] for number in range(3)]
    assert [sorted(rows) for rows in passes] == [list(range(300))] * 3
    assert len({tuple(rows) for rows in passes}) == 3
    assert passes[0] != sorted(passes[0])


@pytest.mark.parametrize("shard_rows", [None, 7, [0, 10, 0, 50, 40, 0]])
def test_without_shuffling_one_lane_reads_the_files_in_order(shard_rows):
    places = take(source([100], shard_rows=shard_rows, shuffle=False).lanes(1).cursor(0), 250)
    order = [(p, s, r) for _, s, r, p in places]
    assert order == sorted(order)
    assert [p for p, _, _ in order] == [0] * 100 + [1] * 100 + [2] * 50


@pytest.mark.parametrize("lanes", [1, 3, 32])
def test_small_datasets_empty_shards_and_one_row_files_work(lanes):
    for sizes, shard_rows in ([1], None), ([3], 1), ([5], [0, 1, 0, 3, 1]), ([2, 1, 4], None):
        work = source(sizes, shard_rows=shard_rows)
        for lane in range(lanes):
            places = take(work.lanes(lanes).cursor(lane), 40)
            assert len(places) == 40
            assert {place[0] for place in places} == set(range(len(sizes)))


def test_redistribute_goes_on_with_the_others_in_their_ratio():
    (lane,) = lanes_of(source([10, 60, 30], [2, 2, 1], epochs=1), 1)
    last = max(n for n, place in enumerate(lane) if place[0] == 0)
    after = [place[0] for place in lane[last + 1 :]][:45]
    assert Counter(place[0] for place in lane) == {0: 10, 1: 60, 2: 30}
    assert Counter(after[:30]) == {1: 20, 2: 10}


def test_stop_ends_a_lane_with_the_first_dataset():
    (lane,) = lanes_of(source([10, 60], [1, 2], epochs=1, exhausted="stop"), 1)
    counts = Counter(place[0] for place in lane)
    assert counts[0] == 10
    assert abs(counts[1] - 20) <= 2


def test_repeat_starts_a_dataset_over_until_all_are_through():
    (lane,) = lanes_of(source([10, 60], [1, 2], epochs=1, exhausted="repeat"), 1)
    small = [place for place in lane if place[0] == 0]
    assert Counter(place[0] for place in lane)[1] == 60
    assert abs(len(small) - 30) <= 2
    assert Counter(place[3] for place in small)[0] == Counter(place[3] for place in small)[1] == 10
    shares = [Counter(place[0] for place in lane[i : i + 30]) for i in range(0, 60, 30)]
    assert all(abs(share[1] - 20) <= 2 for share in shares)


def test_iterating_again_goes_on_with_the_next_passes():
    work = source([20, 7], epochs=2)
    for iteration in range(3):
        passes = {place[3] for lane in lanes_of(work, 4, iteration) for place in lane}
        assert passes == {2 * iteration, 2 * iteration + 1}


ROWS = Dataset.from_rows("web", [{"n": 1}])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"datasets": []}, "at least one"),
        ({"datasets": [ROWS, ROWS]}, "names must differ"),
        ({"mixture": {"web": 1, "wb": 1}}, "no dataset is named.*wb"),
        ({"mixture": {}}, "no weight for.*web"),
        ({"mixture": {"web": 0}}, "weights must be numbers > 0"),
        ({"mixture": {"web": -1}}, "weights must be numbers > 0"),
        ({"mixture": {"web": float("nan")}}, "weights must be numbers > 0"),
        ({"mixture": {"web": float("inf")}}, "weights must be numbers > 0"),
        ({"mixture": {"web": "1"}}, "weights must be numbers > 0"),
        ({"epochs": 0}, "epochs"),
        ({"epochs": 1.5}, "epochs"),
        ({"exhausted": "again"}, "redistribute"),
        ({"window_rows": 0}, "window_rows"),
        ({"datasets": [Dataset.from_rows("void", [])]}, "no rows"),
    ],
)
def test_a_wrong_source_is_refused_with_its_reason(options, words):
    with pytest.raises(ConfigError, match=words):
        StaticMixtureWorkSource(**{"datasets": [ROWS], **options})


def test_weights_too_far_apart_are_refused():
    two = [ROWS, Dataset.from_rows("other", [{"n": 1}])]
    with pytest.raises(ConfigError, match="millionth"):
        StaticMixtureWorkSource(two, {"web": 1e-9, "other": 1})


@pytest.mark.parametrize("exhausted", ["redistribute", "stop", "repeat"])
def test_a_place_behind_the_end_of_a_dataset_is_found_again(exhausted):
    work = source([5, 40, 33, 12], [3, 2, 4, 1], epochs=1, exhausted=exhausted)
    straight = take(work.lanes(2).cursor(1), 300)
    for at in range(0, len(straight) + 1, 3):
        cursor = work.lanes(2).cursor(1)
        take(cursor, at, 4)
        again = work.lanes(2).cursor(1)
        again.seek(cursor.state())
        assert take(again, 300) == straight[at:]
