"""Content is ordinary text: no literal reaches a special id, and all other text gets the full tokenizer's ids."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.text.samples import demo, demo_with, special, user_defined
from zephon_ft.text.ordinary import encode_ordinary
from zephon_ft.text.tokenizer import LoadedTokenizer, demo_tokenizer_path, load_tokenizer

GPT2 = Path(__file__).parents[3] / "shared" / "data" / "gpt2" / "tokenizer.json"


def ordinary(loaded: LoadedTokenizer, text: str) -> list[int]:
    return encode_ordinary(loaded.clone_ordinary()[0], text)


@pytest.mark.parametrize("literal", ["<|im_start|>", "<|image_pad|>", "<image>", "<think>", "<|norm|>", "<|strip|>"])
def test_no_literal_of_an_added_token_becomes_its_id(literal: str) -> None:
    loaded = demo_with(
        special("<image>"),
        user_defined("<think>", normalized=False),
        user_defined("<|norm|>", normalized=True),
        special("<|strip|>", lstrip=True, rstrip=True),
    )
    number = loaded.token_id(literal)
    for text in (literal, f"a{literal}b", f"{literal} {literal}\n{literal}"):
        assert number in loaded.clone().encode(text).ids, "the full tokenizer does find it"
        ids = ordinary(loaded, text)
        assert number not in ids
        assert loaded.clone().decode(ids, skip_special_tokens=False) == text


def test_a_special_token_that_merges_reach_is_still_unreachable() -> None:
    def embed(parsed: dict) -> None:  # "assistant" is the product of merges
        number = parsed["model"]["vocab"]["assistant"]
        parsed["added_tokens"].append(
            {"id": number, "content": "assistant", "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
        )  # fmt: skip

    loaded = demo_with(change=embed)
    ids = ordinary(loaded, "assistant")
    assert loaded.token_id("assistant") not in ids
    assert loaded.clone().decode(ids) == "assistant"


@pytest.mark.parametrize("kind", ["unigram", "wordlevel", "ignore_merges"])
def test_a_special_token_in_the_vocabulary_is_unreachable_for_every_kind_of_model(kind: str) -> None:
    words = ["<unk>", "</s>", "a", "b", "<", "/", "s", ">"]
    if kind == "unigram":
        model = models.Unigram([(word, -1.0) for word in words], unk_id=0)
    elif kind == "wordlevel":
        model = models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>")
    else:
        model = models.BPE({word: n for n, word in enumerate(words)}, [], unk_token="<unk>", ignore_merges=True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<unk>", "</s>"])
    loaded = load_tokenizer(tokenizer)
    assert loaded.clone().encode("a </s>").ids == [2, 1]
    assert 1 not in ordinary(loaded, "a </s>")
    assert ordinary(loaded, "a b") == [2, 3]


def test_a_token_that_is_only_declared_special_is_unreachable_too() -> None:
    parsed = json.loads(Tokenizer.from_file(str(demo_tokenizer_path())).to_str())
    parsed["added_tokens"] = []
    parsed["model"]["ignore_merges"] = True
    parsed["pre_tokenizer"]["use_regex"] = False
    loaded = load_tokenizer(Tokenizer.from_str(json.dumps(parsed)), eos="<|endoftext|>")
    assert loaded.clone().encode("<|endoftext|>").ids == [0]
    assert 0 not in ordinary(loaded, "<|endoftext|>")


def test_runs_of_white_space_that_are_added_tokens_keep_their_ids() -> None:
    loaded = demo_with(special("<|a|>"), user_defined("\t\t", normalized=False), special("<|b|>"))
    number = loaded.clone().token_to_id("\t\t")
    assert ordinary(loaded, "x\t\ty") == loaded.clone().encode("x\t\ty").ids
    assert number in ordinary(loaded, "x\t\ty")


def test_a_prefix_for_the_start_of_the_string_is_given_there_only() -> None:
    tokenizer = Tokenizer(models.WordLevel({"?": 0, "▁a": 1, "a": 2, "<s>": 3}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.add_special_tokens(["<s>"])
    loaded = load_tokenizer(tokenizer)
    first, inner = loaded.clone_ordinary()
    assert tokenizer.encode("a<s>a").ids == [1, 3, 2]
    assert (encode_ordinary(first, "a"), encode_ordinary(inner, "a")) == ([1], [2])


_COMPOSING = demo_with(change=lambda parsed: parsed.update(normalizer={"type": "NFC"}))
_PAIRS = [(loaded.clone(), loaded.clone_ordinary()[0]) for loaded in (demo(), _COMPOSING)]


@settings(max_examples=200, deadline=None)
@given(st.text() | st.text(alphabet="ab \n\té\u0301\U0001f600\u200d\U0001f469<|>"))
def test_text_without_a_literal_gets_the_ids_of_the_full_tokenizer(text: str) -> None:
    assume("|>" not in text)
    for full, plain in _PAIRS:
        assert encode_ordinary(plain, text) == full.encode(text, add_special_tokens=False).ids


@pytest.mark.skipif(not GPT2.is_file(), reason="needs GPT-2's tokenizer")
def test_the_same_holds_for_a_tokenizer_in_use() -> None:
    loaded = load_tokenizer(GPT2, eos="<|endoftext|>")
    for text in ("Hello, world! naïve café 😀 e\u0301\n\n  x = 1;\r\n", "the cat's 1234 \t tab", "日本語のテキスト"):
        assert ordinary(loaded, text) == loaded.clone().encode(text).ids
    assert loaded.eos_id not in ordinary(loaded, "a<|endoftext|>b")
