"""How a dataset is cut into blocks and dealt to lanes: recipe, so it is pinned down value by value."""

from __future__ import annotations

from collections import Counter

import pytest

from zephon_ft.work.order import BLOCK_ROWS, BLOCKS_PER_LANE, DatasetOrder


def order(pieces, lanes=4, random_access=False, **options) -> DatasetOrder:
    return DatasetOrder("d", pieces, random_access=random_access, lanes=lanes, seed=0, **options)


def blocks(made: DatasetOrder) -> list[tuple[int, int, int]]:
    return list(zip(made._shard.tolist(), made._start.tolist(), made._count.tolist()))


def test_row_groups_stay_whole_where_there_are_eight_for_each_lane():
    pieces = [[100] * 16, [50, 70] * 8]
    assert blocks(order(pieces)) == [
        *((0, 100 * i, 100) for i in range(16)),
        *((1, 120 * (i // 2) + 50 * (i % 2), (50, 70)[i % 2]) for i in range(16)),
    ]


def test_too_few_row_groups_are_cut_evenly_and_never_across_a_border():
    made = order([[100] * 16, [50] * 15])
    assert made.blocks >= BLOCKS_PER_LANE * made.lanes
    assert made.rows == 16 * 100 + 15 * 50
    assert max(count for _, _, count in blocks(made)) <= -(-made.rows // (BLOCKS_PER_LANE * made.lanes))
    for shard, start, count in blocks(made):
        size = (100, 50)[shard]
        assert start // size == (start + count - 1) // size


def test_where_rows_can_be_read_one_by_one_blocks_are_runs_of_a_thousand():
    made = order([[100_000], [1]], random_access=True)
    counts = [count for _, _, count in blocks(made)]
    assert max(counts) <= BLOCK_ROWS
    assert sum(counts) == 100_001
    assert blocks(made)[-1] == (1, 0, 1)


def test_empty_pieces_make_no_block():
    made = order([[], [0], [3, 0, 2]], lanes=1)
    assert sum(count for _, _, count in blocks(made)) == 5
    assert min(count for _, _, count in blocks(made)) == 1
    assert {shard for shard, _, _ in blocks(made)} == {2}


@pytest.mark.parametrize(("rows", "lanes"), [(1, 8), (7, 8), (64, 8), (1000, 3), (5, 1)])
def test_each_round_deals_one_block_to_each_lane(rows, lanes):
    made = order([[rows]], lanes=lanes)
    for j in range(5):
        assert sorted(made._dealt(lane, j) for lane in range(lanes)) == list(range(j * lanes, (j + 1) * lanes))
    assert sorted(made._block(i) for i in range(made.blocks)) == list(range(made.blocks))


def test_lanes_get_shares_of_nearly_equal_size():
    made = order([[1000] * 40], lanes=8)
    rows = [sum(len(made.window(lane, k, made.blocks).row) for k in range(made.blocks)) for lane in range(8)]
    assert sum(rows) == 40_000
    assert max(rows) - min(rows) <= 1000


def test_a_window_shuffles_its_own_blocks_and_no_others():
    made = order([[64]], lanes=2, window_rows=12)
    window = made.window(0, 1, None)
    own = {made._block(made._dealt(0, j)) for j in range(made._window_blocks, 2 * made._window_blocks)}
    expected = Counter(row for s, start, count in (blocks(made)[b] for b in own) for row in range(start, start + count))
    assert Counter(window.row.tolist()) == expected
    assert len(window.row) >= 12


def test_rows_of_an_earlier_pass_come_first():
    made = order([[10]], lanes=1, window_rows=100)
    window = made.window(0, 0, None)
    assert window.passes.tolist() == sorted(window.passes.tolist())
    assert window.passes[-1] > 0


def test_the_order_is_the_one_that_it_has_always_been():
    window = order([[20], [9]], lanes=2, window_rows=6).window(1, 0, None)
    assert (window.shard.tolist(), window.row.tolist()) == GOLDEN


GOLDEN = ([0, 0, 1, 1, 0, 0], [0, 15, 1, 2, 14, 1])
