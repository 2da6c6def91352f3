"""Guarantees of `layout` and `Batch`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.builders import IMAGE, KINDS, FakeGeometry, FakeKind, media, record, rows_of
from zephon_ft.batch import Batch
from zephon_ft.buffers import BufferPool
from zephon_ft.errors import ConfigError, DataError
from zephon_ft.ops.batch import BatchOp
from zephon_ft.ops.pack import Pack
from zephon_ft.ops.pack_flat import PackFlat
from zephon_ft.record import Media, Record


def packed(records: list[Record], packer: Any = None, kinds: Any = None, **options: Any) -> Batch:
    """One batch of all rows that the records make."""
    packer = packer or Pack(8)
    rows = rows_of(packer, records)
    operator = replace(BatchOp(len(rows), **options).after(packer), dummy_token_id=IMAGE)
    return operator.layout(rows, kinds, names=("web",))


def fill_all(batch: Batch, value: int = 7) -> None:
    for fill in batch.fills:
        batch.arrays[fill.kind][fill.start : fill.stop] = value


def test_positions_restart_per_document_and_padding_is_a_document_of_its_own() -> None:
    batch = packed([record(0, 5), record(1, 2), record(2, 8)])
    assert batch.arrays["positions"].tolist() == [[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 0, 1, 0]]
    batch = packed([record(0, 3), record(1, 2)])
    assert batch.arrays["positions"].tolist() == [[0, 1, 2, 0, 1, 0, 1, 2]]
    assert batch.arrays["input_ids"].tolist() == [[1000, 1001, 1002, 2000, 2001, 0, 0, 0]]
    assert batch.arrays["labels"].tolist() == [[-100, 1001, 1002, -100, 2001, -100, -100, -100]]
    assert batch.arrays["document_lengths"].tolist() == [3, 2]
    assert {batch.arrays[n].dtype for n in ("input_ids", "labels", "positions", "document_lengths")} == {np.dtype("i4")}


def test_packed_rows_have_one_length_in_every_batch_and_records_that_of_the_longest() -> None:
    assert packed([record(0, 2)], Pack(8, row_multiple=5)).arrays["input_ids"].shape == (1, 10)
    assert packed([record(0, 2)], PackFlat(8)).arrays["input_ids"].shape == (1, 8)
    units = [record(0, 2), record(1, 5)]
    assert BatchOp(2).layout(units).arrays["input_ids"].shape == (2, 5)
    batch = BatchOp(2, pad_to_multiple=4, pad_token_id=3).layout(units)
    assert batch.arrays["input_ids"].tolist()[0] == [1000, 1001] + [3] * 6
    assert batch.arrays["labels"].tolist()[0] == [-100, 1001] + [-100] * 6
    assert batch.fill_rate == 7 / 16
    assert batch.num_tokens == 7
    assert batch.row_tokens().tolist() == [2, 5]


def test_no_label_crosses_a_document() -> None:
    rng = np.random.default_rng(0)
    for packer in (Pack(32), PackFlat(32), PackFlat(32, shift_labels=True)):
        batch = packed([record(i, int(n)) for i, n in enumerate(rng.integers(1, 30, 40))], packer)
        starts = batch.arrays["positions"] == 0
        assert (batch.arrays["labels"][starts] == -100).all()
        inside = ~starts & (batch.arrays["labels"] != -100)
        before = np.roll(batch.arrays["input_ids"], 1, axis=1)
        assert (batch.arrays["labels"][inside] == before[inside] + 1).all()


def test_num_valid_tokens_counts_what_a_loss_counts() -> None:
    labels = np.array([5, -100, 6, 7], np.int32)
    assert packed([record(0, 4, labels=labels), record(1, 3)]).num_valid_tokens == 2 + 2


def test_aligned_fields_are_padded_and_scalars_stand_per_document() -> None:
    packer = Pack(8, pad_values={"weight": 0.5})
    records = [record(0, 6, weight=np.ones(6, np.float32), score=1), record(1, 4, score=2), record(2, 2, score=3)]
    batch = packed(records, packer)
    assert batch.arrays["weight"].tolist() == [[1] * 6 + [0.5] * 2, [0.5] * 8]
    assert batch.arrays["score"].tolist() == [1, 3, 2]
    assert batch.aligned == ("weight",)
    assert batch.scalars == ("score",)


def test_media_lie_in_document_order_with_their_columns() -> None:
    first, second = media(tokens=2, offset=1), media(offset=0)
    batch = packed([record(0, 6), record(1, 5, (first,)), record(2, 2, (second,))], kinds=KINDS)
    assert batch.arrays["pixel_values"].shape == (12, 4)
    assert batch.arrays["image_grid_thw"].tolist() == [[1, 2, 2], [1, 2, 4]]
    places = [(f.start, f.stop, f.row, f.column, f.length) for f in batch.fills]
    assert places == [(0, 4, 0, 6, 2), (4, 12, 1, 0, 5)]
    for fill in batch.fills:
        ids = batch.arrays["input_ids"][fill.row, fill.media.offset : fill.media.offset + fill.media.tokens]
        assert (ids == IMAGE).all()


def test_a_batch_without_images_has_the_same_arrays_as_one_with() -> None:
    with_image = packed([record(0, 3, (media(offset=0),))], kinds=KINDS)
    without = packed([record(0, 3)], kinds=KINDS)
    assert {n: (a.dtype, a.ndim) for n, a in without.arrays.items()} == {
        n: (a.dtype, a.ndim) for n, a in with_image.arrays.items()
    }
    assert without.arrays["pixel_values"].shape == (0, 4)
    assert without.arrays["image_grid_thw"].shape == (0, 3)


def test_rope_positions_follow_the_images_of_each_document_and_restart_with_it() -> None:
    # one text token, an image of 1 x 2 merged blocks, one text token; then a plain document, then padding
    batch = packed([record(0, 4, (media(tokens=2, offset=1),)), record(1, 2)], kinds=KINDS)
    assert batch.arrays["rope_positions"].tolist() == [
        [[0, 1, 1, 3, 0, 1, 0, 1]],
        [[0, 1, 1, 3, 0, 1, 0, 1]],
        [[0, 1, 2, 3, 0, 1, 0, 1]],
    ]
    plain = {"pixel_values": FakeKind(geometry=FakeGeometry(rope=None))}
    assert "rope_positions" not in packed([record(0, 4)], kinds=plain).arrays


def test_every_byte_of_leased_memory_is_written_once_all_fills_ran() -> None:
    pool = BufferPool(poison=True)
    packer = Pack(8, reserve=1)
    for records in ([record(0, 3, (media(offset=0), media(offset=1))), record(1, 7)], [record(0, 3)]):
        rows = rows_of(packer, records)
        operator = replace(BatchOp(len(rows), ensure_image=True).after(packer), dummy_token_id=IMAGE)
        batch = operator.layout(rows, KINDS, pool)
        fill_all(batch)
        assert batch.arrays["pixel_values"].size
        assert not (batch.arrays["pixel_values"] == 0xA5).any()


def test_the_dummy_image_is_a_document_in_the_padding_of_the_last_row() -> None:
    batch = packed([record(0, 6), record(1, 5)], Pack(8, reserve=1), KINDS, ensure_image=True)
    assert batch.arrays["input_ids"][-1].tolist() == [2000, 2001, 2002, 2003, 2004, IMAGE, 0, 0]
    assert batch.arrays["positions"][-1].tolist() == [0, 1, 2, 3, 4, 0, 0, 1]
    assert (batch.arrays["labels"][-1, 5:] == -100).all()
    assert batch.fills == []
    assert batch.arrays["pixel_values"].tolist() == [[0] * 4] * 4
    assert batch.arrays["image_grid_thw"].tolist() == [[1, 2, 2]]
    assert batch.arrays["document_lengths"].tolist() == [6, 5]
    assert len(batch.records()[-1]) == 1
    full = packed([record(0, 7)], Pack(8, reserve=1), KINDS, ensure_image=True)
    assert full.arrays["input_ids"][0, 7] == IMAGE


def test_every_kind_that_a_batch_lacks_gets_its_dummy() -> None:
    kinds = {name: FakeKind(name, column=f"{name}_grid") for name in ("a_values", "b_values", "c_values")}
    batch = packed([record(0, 3, (media(offset=0, kind="b_values"),))], Pack(8, reserve=3), kinds, ensure_image=True)
    assert batch.arrays["input_ids"][0].tolist() == [IMAGE, 1001, 1002, IMAGE, IMAGE, 0, 0, 0]
    assert batch.arrays["positions"][0].tolist() == [0, 1, 2, 0, 0, 0, 1, 2]
    assert [len(batch.arrays[name]) for name in kinds] == [4, 4, 4]
    assert len(batch.fills) == 1


def test_a_batch_with_an_image_gets_no_dummy() -> None:
    batch = packed([record(0, 3, (media(offset=0),))], Pack(8, reserve=1), KINDS, ensure_image=True)
    assert len(batch.arrays["image_grid_thw"]) == 1
    assert len(batch.fills) == 1


def test_a_dummy_without_reserved_room_is_an_error() -> None:
    with pytest.raises(ConfigError, match="reserve"):
        packed([record(0, 8)], Pack(8), KINDS, ensure_image=True)


def test_blanking_zeroes_the_pixels_and_every_label_of_that_document_only() -> None:
    batch = packed([record(0, 3, (media(offset=0),)), record(1, 4, (media(offset=1),))], kinds=KINDS)
    fill_all(batch)
    before = batch.num_valid_tokens
    batch.blank(batch.fills[1])
    assert batch.arrays["pixel_values"].tolist() == [[7] * 4] * 4 + [[0] * 4] * 4
    assert batch.arrays["labels"][0].tolist() == [-100, 1001, 1002] + [-100] * 5
    assert before - batch.num_valid_tokens == 3


def test_records_say_where_every_document_came_from_and_where_it_lies() -> None:
    batch = packed([record(0, 6), record(1, 5)], PackFlat(8))
    child = record(2, 2)
    child.key = (0, 2, 2, 1, 4, 0)
    assert batch.records() == [
        [("web", 2, 0, 0, (), 0, 0, 6), ("web", 2, 1, 0, (), 0, 6, 8)],
        [("web", 2, 1, 0, (), 2, 0, 3)],
    ]
    assert packed([child]).records()[0][0].children == (4, 0)


def test_plain_records_become_columns() -> None:
    fields = [
        {"x": 1, "f": 0.5, "name": "a", "v": np.arange(3), "r": np.arange(2)},
        {"x": 2, "f": 1, "name": "b", "v": np.arange(3), "r": np.arange(4), "extra": None},
    ]
    batch = BatchOp(2).layout([Record((0, 0, i, 0), i, f) for i, f in enumerate(fields)], names=("web",))
    assert batch.columns["x"].tolist() == [1, 2]
    assert batch.columns["f"].tolist() == [0.5, 1.0]
    assert batch.columns["name"] == ["a", "b"]
    assert batch.columns["v"].shape == (2, 3)
    assert isinstance(batch.columns["r"], list)
    assert batch.columns["extra"] == [None, None]
    assert len(batch) == 2
    assert not batch.has_tokens
    assert batch.num_valid_tokens == 0
    assert [[o.row for o in row] for row in batch.records()] == [[0], [1]]


def test_images_of_plain_records_are_laid_out_too() -> None:
    units = [Record((0, 0, i, 0), i, {"label": i}, (media(),) * i) for i in range(3)]
    batch = BatchOp(3).layout(units, KINDS)
    assert batch.arrays["pixel_values"].shape == (12, 4)
    assert batch.arrays["media_counts"].tolist() == [0, 1, 2]
    assert [f.row for f in batch.fills] == [1, 2, 2]
    fill_all(batch)
    batch.blank(batch.fills[0])
    assert not batch.arrays["pixel_values"][:4].any()


def test_tokenized_and_other_records_do_not_share_a_batch() -> None:
    with pytest.raises(DataError, match="1 of 2 records"):
        BatchOp(2).layout([record(0, 2), Record((0, 0, 1, 0), 1, {"text": "a"})])


def test_a_field_with_the_name_of_an_array_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'positions'.*rename"):
        packed([record(0, 2, positions=np.zeros(2))], Pack(8, pad_values={"positions": 0}))
    with pytest.raises(ConfigError, match=r"'pixel_values'.*rename"):
        BatchOp(1).layout([Record((0, 0, 0, 0), 0, {"pixel_values": 1})], KINDS)


def test_media_of_an_undeclared_kind_are_an_error() -> None:
    with pytest.raises(ConfigError, match="audio"):
        packed([record(0, 3, (Media("audio", 1, 1, None, None, 0),))], kinds=KINDS)


def test_the_digest_changes_with_every_byte_dtype_shape_and_name() -> None:
    base = np.arange(6, dtype=np.int32)

    def digest(name: str = "a", array: Any = base) -> str:
        return Batch({name: array}).digest()

    others = [base.astype(np.int64), base.reshape(2, 3), base.view(np.uint32), base[:5], base[::-1]]
    for index in range(base.nbytes):
        other = base.copy()
        other.view(np.uint8)[index] ^= 1
        others.append(other)
    digests = {digest(), digest("b"), *(digest(array=other) for other in others)}
    assert len(digests) == 2 + len(others)
    assert digest() == digest(array=np.arange(12, dtype=np.int32)[:6]) == digest(array=base.astype(">i4"))


def test_the_digest_without_pixels_leaves_media_buffers_out_but_not_their_layout() -> None:
    batch = packed([record(0, 3, (media(offset=0),))], kinds=KINDS)
    fill_all(batch, 1)
    first = batch.digest(), batch.digest(pixels=False)
    fill_all(batch, 2)
    assert batch.digest() != first[0]
    assert batch.digest(pixels=False) == first[1]
    batch.arrays["image_grid_thw"][0, 0] = 2
    assert batch.digest(pixels=False) != first[1]


def test_the_digest_of_plain_columns_tells_values_types_and_places_apart() -> None:
    values: list[Any] = [
        ["ab", "c"], ["a", "bc"], [b"ab", "c"], [1, "c"], [1.0, "c"], [True, "c"], [None, "c"], [["ab", "c"]],
        [{"a": 1}], [{"a": 2}], [{"b": 1}], [np.arange(2), np.arange(3)], [np.arange(2), np.arange(3.0)], [], ["1"],
    ]  # fmt: skip
    digests = {Batch({}, {"x": value}).digest() for value in values}
    assert len(digests) == len(values)
    assert Batch({}, {"x": [{"a": 1, "b": 2}]}).digest() == Batch({}, {"x": [{"b": 2, "a": 1}]}).digest()
    with pytest.raises(ConfigError, match=r"'x\[1\]\.k' holds a object"):
        Batch({}, {"x": [1, {"k": object()}]}).digest()


def test_a_known_batch_keeps_its_digest() -> None:
    batch = packed([record(0, 3, (media(offset=0),)), record(1, 7)], kinds=KINDS)
    fill_all(batch)
    assert batch.digest(pixels=False)[:16] == "2a006a80bf3b08c4"
