"""Rows in memory."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

from zephon_ft.errors import ConfigError
from zephon_ft.io.dataset import Dataset


@pytest.mark.parametrize(
    ("shard_rows", "counts"),
    [(None, [5]), (2, [2, 2, 1]), (5, [5]), (9, [5]), ([0, 3, 0, 2], [0, 3, 0, 2])],
)
def test_rows_are_cut_into_shards(shard_rows, counts):
    dataset = Dataset.from_rows("d", [{"i": i} for i in range(5)], shard_rows)
    assert [shard.rows for shard in dataset.shards] == counts
    assert [shard.row_groups for shard in dataset.shards] == [(count,) for count in counts]
    found = [row["i"] for i, count in enumerate(counts) for row in dataset.fetch(i, range(count))]
    assert found == list(range(5))


@pytest.mark.parametrize("rows", [[], [{}]])
def test_no_rows_and_rows_without_fields(rows):
    dataset = Dataset.from_rows("d", rows)
    assert dataset.fetch(0, range(len(rows))) == rows
    assert dataset.field_names() == (frozenset() if rows else None)


def test_no_change_of_a_row_reaches_another_fetch():
    given = [{"text": "a", "list": [1, [2]], "dict": {"k": [3]}, "array": np.arange(3)}]
    dataset = Dataset.from_rows("d", given)
    given[0]["list"][1].append(9)
    given[0]["array"][0] = 9
    (row,) = dataset.fetch(0, [0])
    row["text"] = "b"
    row["list"][1].append(8)
    row["dict"]["k"].clear()
    with pytest.raises(ValueError, match="read-only"):
        row["array"][0] = 7
    (again,) = dataset.fetch(0, [0])
    assert again.pop("array").tolist() == [0, 1, 2]
    assert again == {"text": "a", "list": [1, [2]], "dict": {"k": [3]}}


def test_fields_limit_rows_and_are_checked():
    dataset = Dataset.from_rows("d", [{"a": 1}, {"b": 2, "a": 3}])
    assert dataset.fetch(0, [1, 0], frozenset({"b"})) == [{"b": 2}, {}]
    with pytest.raises(ConfigError, match="dataset 'd': no field 'c'; there is: a, b"):
        dataset.check_fields(["a", "c"])


def test_the_fingerprint_changes_with_content_and_type_only():
    def print_of(value):
        return Dataset.from_rows("d", [{"v": value}]).fingerprint()[0]["hash"]

    values = [1, 1.0, "1", b"1", True, None, [1], {"1": 1}, np.array([1]), np.array([1.0]), [[1], []], [[], [1]]]
    assert len({print_of(value) for value in values}) == len(values)
    assert [print_of(value) for value in values] == [print_of(value) for value in pickle.loads(pickle.dumps(values))]
    prints = Dataset.from_rows("d", [{"v": 1}] * 3, 2).fingerprint()
    assert json.loads(json.dumps(prints)) == prints
    assert [(p["name"], p["rows"]) for p in prints] == [("rows-0", 2), ("rows-1", 1)]


def test_wrong_arguments_are_errors():
    for rows, shard_rows, words in [
        ([3], None, "row 0: a row must be a dict, got int"),
        ([{}], 0, "shard_rows must be at least 1"),
        ([{}], [2], "must sum to the 1 rows"),
    ]:
        with pytest.raises(ConfigError, match=words):
            Dataset.from_rows("d", rows, shard_rows)
    with pytest.raises(IndexError, match=r"dataset 'd', shard 0 \(rows-0\), row 1"):
        Dataset.from_rows("d", [{}]).fetch(0, [1])


def test_where_a_row_is_reads_well():
    assert Dataset.from_rows("web", [{}], 1).describe(0, 17) == "dataset 'web', shard 0 (rows-0), row 17"
