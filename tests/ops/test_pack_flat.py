"""Guarantees of `pack_flat`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import Interval, media, record, rows_of
from zephon_ft.errors import ConfigError, DataError
from zephon_ft.ops.pack_flat import PackFlat

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=30)


@settings(max_examples=100, deadline=None)
@given(LENGTHS, st.integers(1, 12))
def test_every_source_token_appears_exactly_once_and_only_the_tail_row_is_short(lengths: list[int], row: int) -> None:
    records = [record(i, n) for i, n in enumerate(lengths)]
    rows = rows_of(PackFlat(row), records)
    assert [r.num_tokens for r in rows[:-1]] == [row] * (len(rows) - 1)
    assert 0 < rows[-1].num_tokens <= row
    got = np.concatenate([r.fields["input_ids"] for r in rows])
    assert got.tolist() == np.concatenate([r.fields["input_ids"] for r in records]).tolist()
    assert all(r.lengths.sum() == r.num_tokens and r.lengths.min() > 0 for r in rows)


@settings(max_examples=100, deadline=None)
@given(LENGTHS, st.integers(2, 12), st.booleans())
def test_with_overlap_every_next_token_is_predicted_exactly_once(lengths: list[int], row: int, overlap: bool) -> None:
    records = [record(i, n) for i, n in enumerate(lengths)]
    rows = rows_of(PackFlat(row, shift_labels=overlap), records)
    predicted = sorted(int(t) for r in rows for t in r.fields["labels"] if t != -100)
    wanted = sorted(int(t) for r in records for t in r.fields["input_ids"][1:])
    assert set(predicted) <= set(wanted)
    assert len(predicted) == len(set(predicted))
    if overlap:
        assert predicted == wanted
    assert all(r.num_tokens == row for r in rows[:-1])


def test_the_rest_of_a_cut_document_is_a_document_whose_first_label_is_ignored() -> None:
    rows = rows_of(PackFlat(4), [record(0, 6), record(1, 2)])
    assert [r.fields["input_ids"].tolist() for r in rows] == [[1000, 1001, 1002, 1003], [1004, 1005, 2000, 2001]]
    assert [r.fields["labels"].tolist() for r in rows] == [[-100, 1001, 1002, 1003], [-100, 1005, -100, 2001]]
    assert [r.lengths.tolist() for r in rows] == [[4], [2, 2]]
    assert [r.offsets.tolist() for r in rows] == [[0], [4, 0]]
    assert rows[1].keys == (rows[0].keys[0], (0, 2, 1, 0))


def test_the_overlap_repeats_the_last_token_of_a_cut_document_only() -> None:
    rows = rows_of(PackFlat(4, shift_labels=True), [record(0, 6), record(1, 5)])
    assert [r.fields["input_ids"].tolist() for r in rows] == [
        [1000, 1001, 1002, 1003],
        [1003, 1004, 1005, 2000],
        [2000, 2001, 2002, 2003],
        [2003, 2004],
    ]
    rows = rows_of(PackFlat(4, shift_labels=True), [record(0, 4), record(1, 2)])
    assert rows[1].fields["input_ids"].tolist() == [2000, 2001]


def test_aligned_fields_are_cut_with_the_tokens_and_scalars_repeat_per_piece() -> None:
    rows = rows_of(
        PackFlat(4, pad_values={"weight": 0.0}),
        [record(0, 6, weight=np.arange(6.0), labels=np.arange(6, dtype=np.int32), score=3)],
    )
    assert [r.fields["weight"].tolist() for r in rows] == [[0, 1, 2, 3], [4, 5]]
    assert [r.fields["labels"].tolist() for r in rows] == [[-100, 1, 2, 3], [-100, 5]]
    assert [r.scalars["score"].tolist() for r in rows] == [[3], [3]]


def test_a_document_longer_than_many_rows_closes_them_at_once() -> None:
    accumulator = PackFlat(4).accumulator()
    Interval(accumulator)
    assert [sum(p.stop - p.start for p in group) for group in accumulator.push(record(0, 13))] == [4, 4, 4]


def test_images_are_refused_with_the_operator_that_takes_them() -> None:
    with pytest.raises(DataError, match=r"use pack\(\)"):
        Interval(PackFlat(4).accumulator()).run([record(0, 3, (media(offset=0),))])


def test_a_record_without_tokens_is_dropped_with_its_reason() -> None:
    interval = Interval(PackFlat(4).accumulator())
    assert interval.run([record(0, 0)]) == []
    assert interval.dropped[0][1] == "no tokens"


@pytest.mark.parametrize(
    "options",
    [{"max_length": 0}, {"max_length": 1, "shift_labels": True}, {"max_length": 4, "algorithm": "best_fit"}],
)
def test_wrong_options_are_refused_when_the_operator_is_made(options: dict) -> None:
    with pytest.raises(ConfigError, match=r"max_length|wrap"):
        PackFlat(**options)
