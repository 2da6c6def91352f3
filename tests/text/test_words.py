"""Ids of remembered words are those that the library gives for the whole text, whatever the text."""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Encoding, Regex, Tokenizer, pre_tokenizers

from tests.text.samples import demo, demo_with, special, user_defined
from zephon_ft.text import words
from zephon_ft.text.ordinary import encode_ordinary
from zephon_ft.text.tokenizer import LoadedTokenizer, load_tokenizer
from zephon_ft.text.words import WordEncoder

GPT2 = Path(__file__).parents[3] / "shared" / "data" / "gpt2" / "tokenizer.json"
NFC = {"type": "NFC"}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GPT = {**BYTES, "use_regex": True}


def split(pattern: str, **changed: Any) -> dict[str, Any]:
    one = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False, **changed}
    return {"type": "Sequence", "pretokenizers": [one, BYTES]}


def with_parts(**parts: Any) -> LoadedTokenizer:
    return demo_with(change=lambda parsed: parsed.update(parts))


_PRE_TOKENIZERS = {"GPT-2": GPT, **{name: split(pattern) for name, pattern in words._PATTERNS.items()}}
_LOADED = {
    f"{name}{' NFC' if normalizer else ''}": with_parts(pre_tokenizer=pre_tokenizer, normalizer=normalizer)
    for name, pre_tokenizer in _PRE_TOKENIZERS.items()
    for normalizer in (None, NFC)
}
_LOADED["added white space"] = demo_with(user_defined("\n\n"), user_defined(" \t"), special("<image>"))
if GPT2.is_file():
    _LOADED["GPT-2's own"] = load_tokenizer(GPT2)
_ENCODERS = {name: (loaded.clone_ordinary()[0], loaded.encoders()[0]) for name, loaded in _LOADED.items()}

_SPACES = "".join(filter(str.isspace, map(chr, range(0x10000))))
_HARD = (
    "abzAZ019éß\u017fǅʰ\u0301\u0338\u0345字ｶ\U0001d400२½Ⅷ"
    + "'\u2019\"()_-/\\.,!<=>`^\x00\x7f§«…🙂\u200d\ufe0f\u200b\u180e"
    + _SPACES
)
_FRAGMENTS = [
    *"  \n\t'",
    " ",
    "  ",
    "    ",
    "\r\n",
    "\n\n",
    "'s",
    "'LL",
    "'\u017f",
    "</",
    "!\n/",
    ".",
    "(",
    "/\n/",
    "a",
    "Ab",
    "12",
    "é",
    "e\u0301",
]
NASTY = st.text(alphabet=_HARD, max_size=16) | st.lists(
    st.sampled_from(_FRAGMENTS) | st.sampled_from(_HARD), max_size=16
).map("".join)


def pre_tokens(tokenizer: Tokenizer, text: str) -> list[str]:
    if tokenizer.normalizer is not None:
        text = tokenizer.normalizer.normalize_str(text)
    return [token for token, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]


@pytest.mark.parametrize("name", _PRE_TOKENIZERS)
@settings(max_examples=300, deadline=None)
@given(text=NASTY)
def test_pieces_are_matched_as_in_the_whole_text(name: str, text: str) -> None:
    pieces = words._pieces(text)
    assert "".join(pieces) == text
    for variant in (name, f"{name} NFC"):
        tokenizer, _ = _ENCODERS[variant]
        assert [token for piece in pieces for token in pre_tokens(tokenizer, piece)] == pre_tokens(tokenizer, text)


@pytest.mark.parametrize("name", _LOADED)
@settings(max_examples=100, deadline=None)
@given(text=NASTY)
def test_ids_are_those_of_the_library(name: str, text: str) -> None:
    assert _LOADED[name].separable
    tokenizer, encoder = _ENCODERS[name]
    for _ in range(2):  # the second time from memory
        assert encoder.encode(text).tolist() == encode_ordinary(tokenizer, text)


