"""Guarantees of `pack` and its bins."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import IMAGE, Interval, media, record, rows_of
from zephon_ft.errors import ConfigError, DataError
from zephon_ft.ops.pack import Pack


def sizes(operator: Pack, lengths: list[int]) -> list[list[int]]:
    groups = Interval(operator.accumulator()).run(record(i, n) for i, n in enumerate(lengths))
    return [[r.num_tokens for r in group] for group in groups]


def test_best_fit_takes_the_fullest_bin_that_has_room_and_the_oldest_of_equals() -> None:
    assert sizes(Pack(10), [4, 7, 3]) == [[7, 3], [4]]
    groups = Interval(Pack(10).accumulator()).run([record(0, 6), record(1, 6), record(2, 2)])
    assert [[r.position for r in group] for group in groups] == [[0, 2], [1]]


def test_first_fit_takes_the_oldest_bin_that_has_room() -> None:
    assert sizes(Pack(10, algorithm="first_fit"), [4, 7, 3]) == [[4, 3], [7]]


@pytest.mark.parametrize("algorithm", ["best_fit", "first_fit"])
def test_the_fullest_bin_makes_room_when_all_are_open(algorithm: str) -> None:
    assert sizes(Pack(10, algorithm=algorithm, open_bins=2), [6, 8, 7]) == [[8], [6], [7]]
    groups = Interval(Pack(10, algorithm=algorithm, open_bins=2).accumulator()).run(record(i, 6) for i in range(3))
    assert [group[0].position for group in groups] == [0, 1, 2]


@pytest.mark.parametrize("algorithm", ["best_fit", "first_fit"])
def test_a_full_bin_closes_at_once_and_the_end_closes_the_rest_oldest_first(algorithm: str) -> None:
    accumulator = Pack(10, algorithm=algorithm).accumulator()
    Interval(accumulator)
    assert list(accumulator.push(record(0, 9))) == []
    assert [[r.position for r in group] for group in accumulator.push(record(1, 10))] == [[1]]
    assert [[r.position for r in group] for group in accumulator.push(record(2, 1))] == [[0, 2]]
    assert sizes(Pack(10, algorithm=algorithm), [9, 6, 8]) == [[9], [6], [8]]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), max_size=60),
    st.sampled_from(["best_fit", "first_fit"]),
    st.integers(1, 5),
    st.sampled_from([1, 4]),
    st.sampled_from([None, 3]),
    st.sampled_from([None, 12]),
    st.sampled_from(["drop", "truncate_text"]),
)
def test_no_budget_is_exceeded_and_no_record_is_lost_or_duplicated(
    shapes: list[tuple[int, int]],
    algorithm: str,
    bins: int,
    multiple: int,
    images: int | None,
    patches: int | None,
    policy: str,
) -> None:
    records = [
        record(i, max(n, k), tuple(media(offset=j, index=j) for j in range(k))) for i, (n, k) in enumerate(shapes)
    ]
    operator = Pack(
        32, algorithm, bins, max_images=images, max_patches=patches, document_multiple=multiple, over_long=policy
    )
    interval = Interval(operator.accumulator())
    groups = interval.run(records)
    for group in groups:
        assert 0 < sum(-(-r.num_tokens // multiple) * multiple for r in group) <= 32
        assert sum(len(r.media) for r in group) <= (images if images is not None else 999)
        assert sum(m.rows for r in group for m in r.media) <= (patches if patches is not None else 999)
    emitted = [r.position for group in groups for r in group]
    assert Counter(emitted + [r.position for r, _ in interval.dropped]) == Counter(range(len(records)))


def test_the_packing_is_a_function_of_the_stream_alone() -> None:
    lengths = np.random.default_rng(1).integers(1, 60, 300).tolist()
    assert sizes(Pack(64, open_bins=8), lengths) == sizes(Pack(64, open_bins=8), lengths)


@pytest.mark.parametrize("algorithm", ["best_fit", "first_fit"])
def test_rows_are_at_least_98_percent_full_on_lengths_like_those_of_finevision(algorithm: str) -> None:
    lengths = np.clip(np.random.default_rng(0).lognormal(5.5, 0.9, 4096), 8, 4096).astype(int).tolist()
    groups = sizes(Pack(4096, algorithm), lengths)
    assert sum(map(sum, groups)) == sum(lengths)
    assert sum(lengths) / (4096 * len(groups)) >= 0.98


def test_a_record_over_the_image_or_patch_budget_goes_to_another_bin() -> None:
    records = [record(i, 4, (media(offset=0), media(offset=1))) for i in range(3)]
    for operator in (Pack(64, max_images=4), Pack(64, max_patches=16)):
        assert [len(g) for g in Interval(operator.accumulator()).run(records)] == [2, 1]


def test_an_over_long_record_is_dropped_and_counted() -> None:
    interval = Interval(Pack(8).accumulator())
    assert interval.run([record(0, 9), record(1, 8)])[0][0].position == 1
    assert [(r.position, reason) for r, reason in interval.dropped] == [(0, "over-long")]


def test_an_over_long_record_is_an_error_that_names_lengths_and_budgets() -> None:
    interval = Interval(Pack(8, over_long="error", max_images=2).accumulator())
    with pytest.raises(DataError, match=r"9 tokens, 0 images.*8 tokens, 2 images"):
        interval.run([record(0, 9)])


def test_truncation_cuts_text_at_the_end_of_every_aligned_field_and_leaves_the_source_alone() -> None:
    source = record(0, 12, (media(tokens=2, offset=3),), weight=np.arange(12.0), title="t")
    [group] = Interval(Pack(8, over_long="truncate_text").accumulator()).run([source])
    assert group[0].fields["input_ids"].tolist() == source.fields["input_ids"][:8].tolist()
    assert group[0].fields["weight"].tolist() == list(range(8))
    assert len(group[0].media) == 1
    assert source.num_tokens == 12
    assert group[0].fields["title"] == "t"


@pytest.mark.parametrize("offset", [6, 7, 8, 10])
def test_truncation_never_goes_through_or_past_an_image(offset: int) -> None:
    interval = Interval(Pack(8, over_long="truncate_text").accumulator())
    groups = interval.run([record(0, 14, (media(tokens=2, offset=offset),))])
    assert (groups == []) == (offset > 6)
    assert [reason for _, reason in interval.dropped] == ["over-long: the cut would lose an image"] * (offset > 6)


def test_truncation_drops_a_record_that_would_lose_every_label() -> None:
    labels = np.full(12, -100, np.int32)
    labels[10:] = 5
    interval = Interval(Pack(8, over_long="truncate_text").accumulator())
    assert interval.run([record(0, 12, labels=labels)]) == []
    assert interval.dropped[0][1] == "over-long: the cut would lose all labels"


def test_too_many_images_cannot_be_cut_away() -> None:
    interval = Interval(Pack(8, max_images=1, over_long="truncate_text").accumulator())
    assert interval.run([record(0, 6, (media(offset=0), media(offset=1)))]) == []
    assert interval.dropped[0][1] == "over-long: too many images"


def test_a_record_without_tokens_is_dropped_with_its_reason() -> None:
    interval = Interval(Pack(8).accumulator())
    assert interval.run([record(0, 0)]) == []
    assert interval.dropped[0][1] == "no tokens"


def test_records_that_were_not_tokenized_are_an_error_that_says_what_to_do() -> None:
    plain = record(0, 3)
    plain.fields = {"text": "abc"}
    with pytest.raises(DataError, match=r"tokenize\(\).*text"):
        Interval(Pack(8).accumulator()).run([plain])


def test_a_row_holds_its_documents_with_the_first_label_of_each_ignored() -> None:
    labels = np.array([7, 8, -100], np.int32)
    [row] = rows_of(Pack(16), [record(0, 3, labels=labels), record(1, 2)])
    assert row.fields["input_ids"].tolist() == [1000, 1001, 1002, 2000, 2001]
    assert row.fields["labels"].tolist() == [-100, 8, -100, -100, 2001]
    assert row.lengths.tolist() == [3, 2]
    assert row.keys == ((0, 2, 0, 0), (0, 2, 1, 0))
    assert {a.dtype for a in row.fields.values()} == {np.dtype(np.int32)}
    assert labels.tolist() == [7, 8, -100]


def test_media_move_with_their_documents() -> None:
    [row] = rows_of(Pack(16), [record(0, 3), record(1, 4, (media(offset=1), media(offset=3, index=1)))])
    assert [m.offset for m in row.media] == [4, 6]
    assert [row.fields["input_ids"][m.offset] for m in row.media] == [IMAGE, IMAGE]
    assert row.nbytes == sum(a.nbytes for a in row.fields.values()) + 2 * len(b"image")


def test_documents_are_padded_to_the_multiple_before_they_are_placed() -> None:
    operator = Pack(8, document_multiple=4, pad_token_id=77, pad_values={"weight": 0.5})
    rows = rows_of(operator, [record(i, 3, weight=np.ones(3)) for i in range(3)])
    assert [row.lengths.tolist() for row in rows] == [[4, 4], [4]]
    assert rows[0].fields["input_ids"].tolist() == [1000, 1001, 1002, 77, 2000, 2001, 2002, 77]
    assert rows[0].fields["labels"][[0, 3, 4, 7]].tolist() == [-100] * 4
    assert rows[0].fields["weight"].tolist() == [1, 1, 1, 0.5] * 2


def test_an_aligned_field_needs_a_declared_pad_value_and_then_fills_documents_without_it() -> None:
    records = [record(0, 2, weight=np.ones(2, np.float32)), record(1, 2)]
    with pytest.raises(ConfigError, match=r"'weight'.*pad_values=\{'weight'"):
        rows_of(Pack(8), records)
    [row] = rows_of(Pack(8, pad_values={"weight": 0.25}), records)
    assert row.fields["weight"].tolist() == [1, 1, 0.25, 0.25]
    assert row.fields["weight"].dtype == np.float32


def test_a_pad_value_that_the_field_cannot_hold_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"-1 of field 'kind' does not fit its type uint8"):
        rows_of(Pack(8, pad_values={"kind": -1}), [record(0, 2, kind=np.ones(2, np.uint8))])


def test_numbers_travel_one_per_document_and_other_fields_stay_behind() -> None:
    [row] = rows_of(Pack(8), [record(0, 2, score=0.5, ok=True, text="a"), record(1, 2, score=2.0, ok=False, text="b")])
    assert row.scalars["score"].tolist() == [0.5, 2.0]
    assert row.scalars["ok"].tolist() == [True, False]
    assert set(row.scalars) == {"score", "ok"}
    assert set(row.fields) == {"input_ids", "labels"}


def test_a_number_that_some_documents_lack_is_an_error_unless_a_value_is_declared() -> None:
    records = [record(0, 2, score=0.5), record(1, 2)]
    with pytest.raises(ConfigError, match="'score' is a number in some records and absent in others"):
        rows_of(Pack(8), records)
    [row] = rows_of(Pack(8, pad_values={"score": -1.0}), records)
    assert row.scalars["score"].tolist() == [0.5, -1.0]


def test_labels_of_another_length_are_an_error() -> None:
    with pytest.raises(DataError, match="2 labels for 3 tokens"):
        rows_of(Pack(8), [record(0, 3, labels=np.zeros(2, np.int32))])


def test_the_reserve_stays_free_in_every_row() -> None:
    assert sizes(Pack(10, reserve=2), [8, 5, 4]) == [[8], [5], [4]]
    interval = Interval(Pack(10, reserve=2).accumulator())
    assert interval.run([record(0, 9)]) == []
    assert interval.dropped[0][1] == "over-long"
    assert Pack(10, reserve=2).row_length == 10
    assert Pack(10, row_multiple=4).row_length == 12


@pytest.mark.parametrize(
    "options",
    [
        {"max_length": 0},
        {"max_length": 8, "algorithm": "worst_fit"},
        {"max_length": 8, "over_long": "cut"},
        {"max_length": 8, "open_bins": 0},
        {"max_length": 8, "max_images": -1},
        {"max_length": 8, "document_multiple": 16},
        {"max_length": 8, "reserve": 8},
    ],
)
def test_wrong_options_are_refused_when_the_operator_is_made(options: dict) -> None:
    with pytest.raises(ConfigError, match=f"{list(options)[-1]}|max_length"):
        Pack(**options)
