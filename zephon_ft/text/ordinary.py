"""Encode content as ordinary text: a tokenizer that cannot produce a special id, whatever the text says.

A user who writes ``<|im_start|>`` or ``<image>`` wrote characters. `tokenizers` finds added tokens before anything else
(and its switch `encode_special_tokens` spares only those marked special), so a copy of the tokenizer without them does
the encoding. Everything else (normalizer, pre-tokenizer, merges) is unchanged: text that holds no such literal gets
exactly the ids of the full tokenizer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tokenizers


def ordinary_text_json(parsed: dict[str, Any], special: Iterable[str]) -> tuple[str, str | None]:
    """Serialize a tokenizer that treats all added tokens, and the `special` strings, as ordinary text.

    Added tokens of white space only (runs of blanks or line ends, as GPT-NeoX and Gemma list them) are not markup and
    stay. The post-processor goes: it would add tokens, or trim the offsets that say to which turn a token belongs.

    Args:
        parsed: the full tokenizer, as parsed from its JSON; not modified.
        special: further strings that must not be reached from text (end of text, padding).

    Returns:
        The JSON for text at the very start of a string, and the one for text further in, or None where it is the same.
    """
    kept = [token for token in parsed["added_tokens"] if token["content"].isspace()]
    dropped = {token["content"] for token in parsed["added_tokens"]} - {token["content"] for token in kept}
    model = _without(parsed["model"], dropped | set(special), kept)
    vocab = model["vocab"]
    if isinstance(vocab, list):  # without an entry of its own, a kept token would get another id
        kept = [token for token in kept if token["id"] < len(vocab)]
    plain = {**parsed, "added_tokens": kept, "post_processor": None, "truncation": None, "padding": None}
    plain["model"] = model
    first = json.dumps(plain, ensure_ascii=False)
    inner = _inner_pre_tokenizer(plain["pre_tokenizer"])
    if inner == plain["pre_tokenizer"]:
        return first, None
    return first, json.dumps({**plain, "pre_tokenizer": inner}, ensure_ascii=False)


def encode_ordinary(tokenizer: tokenizers.Tokenizer, text: str) -> list[int]:
    """Ids of `text`, no special tokens added. A batch of one: unlike `encode` it computes no offsets (a fifth less)."""
    return tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids


def _without(model: dict[str, Any], hidden: set[str], kept: list[dict[str, Any]]) -> dict[str, Any]:
    """The model without any way from text to a `hidden` token; `kept` tokens get an entry, so that ids stay."""
    vocab = model["vocab"]
    if isinstance(vocab, list):  # Unigram: the place is the id, so an entry is renamed to what no text contains
        renamed = [[_unreachable(text), score] if text in hidden else [text, score] for text, score in vocab]
        return {**model, "vocab": renamed}
    hidden = {text for text in hidden if text in vocab and text != model.get("unk_token")}
    entries = {text: number for text, number in vocab.items() if text not in hidden}
    for token in kept:
        entries.setdefault(token["content"], token["id"])
    changed = {**model, "vocab": entries}
    if hidden and "merges" in model:
        changed["merges"] = [pair for pair in model["merges"] if not _mentions(pair, hidden)]
    return changed


def _mentions(merge: str | list[str], hidden: set[str]) -> bool:
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return left in hidden or right in hidden or left + right in hidden


def _unreachable(text: str) -> str:
    """A name from Unicode noncharacters and a hash, which no text contains by chance."""
    return f"\ufdd0{hashlib.sha256(text.encode()).hexdigest()}\ufdd1"


def _inner_pre_tokenizer(pre_tokenizer: Any) -> Any:
    """The pre-tokenizer for text that does not start the string: Metaspace's "first" prefix does not apply there."""
    if not isinstance(pre_tokenizer, dict):
        return pre_tokenizer
    if pre_tokenizer.get("type") == "Sequence":
        return {**pre_tokenizer, "pretokenizers": [_inner_pre_tokenizer(p) for p in pre_tokenizer["pretokenizers"]]}
    if pre_tokenizer.get("type") == "Metaspace" and pre_tokenizer.get("prepend_scheme") == "first":
        return {**pre_tokenizer, "prepend_scheme": "never"}
    return pre_tokenizer
