r"""Encode text faster: the ids of words are remembered, and the library is asked only for words not seen before.

Guarantee: the ids are exactly those of the library for the whole text. Most tokenizers in use are byte-level BPE: a
pre-tokenizer cuts text into matches of a regular expression, and each is encoded by itself. So text may be cut, and the
cut pieces be encoded apart, wherever a match ends whatever stands around. For the expressions of `_PATTERNS` that is so

- before a space with no white space behind it. An alternative that has a space in it matches it as the first character,
  or matches white space only. A run of white space that has the space as its last character ends before it, or starts
  with it: ``\s*[\r\n]+`` ends with a line end, ``\s+(?!\S)`` gives its last character back, and ``\s+`` comes to its
  turn only where that was the only one. ``(?!\S)`` holds before a space just as at the end of a piece.
- between an ASCII letter or digit and any other ASCII character, but for an apostrophe that may begin a contraction.
  In a match, letters are followed only by letters, marks and contractions, and digits by digits.
- between ASCII punctuation and an ASCII letter or digit, if a space or other punctuation comes before: these two are in
  one match, which no letter or digit is in. But not a slash: some expressions let slashes follow on line ends.

No alternative looks back, so what is matched from a cut on does not depend on what came before. NFC moves no cut: no
ASCII character composes with what stands before it, a space composes with nothing, and with marks behind it punctuation
becomes no letter, digit or white space. Python's white space includes all of the expressions'. Tokenizers that are not
known to work like this are given every text as a whole.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from zephon_ft.text.ordinary import encode_ordinary

if TYPE_CHECKING:
    import tokenizers

REMEMBERED = 1 << 16  # pieces at most, for each encoder: some 10 MB of English or source code
LONGEST = 64  # characters of a piece that is remembered

_WORD = "A-Za-z0-9"
_TIED = r"(?:'[A-Za-z\x80-\U0010ffff]|[\x80-\U0010ffff])"  # what may not be cut off a letter or digit before it
_APART = r"(?<=[ !-.:-@\[-`{-~][!-/:-@\[-`{-~])"  # what may be cut off a letter or digit behind it
_pieces = re.compile(
    # the common case first: a word, with or without a space before it
    rf" ?(?:[{_WORD}]++(?!{_TIED})|(?:[^{_WORD} ]+|[{_WORD}]++(?={_TIED})| +(?!\S))*+(?:(?!{_APART})[{_WORD}]++)?)"
).findall

_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_FIRST = r"[^\r\n\p{L}\p{N}]?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_OTHERS, _OTHERS_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n]*", r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_PATTERNS = {  # of the published tokenizer.json files, to the letter; GPT-2's is the library's own
    "cl100k, Llama 3": rf"{_CONTRACTION}|{_FIRST}\p{{L}}+|\p{{N}}{{1,3}}|{_OTHERS}|{_SPACES}",
    "Qwen 2, 2.5, 3": rf"{_CONTRACTION}|{_FIRST}\p{{L}}+|\p{{N}}|{_OTHERS}|{_SPACES}",
    "Qwen 3.5": rf"{_CONTRACTION}|{_FIRST}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}",
    "o200k": (
        rf"{_FIRST}{_UPPER}*{_LOWER}+{_CONTRACTION}?|{_FIRST}{_UPPER}+{_LOWER}*{_CONTRACTION}?|"
        rf"\p{{N}}{{1,3}}|{_OTHERS_SLASH}|{_SPACES}"
    ),
    "Tekken": rf"{_FIRST}{_UPPER}*{_LOWER}+|{_FIRST}{_UPPER}+{_LOWER}*|\p{{N}}|{_OTHERS_SLASH}|{_SPACES}",
}


class WordEncoder:
    """Encodes the texts of one worker thread as ordinary text; see the module's guarantee.

    It remembers the ids of up to `REMEMBERED` pieces of text, of up to `LONGEST` characters each. Whenever half as many
    have come since the last time, the others, which were not met since, are forgotten.

    Attributes:
        tokenizer: one of `LoadedTokenizer.clone_ordinary`, used by this thread only.

    Args:
        separable: `LoadedTokenizer.separable`; False asks the library for each text as a whole.
    """

    __slots__ = ("_older", "_recent", "_separable", "tokenizer")

    def __init__(self, tokenizer: tokenizers.Tokenizer, separable: bool) -> None:
        self.tokenizer = tokenizer
        self._separable = separable
        self._recent: dict[str, bytes] = {}  # int32 ids of pieces
        self._older: dict[str, bytes] = {}

    def encode(self, text: str) -> np.ndarray:
        """Ids of `text`, int32 (n,), no special tokens added."""
        if not self._separable:
            return np.array(encode_ordinary(self.tokenizer, text), np.int32)
        return _joined(self._look_up(_pieces(text)))

    def encode_marked(self, text: str, marks: Sequence[int]) -> tuple[np.ndarray, list[int]]:
        """Ids of `text`, and where in them some characters are.

        Args:
            text: as in `encode`.
            marks: indices of characters; they may lie outside.

        Returns:
            the ids; for each mark the index of the first token whose first character is at or behind it, their number
            if there is none.
        """
        if not self._separable:
            encoding = self.tokenizer.encode(text, add_special_tokens=False)
            return np.array(encoding.ids, np.int32), [first_token_from(encoding, mark) for mark in marks]
        pieces = _pieces(text)
        starts = list(accumulate(map(len, pieces), initial=0))
        spots: list[tuple[int, int]] = []  # of each mark: the piece, and the character in it
        within: dict[int, tokenizers.Encoding] = {}  # pieces with a mark behind their start: each is encoded once
        for mark in marks:
            mark = min(max(mark, 0), len(text))
            number = bisect_right(starts, mark) - 1
            spots.append((number, mark - starts[number]))
            if starts[number] < mark and number not in within:
                within[number] = self.tokenizer.encode(pieces[number], add_special_tokens=False)
                pieces[number] = ""  # so it is not looked up
        found = self._look_up(pieces)
        for number, encoding in within.items():
            found[number] = array("i", encoding.ids).tobytes()
        tokens = [size // 4 for size in accumulate(map(len, found), initial=0)]
        places = [
            tokens[number] + (first_token_from(within[number], character) if character else 0)
            for number, character in spots
        ]
        return _joined(found), places

    def _look_up(self, pieces: list[str]) -> list[bytes]:
        """Ids of each piece."""
        found = list(map(self._recent.get, pieces))
        for number in [number for number, ids in enumerate(found) if ids is None]:
            piece = pieces[number]
            ids = self._recent.get(piece)  # now there, if it came before in this text
            if ids is None:
                ids = self._older.get(piece)
                if ids is None:
                    ids = array("i", encode_ordinary(self.tokenizer, piece)).tobytes()
                if len(piece) <= LONGEST:
                    self._remember(piece, ids)
            found[number] = ids
        return found  # type: ignore[return-value]

    def _remember(self, piece: str, ids: bytes) -> None:
        if len(self._recent) >= REMEMBERED // 2:
            self._older, self._recent = self._recent, {}
        self._recent[piece] = ids


def _joined(found: list[bytes]) -> np.ndarray:
    return np.frombuffer(bytearray().join(found), np.int32)


def first_token_from(encoding: tokenizers.Encoding, character: int) -> int:
    """Index of the first token whose first character is at or behind `character`; the number of tokens if none is."""
    low, high = 0, len(encoding)
    while low < high:
        middle = (low + high) // 2
        span = encoding.token_to_chars(middle)
        if span is not None and span[0] < character:
            low = middle + 1
        else:
            high = middle
    return low


def separable(parsed: dict[str, Any]) -> bool:
    """Whether the ids of ordinary text are those of its pieces, cut as the module's text says.

    Args:
        parsed: the tokenizer, parsed from its JSON as the library writes it. Of the added tokens only those of white
            space count: the others are none in ordinary text.
    """
    return (
        parsed["model"]["type"] == "BPE"
        and not parsed["model"].get("dropout")
        and (parsed["normalizer"] or {"type": "NFC"}) == {"type": "NFC"}
        and _cuts_like_gpt(parsed["pre_tokenizer"])
        and not any(_takes_spaces(token) for token in parsed["added_tokens"] if token["content"].isspace())
    )


def _cuts_like_gpt(pre_tokenizer: Any) -> bool:
    match pre_tokenizer:
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}:
            return True
        case {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        }:
            return pattern in _PATTERNS.values()
    return False


def _takes_spaces(token: dict[str, Any]) -> bool:
    """Whether an added token can hold the space before a word, or depends on what is around it."""
    return token["content"].endswith(" ") or token["lstrip"] or token["rstrip"] or token["single_word"]
