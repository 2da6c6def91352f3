"""tokenize: text to ids, nothing else; what it drops is counted, what it cannot use is named."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.text.samples import demo, demo_with, special
from zephon_ft.errors import ConfigError, DataError
from zephon_ft.ops.tokenize import Tokenize
from zephon_ft.record import Media, Record
from zephon_ft.text.tokenizer import demo_tokenizer_path, load_tokenizer

LOADED = load_tokenizer(demo_tokenizer_path(), bos="<|im_start|>")
FULL = LOADED.clone()


def run(
    operator: Tokenize, fields: dict[str, Any], media: tuple[Media, ...] = ()
) -> tuple[Record | None, Counter[str]]:
    counts: Counter[str] = Counter()
    context = SimpleNamespace(count=lambda name, n=1: counts.update({name: n}))
    return operator.bind(context)(Record((0, 1), 5, fields, media)), counts  # type: ignore[arg-type, misc]


def test_text_becomes_ids_and_only_kept_fields_and_media_remain() -> None:
    media = (Media("pixel_values", 1, 1, None, None),)
    record, _ = run(Tokenize(LOADED, keep=["id"]), {"text": "the red square", "id": 7, "big": "x"}, media)
    assert record is not None
    assert (record.key, record.position, record.media) == ((0, 1), 5, media)
    assert set(record.fields) == {"input_ids", "id"}
    assert record.fields["input_ids"].tolist() == FULL.encode("the red square").ids
    assert record.fields["input_ids"].dtype == np.int32


@pytest.mark.parametrize(
    ("special_tokens", "before", "behind"),
    [("none", [], []), ("bos", [1], []), ("eos", [], [0]), ("bos_eos", [1], [0])],
)
def test_special_tokens_are_added_only_as_asked(special_tokens: str, before: list[int], behind: list[int]) -> None:
    record, _ = run(Tokenize(LOADED, special_tokens=special_tokens), {"text": "red"})
    assert record is not None
    assert record.fields["input_ids"].tolist() == before + FULL.encode("red").ids + behind


def test_a_special_literal_in_the_text_stays_text() -> None:
    record, _ = run(Tokenize(LOADED), {"text": "<|endoftext|><|image_pad|>"})
    assert record is not None
    assert record.fields["input_ids"].min() > 5
    assert FULL.decode(record.fields["input_ids"].tolist()) == "<|endoftext|><|image_pad|>"


def test_a_dotted_name_reads_a_nested_field() -> None:
    operator = Tokenize(LOADED, "meta.text", keep=("id",))
    record, _ = run(operator, {"meta": {"text": "red"}, "id": 1})
    assert record is not None
    assert record.num_tokens == len(FULL.encode("red").ids)
    assert (operator.reads(), operator.keeps()) == ({"meta", "id"}, {"id"})


def test_an_empty_text_is_dropped_and_counted() -> None:
    record, counts = run(Tokenize(LOADED, special_tokens="eos"), {"text": ""})
    assert record is None
    assert counts == {"dropped by tokenize: empty text": 1}


def test_a_long_text_is_cut_without_a_false_end_and_counted() -> None:
    record, counts = run(Tokenize(LOADED, special_tokens="bos_eos", max_length=4), {"text": "the red square is here"})
    assert record is not None
    assert record.fields["input_ids"].tolist() == [1, *FULL.encode("the red square is here").ids[:3]]
    assert counts == {"cut by tokenize": 1}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"body": "x", "meta": {"a": 1}}, "no field 'text'; there: body, meta.a"),
        ({"text": None}, "field 'text' is null, expected text"),
        ({"text": b"x"}, "field 'text' is bytes, expected text"),
    ],
)
def test_a_field_that_is_missing_or_not_text_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        run(Tokenize(LOADED), fields)


def test_missing_text_may_be_dropped_but_other_content_may_not() -> None:
    for fields in ({}, {"text": None}):
        record, counts = run(Tokenize(LOADED, on_missing="drop"), fields)
        assert record is None
        assert counts == {"dropped by tokenize: no text": 1}
    with pytest.raises(DataError, match="is int"):
        run(Tokenize(LOADED, on_missing="drop"), {"text": 3})


def test_a_field_that_may_be_missing_is_not_asked_of_the_source() -> None:
    assert Tokenize(LOADED, keep=("id",)).needs() == (frozenset({"id"}), frozenset({"text"}))
    assert Tokenize(LOADED, keep=("id",), on_missing="drop").needs() == (frozenset({"id"}),)


def test_a_field_to_keep_has_to_be_there() -> None:
    with pytest.raises(DataError, match="no field 'id' to keep; there: text"):
        run(Tokenize(LOADED, keep=("id",)), {"text": "x"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"special_tokens": "both"}, "choose"),
        ({"on_missing": "ignore"}, "choose"),
        ({"max_length": 0}, "at least 1"),
        ({"max_length": 2, "special_tokens": "bos_eos"}, "at least 3"),
        ({"keep": "id"}, "list of names"),
        ({"keep": ("input_ids",)}, "makes 'input_ids' itself"),
    ],
)
def test_wrong_options_are_found_when_it_is_built(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Tokenize(LOADED, **options)


def test_a_special_token_that_is_not_known_is_found_when_it_is_built() -> None:
    with pytest.raises(ConfigError, match="names no bos token; pass"):
        Tokenize(demo(), special_tokens="bos")


def test_the_recipe_tells_tokenizers_and_options_apart() -> None:
    recipes = [
        Tokenize(LOADED).recipe(),
        Tokenize(LOADED, "body").recipe(),
        Tokenize(LOADED, special_tokens="eos").recipe(),
        Tokenize(LOADED, max_length=5).recipe(),
        Tokenize(demo_with(special("<|x|>"))).recipe(),
    ]
    assert all(recipes.count(recipe) == 1 for recipe in recipes)
    assert Tokenize(LOADED).recipe() == recipes[0]
