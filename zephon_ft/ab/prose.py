"""Real text for the benchmarks: prose of the running Python's reference documentation.

Random words of a short list would not do: an encoder that remembers words would always have seen them all.
"""

from __future__ import annotations

from pydoc_data.topics import topics  # what `help("if")` shows
from typing import Any

import numpy as np

_CHARACTERS = 12  # more than tokens have, on average, in any stretch
_TEXTS = [text for _, text in sorted(topics.items())]
_ENDS = np.cumsum([len(text) for text in _TEXTS])


def prose(tokenizer: Any, tokens: int, rng: np.random.Generator) -> str:
    """A stretch of `tokens` tokens, from anywhere (so stretches may overlap); fewer of a text that is short."""
    place = int(rng.integers(_ENDS[-1]))
    number = int(np.searchsorted(_ENDS, place, side="right"))
    text = _TEXTS[number]
    start = min(place - int(_ENDS[number]) + len(text), max(0, len(text) - tokens * _CHARACTERS))
    text = text[start : start + tokens * _CHARACTERS]
    ends = tokenizer.encode(text).offsets
    return text if len(ends) <= tokens else text[: ends[tokens - 1][1]]