@pytest.mark.parametrize("name", _LOADED)
def test_ids_of_source_code_and_prose_are_those_of_the_library(name: str) -> None:
    tokenizer, encoder = _ENCODERS[name]
    library = Path(os.__file__).parent
    for file in ("textwrap.py", "json/decoder.py", "pydoc_data/topics.py"):
        text = (library / file).read_text(encoding="utf-8")[:30000]
        for start in range(0, len(text), 1500):
            piece = text[start : start + 1500]
            assert encoder.encode(piece).tolist() == encode_ordinary(tokenizer, piece)


def test_white_space_of_the_expressions_is_white_space_to_python() -> None:
    everything = "".join(chr(n) for n in range(sys.maxunicode + 1) if not 0xD800 <= n < 0xE000)
    parts = pre_tokenizers.Split(Regex(r"\s"), "removed").pre_tokenize_str(everything)
    left = set("".join(part for part, _ in parts))
    assert {character for character in everything if character not in left} <= set(filter(str.isspace, everything))


def test_composing_moves_no_cut() -> None:
    def compose(text: str) -> str:
        return unicodedata.normalize("NFC", text)

    everything = [chr(n) for n in range(sys.maxunicode + 1) if not 0xD800 <= n < 0xE000]
    assert all(compose(character)[0].isspace() == character.isspace() for character in everything)
    joining = [character for character in everything if unicodedata.category(character)[0] == "M"]
    for character in filter(lambda c: not c.isalnum(), map(chr, range(128))):
        after = {compose(character + mark)[0] for mark in joining} - {character}
        assert not any(unicodedata.category(c)[0] in "LMNZ" for c in after)
        assert character != " " or not after


def _model(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda parsed: parsed["model"].update(changes)


CL100K = words._PATTERNS["cl100k, Llama 3"]
DIGITS = {"type": "Digits", "individual_digits": True}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}


@pytest.mark.parametrize(
    ("pre_tokenizer", "text"),
    [
        ({"type": "Sequence", "pretokenizers": [DIGITS, GPT]}, "x  12"),
        (split(r"\s+$|" + CL100K), None),
        (split(CL100K.replace(r"\s+(?!\S)|", "")), "x  y"),
        (split(r"\p{L}+ \p{L}+|" + CL100K), "a b"),
        (split(CL100K, behavior="Removed"), None),
        (split(CL100K, invert=True), None),
        ({**GPT, "add_prefix_space": True}, "a b,c"),
        (BYTES, "a b"),
        (METASPACE, "a,b"),
        (None, "a b"),
    ],
)
def test_a_pre_tokenizer_that_is_not_known_is_given_whole_texts(pre_tokenizer: Any, text: str | None) -> None:
    loaded = with_parts(pre_tokenizer=pre_tokenizer)
    assert not loaded.separable
    tokenizer, _ = loaded.clone_ordinary()
    if text is not None and pre_tokenizer is not None:
        pieces = [token for piece in words._pieces(text) for token in pre_tokens(tokenizer, piece)]
        assert pieces != pre_tokens(tokenizer, text), "cut, it would be matched in another way"
    for sample in ("x  12", "a b,  c's", text or ""):
        assert loaded.encoders()[0].encode(sample).tolist() == encode_ordinary(tokenizer, sample)


@pytest.mark.parametrize(
    "part", [{"normalizer": {"type": "NFKC"}}, {"normalizer": {"type": "Prepend", "prepend": "▁"}}]
)
def test_another_normalizer_is_given_whole_texts(part: dict[str, Any]) -> None:
    assert not with_parts(**part).separable


@pytest.mark.parametrize(
    "token",
    [
        user_defined("   "),
        user_defined("\n "),
        user_defined("\n\n", lstrip=True),
        user_defined("\n\n", rstrip=True),
        user_defined("\n\n", single_word=True),
    ],
)
def test_an_added_token_that_may_hold_the_space_before_a_word_is_given_whole_texts(token: Any) -> None:
    loaded = demo_with(token)
    assert not loaded.separable
    tokenizer, _ = loaded.clone_ordinary()
    for text in ("a   b", "a\n b", "a \n\n b"):
        assert loaded.encoders()[0].encode(text).tolist() == encode_ordinary(tokenizer, text)


