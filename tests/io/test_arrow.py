"""Any rows of any column are the values that Arrow itself gives, in every nesting, with nulls and offsets."""

import numpy as np
import pyarrow as pa
import pytest

from zephon_ft.io.arrow import rows_of, values_of

COLUMNS = {
    "bytes": pa.array([b"a", None, b"", b"xyz" * 3, b"q"]),
    "large bytes": pa.array([b"a", None, b"", b"xyz", b"q"], pa.large_binary()),
    "no bytes": pa.array([None] * 5, pa.binary()),
    "empty bytes": pa.array([b""] * 5),
    "text": pa.array(["a", None, "", "xyz", "q"]),
    "words": pa.array(["a", "b", "a", None, "b"]).dictionary_encode(),
    "truth": pa.array([True, None, False, True, True]),
    "nothing": pa.array([None] * 5),
    "lists": pa.array([[1, 2], None, [], [None, 3], [4]]),
    "empty lists": pa.array([[]] * 5, pa.list_(pa.binary())),
    "large lists": pa.array([[b"a"], None, [], [b"b", None], [b"c"]], pa.large_list(pa.large_binary())),
    "images": pa.array(
        [[{"bytes": b"x", "path": None}], None, [], [{"bytes": None, "path": "z"}, None], [{"bytes": b"1", "path": ""}]]
    ),
    "structs": pa.array(
        [{"a": 1, "l": [b"x"]}, None, {"a": None, "l": None}, {"a": 3, "l": []}, {"a": 4, "l": [None]}]
    ),
    "nested": pa.array([{"a": {"b": [[1], [2, 3]]}}] * 5),
    "empty structs": pa.array([{}] * 5),
}
ROWS = ([0, 1, 2, 3, 4], [4, 0, 3], [2], [1, 2], [], [1, 1, 0])


@pytest.mark.parametrize("name", COLUMNS)
def test_values_are_those_of_arrow(name):
    column = COLUMNS[name]
    parts = (column, pa.concat_arrays([column] * 3).slice(3, 9), pa.concat_arrays([column] * 2).slice(5, 5))
    for array in parts:
        for rows in ROWS:
            values, nbytes = values_of(array, np.array(rows, np.int64))
            assert values == array.take(pa.array(rows, pa.int64())).to_pylist(), rows
            assert nbytes >= 0


def test_what_lies_behind_a_null_is_not_seen():
    hidden = pa.ListArray.from_arrays(pa.array([0, 2, 3]), pa.array([1, 2, 3]), mask=pa.array([True, False]))
    assert values_of(hidden, np.array([0, 1]))[0] == [None, [3]]


def test_rows_own_their_bytes_and_say_how_many():
    content = bytearray(b"abcdef")
    array = pa.BinaryArray.from_buffers(
        pa.binary(), 2, [None, pa.py_buffer(np.array([0, 3, 6], np.int32)), pa.py_buffer(content)]
    )
    rows, nbytes = rows_of(["image"], [array], np.array([1]))
    content[:] = b"------"
    assert rows == [{"image": b"def"}]
    assert nbytes == 3 + 4
