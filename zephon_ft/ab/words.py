"""Random words: text of a wanted length in tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

_WORDS = (  # parted by spaces
    "the a one this that of in on at by near under behind with without and or but so while because picture "
    "photo shows we can see light shadow colour red green blue yellow dark bright small large round long old "
    "new left right top bottom corner middle front back sky ground water stone wood metal glass leaf flower "
    "animal person hand face eye machine wheel engine cup table wall window roof street star planet cell "
    "tissue thread line edge shape pattern texture surface it is are was seems looks appears stands lies hangs "
    "moves rests slightly clearly barely almost very quite probably about three two four several many few "
    "question answer describe what where how why which therefore however finally first second "
)


def words(tokenizer: Any, tokens: int, rng: np.random.Generator) -> str:
    """Text of about `tokens` tokens."""
    known = _WORDS.split()
    text = " ".join(known[i] for i in rng.integers(0, len(known), tokens))
    ends = tokenizer.encode(text).offsets
    return text if len(ends) <= tokens else text[: ends[tokens - 1][1]]