def test_another_kind_of_model_is_given_whole_texts() -> None:
    parsed = json.loads(demo().clone().to_str())
    parsed["model"]["type"] = "Unigram"
    assert not words.separable(parsed)


def _asked(patch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []

    def encode(tokenizer: Tokenizer, text: str) -> list[int]:
        asked.append(text)
        return encode_ordinary(tokenizer, text)

    patch.setattr(words, "encode_ordinary", encode)
    return asked


def test_the_library_is_asked_for_each_word_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, encoder = _asked(monkeypatch), demo().encoders()[0]
    encoder.encode("one two(two), one  two's two\n one (six")
    assert sorted(filter(None, asked)) == sorted(
        ["one", " two", "(two", "),", " one", " ", " two's", "\n", " (", "six"]
    )
    asked.clear()
    assert len(encoder.encode(" one two(two")) > 0
    assert asked == []


def test_memory_is_bounded_and_words_in_use_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "REMEMBERED", 20)
    monkeypatch.setattr(words, "LONGEST", 9)
    asked, encoder = _asked(monkeypatch), demo().encoders()[0]
    for number in range(50):
        encoder.encode(f" kept n{number}")
        assert len(encoder._recent) + len(encoder._older) <= 20
    encoder.encode(" 12345678 123456789")
    assert asked.count(" kept") == 1
    assert asked.count(" n0") == 1
    held = {**encoder._older, **encoder._recent}
    assert " 12345678" in held
    assert max(map(len, held)) == 9
    encoder.encode(" n0")
    assert asked.count(" n0") == 2


@pytest.mark.parametrize("separable", [True, False])
@pytest.mark.parametrize("text", ["", "red", "a b c"])
def test_ids_are_an_array_of_their_own(separable: bool, text: str) -> None:
    encoder = WordEncoder(demo().clone_ordinary()[0], separable)
    ids = encoder.encode(text)
    assert (ids.dtype, ids.ndim, ids.flags.writeable) == (np.int32, 1, True)
    before = ids.tolist()
    ids += 1
    assert encoder.encode(text).tolist() == before


@pytest.mark.parametrize("name", _LOADED)
@settings(max_examples=100, deadline=None)
@given(text=NASTY, marks=st.lists(st.integers(-2, 60), max_size=4))
def test_a_mark_is_at_the_token_where_the_library_has_it(name: str, text: str, marks: list[int]) -> None:
    tokenizer, encoder = _ENCODERS[name]
    encoding = tokenizer.encode(text, add_special_tokens=False)
    starts = [span[0] for span in map(encoding.token_to_chars, range(len(encoding)))]
    ids, places = encoder.encode_marked(text, marks)
    assert ids.tolist() == encoding.ids
    assert places == [next((i for i, start in enumerate(starts) if start >= mark), len(starts)) for mark in marks]


def test_no_text_is_encoded_twice_however_many_marks_are_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, tokenizer = _asked(monkeypatch), demo().clone_ordinary()[0]

    def encode(text: str, **options: Any) -> Encoding:
        asked.append(text)
        return tokenizer.encode(text, **options)

    counting = SimpleNamespace(encode=encode, encode_batch_fast=tokenizer.encode_batch_fast)
    text = "one " + "\u5b57" * 2 * words.LONGEST + " two"
    ids, places = WordEncoder(counting, True).encode_marked(text, range(len(text)))  # type: ignore[arg-type]
    assert sorted(filter(None, asked)) == sorted(words._pieces(text)[:-1])
    assert ids.tolist() == encode_ordinary(tokenizer, text)
    assert places == sorted(places)
