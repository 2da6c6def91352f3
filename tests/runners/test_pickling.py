"""`dump`: whatever travels between processes arrives as what it was."""

from __future__ import annotations

import io
import pickle
import traceback
from typing import Any

import numpy as np
import pytest

from zephon_ft import DataError, ImageError, Media, PipelineError, Record, Row
from zephon_ft.runners.pickling import dump


class Sink(io.BytesIO):
    def clear(self) -> None:
        self.seek(0)
        self.truncate()


def travel(value: Any) -> Any:
    sink = Sink()
    dump(value, sink)
    return pickle.loads(sink.getvalue())


def caught(call: Any) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError


def raise_from() -> None:
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise ImageError("outer") from error


class NeedsTwo(OSError):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


@pytest.mark.parametrize(
    "array",
    [
        np.arange(7, dtype=np.int32),
        np.arange(7, dtype=">i4"),
        np.arange(20)[::2],
        np.arange(6).reshape(2, 3),
        np.zeros(0, np.float32),
        np.array(3),
        np.array(["a", None], object),
        np.array(["ab", "c"]),
        np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")]),
        np.array(["2026-11-30"], "M8[D]"),
    ],
    ids=lambda array: f"{array.dtype.str}, {array.shape}",
)
@pytest.mark.parametrize("writable", [True, False])
def test_arrays_keep_type_shape_values_and_whether_they_may_be_written(array: np.ndarray, writable: bool):
    array = array.copy() if writable else array.view()
    array.flags.writeable = writable
    got = travel([array])[0]
    assert type(got) is np.ndarray and got.dtype == array.dtype and got.shape == array.shape
    assert got.tolist() == array.tolist()
    assert got.flags.writeable == pickle.loads(pickle.dumps(array, 5)).flags.writeable


def test_records_keep_every_field():
    media = Media("pixel_values", 3, 12, ("facts",), b"data", 4, (0, 1, 2, 0), 5, 1)
    record = Record((0, 1, 2, 0), 5, {"n": 1, "ids": np.arange(3)}, (media,), 99)
    found = travel(record)
    assert (found.key, found.position, found.media, found.nbytes) == (record.key, 5, (media,), 99)
    assert found.fields["ids"].tolist() == [0, 1, 2]
    row = Row({"input_ids": np.arange(4)}, np.array([4]), ((0, 0, 0, 0),), {"s": np.ones(1)}, (), 7, None, 3)
    assert (travel(row).keys, travel(row).position, travel(row).nbytes) == (row.keys, 3, 7)


def test_arrays_stay_read_only_or_writable():
    fixed = np.arange(5)
    fixed.flags.writeable = False
    assert not travel(fixed).flags.writeable
    assert travel(np.arange(5)).flags.writeable


def test_an_exception_keeps_type_cause_and_brings_its_traceback():
    found = travel(caught(raise_from))
    assert type(found) is ImageError
    assert type(found.__cause__) is KeyError
    text = "".join(traceback.format_exception(found))
    assert "in raise_from" in text
    assert "In worker process" in text


def test_a_pipeline_error_keeps_operator_and_record():
    found = travel(PipelineError("message", "map(f)", "row 3"))
    assert (str(found), found.operator, found.record) == ("message", "map(f)", "row 3")


def test_an_exception_that_cannot_be_unpickled_becomes_the_nearest_known_one():
    found = travel(NeedsTwo(1, 2))
    assert type(found) is OSError
    assert str(found) == "1 and 2"


def test_local_classes_and_functions_go_by_value():
    class Local(DataError):
        pass

    class Thing:
        def __init__(self) -> None:
            self.value = 5

    assert type(travel(Local("x"))).__name__ == "Local"
    assert travel([Thing()])[0].value == 5
    assert travel({"f": lambda x: x + 1})["f"](2) == 3


def test_what_cannot_be_pickled_is_an_error():
    with pytest.raises(TypeError, match="generator"):
        travel({"g": (n for n in range(3))})
