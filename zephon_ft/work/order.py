"""The order of one dataset's rows in every lane, computed by arithmetic.

A dataset is cut into blocks. The endless sequence of blocks, pass after pass, each pass permuted by a keyed bijection,
is dealt to the lanes in rounds: round j gives one block to each lane, in keyed order. A lane permutes rows inside a
tumbling window of its own blocks. So a lane's share costs O(1) and it never looks at another lane's data; which rows
it gets depends on the files, the seed and the number of lanes, never on how they are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from zephon_ft.random import key_of, permutation, permute

BLOCKS_PER_LANE = 8  # enough blocks that lanes get shares of nearly equal size
BLOCK_ROWS = 1024  # where rows can be read one by one, a block is a run of at most so many


@dataclass(frozen=True, slots=True)
class Window:
    """The rows of one window of a lane, in the lane's order: int64 arrays of one length."""

    shard: np.ndarray
    row: np.ndarray
    passes: np.ndarray


class DatasetOrder:
    """The order of one dataset in every lane.

    Args:
        name: the dataset's name; part of every key, so two datasets never share an order.
        pieces: for each shard, the row counts of the pieces that are best read whole (row groups).
        random_access: whether single rows are cheap to read; pieces are then cut into runs of `BLOCK_ROWS`.
        lanes: number of lanes.
        seed: seed of the order.
        shuffle: False keeps blocks and rows in file order (lanes still take turns by block).
        window_rows: a window holds as few blocks as reach so many rows on average.
    """

    def __init__(
        self,
        name: str,
        pieces: Sequence[Sequence[int]],
        *,
        random_access: bool,
        lanes: int,
        seed: int,
        shuffle: bool = True,
        window_rows: int = 1,
    ) -> None:
        self.lanes, self.shuffle = lanes, shuffle
        self._keys = {what: key_of(seed, name, what) for what in ("blocks", "deal", "rows")}
        self._shard, self._start, self._count = _cut(pieces, random_access, lanes)
        self.blocks = len(self._count)
        self.rows = int(self._count.sum())
        self._window_blocks = -(-window_rows * self.blocks // self.rows) if self.rows else 1

    def window(self, lane: int, number: int, end: int | None) -> Window:
        """Window `number` of `lane`; `end` cuts the block sequence (passes x blocks), None is endless.

        Rows of an earlier pass come before rows of a later one. An empty window means that the lane is through.
        """
        first = number * self._window_blocks
        sequence = [self._dealt(lane, j) for j in range(first, first + self._window_blocks)]
        if end is not None:
            sequence = [s for s in sequence if s < end]
        if not sequence:
            empty = np.zeros(0, np.int64)
            return Window(empty, empty, empty)
        passes = [s // self.blocks for s in sequence]
        chosen = np.array([self._block(s) for s in sequence])
        counts = self._count[chosen]
        # Row number in its block, for all blocks one behind the other.
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        shard = np.repeat(self._shard[chosen], counts)
        row = np.repeat(self._start[chosen], counts) + within
        pass_of_row = np.repeat(np.array(passes, np.int64), counts)
        if self.shuffle:
            order = permutation(len(row), key_of(self._keys["rows"], lane, number))
            if passes[0] != passes[-1]:
                order = order[np.argsort(pass_of_row[order], kind="stable")]
            shard, row, pass_of_row = shard[order], row[order], pass_of_row[order]
        return Window(shard, row, pass_of_row)

    def start_of_pass(self, lane: int, passes: int) -> tuple[int, int]:
        """Where `lane` stands (window, offset) when the first `passes` passes of the dataset have been dealt."""
        end = passes * self.blocks
        j = end // self.lanes
        if self._dealt(lane, j) < end:
            j += 1
        number = j // self._window_blocks
        return number, len(self.window(lane, number, end).row)

    def _dealt(self, lane: int, j: int) -> int:
        """Place in the block sequence of the `j`-th block of `lane`."""
        turn = permute(lane, self.lanes, key_of(self._keys["deal"], j)) if self.shuffle else lane
        return j * self.lanes + turn

    def _block(self, place: int) -> int:
        """The block at a place of the endless sequence."""
        number, index = divmod(place, self.blocks)
        return permute(index, self.blocks, key_of(self._keys["blocks"], number)) if self.shuffle else index


def _cut(pieces: Sequence[Sequence[int]], random_access: bool, lanes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shard, first row and row count of every block (no block is empty, none crosses a piece)."""
    flat = [(shard, count) for shard, counts in enumerate(pieces) for count in counts if count]
    total = sum(count for _, count in flat)
    wanted = BLOCKS_PER_LANE * lanes
    longest = total  # pieces stay whole where there are enough of them
    if len(flat) < wanted:
        longest = max(1, -(-total // wanted))
    if random_access:
        longest = min(longest, BLOCK_ROWS)
    blocks: list[tuple[int, int, int]] = []  # shard, first row, rows
    next_row = [0] * len(pieces)
    for shard, count in flat:
        blocks += _split(shard, next_row[shard], count, -(-count // longest))
        next_row[shard] += count
    # In a pass every lane gets the same number of blocks: those that would be left over are cut into one for each lane.
    over = len(blocks) % lanes
    if len(blocks) > lanes and over:
        largest = sorted(range(len(blocks)), key=lambda i: (-blocks[i][2], i))[:over]
        if all(blocks[i][2] >= lanes for i in largest):
            cut = set(largest)
            blocks = [part for i, block in enumerate(blocks) for part in _split(*block, lanes if i in cut else 1)]
    shards, starts, counts = zip(*blocks, strict=True) if blocks else ((), (), ())
    return np.array(shards, np.int64), np.array(starts, np.int64), np.array(counts, np.int64)


def _split(shard: int, start: int, count: int, parts: int) -> list[tuple[int, int, int]]:
    """A run of rows in nearly equal parts."""
    edges = [start + count * i // parts for i in range(parts + 1)]
    return [(shard, low, high - low) for low, high in pairwise(edges)]
