"""How fast a picture is worked on: one size of picture, the best of a few runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

SIDE, TARGET = 1024, 448  # pixels: a square picture, and what it is resized to
_TIMES = 7


def megapixels_per_s(work: Callable[[], Any]) -> float:
    """Source pixels per second, in millions, of `work` on one picture of `SIDE` x `SIDE`."""
    best = float("inf")
    for _ in range(_TIMES):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return round(SIDE * SIDE / best / 1e6, 1)
