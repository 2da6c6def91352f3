"""Guarantees of `batch`: where it cuts, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import record, rows_of
from zephon_ft.errors import ConfigError, DataError
from zephon_ft.ops.batch import BatchOp
from zephon_ft.ops.pack import Pack
from zephon_ft.ops.pack_flat import PackFlat
from zephon_ft.record import Record


def cut(operator: BatchOp, units: list[Any]) -> tuple[list[list[Any]], int]:
    """The batches of a stream, and how many units are left over."""
    cutter, batches = operator.new_cutter(), []
    for unit in units:
        if not cutter.fits(unit):
            batches.append(cutter.take())
        cutter.add(unit)
        if cutter.complete:
            batches.append(cutter.take())
    return batches, len(cutter)


def test_a_number_of_units_is_cut_exactly() -> None:
    batches, rest = cut(BatchOp(3), [record(i, 2) for i in range(8)])
    assert [[u.position for u in batch] for batch in batches] == [[0, 1, 2], [3, 4, 5]]
    assert rest == 2


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 20), max_size=50))
def test_a_token_batch_takes_as_many_records_as_fit_and_loses_none(lengths: list[int]) -> None:
    operator = BatchOp(tokens=20)
    batches, rest = cut(operator, [record(i, n) for i, n in enumerate(lengths)])
    assert [u.position for batch in batches for u in batch] == list(range(len(lengths) - rest))
    sums = [sum(u.num_tokens for u in batch) for batch in batches]
    firsts = [batch[0].num_tokens for batch in batches[1:]] + lengths[len(lengths) - rest :][:1]
    assert all(total <= 20 for total in sums)
    assert sum(lengths[len(lengths) - rest :]) < 20
    assert all(total + more > 20 for total, more in zip(sums, firsts, strict=False))


def test_tokens_of_packed_rows_are_a_number_of_rows() -> None:
    operator = BatchOp(tokens=32).after(Pack(8))
    rows = rows_of(Pack(8), [record(i, 6) for i in range(9)])
    batches, rest = cut(operator, rows)
    assert [len(batch) for batch in batches] == [4, 4]
    assert rest == 1


def test_tokens_that_are_no_multiple_of_the_row_length_are_refused_with_what_works() -> None:
    with pytest.raises(ConfigError, match="use 16 or 24"):
        BatchOp(tokens=20).after(Pack(8))
    with pytest.raises(ConfigError, match=r"use 8$"):
        BatchOp(tokens=5).after(PackFlat(8))


def test_a_record_over_the_token_limit_by_itself_is_an_error() -> None:
    with pytest.raises(DataError, match="21 tokens does not fit tokens=20"):
        cut(BatchOp(tokens=20), [record(0, 3), record(1, 21)])


def test_counting_tokens_of_records_without_any_is_an_error() -> None:
    with pytest.raises(DataError, match=r"tokenize\(\)"):
        cut(BatchOp(tokens=20), [Record((0, 0, 0, 0), 0, {"text": "a"})])
    with pytest.raises(DataError, match="without tokens"):
        cut(BatchOp(2), [record(0, 0)])


@pytest.mark.parametrize("packer", [None, PackFlat(8)])
def test_ensure_image_without_pack_is_refused(packer: PackFlat | None) -> None:
    with pytest.raises(ConfigError, match=r"pack\(\)"):
        operator = BatchOp(2, ensure_image=True)
        (operator if packer is None else operator.after(packer)).new_cutter()


@pytest.mark.parametrize("options", [{}, {"size": 2, "tokens": 8}, {"size": 0}, {"tokens": 0}])
def test_wrong_options_are_refused_when_the_operator_is_made(options: dict) -> None:
    with pytest.raises(ConfigError, match="batch"):
        BatchOp(**options)


def test_padding_values_come_from_pack() -> None:
    operator = BatchOp(2).after(Pack(8, pad_token_id=5, pad_values={"weight": 0.0}, row_multiple=3))
    assert (operator.pad_token_id, operator.pad_values, operator.row_length) == (5, {"weight": 0.0}, 9)
