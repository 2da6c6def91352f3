"""Which dataset the next record comes from, so that shares hold in every stretch of the stream.

Tijdeman's solution of the chairman assignment problem (Discrete Mathematics 32, 1980): after n choices the count of
each dataset is less than 1 away from n * weight. So any K consecutive choices hold K * weight +- 2 of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm

import numpy as np

_TABLE = 1 << 16  # the schedule repeats after `period` choices; periods up to this are kept as a table


def integer_weights(weights: Sequence[float]) -> list[int]:
    """Weights as the smallest whole numbers of the same ratios (each read as a fraction of at most 6 digits)."""
    fractions = [Fraction(w).limit_denominator(10**6) for w in weights]
    scale = lcm(*(f.denominator for f in fractions))
    whole = [int(f * scale) for f in fractions]
    divisor = gcd(*whole)
    return [w // divisor for w in whole]


class Schedule:
    """The endless sequence of choices for fixed weights.

    Args:
        weights: whole numbers > 0, one per dataset.
    """

    def __init__(self, weights: Sequence[int]) -> None:
        self._weights = list(weights)
        self.period = sum(self._weights)
        self._table: np.ndarray | None = None
        if len(self._weights) == 1:
            self._table = np.zeros(1, np.int64)
        elif self.period <= _TABLE:
            self._table = np.array(self._choose(0, [0] * len(self._weights), self.period), np.int64)

    def choices(self, start: int, counts: Sequence[int], n: int) -> np.ndarray:
        """Choices number start .. start+n-1, int64 (n,); `counts` are the choices of each dataset before `start`."""
        if self._table is not None:
            return self._table[np.arange(start, start + n) % len(self._table)]
        return np.array(self._choose(start, list(counts), n), np.int64)

    def _choose(self, start: int, counts: list[int], n: int) -> list[int]:
        weights, total = self._weights, self.period
        slack = 2 * len(weights) - 2
        chosen = []
        for step in range(start + 1, start + n + 1):
            best, best_due, best_weight = -1, 0, 1
            for i, weight in enumerate(weights):
                behind = step * weight - counts[i] * total
                if behind * slack < total:
                    continue  # too early for this one
                due = (slack - 1) * total - slack * behind  # time left, in units of 1 / (slack * weight)
                if best < 0 or due * best_weight < best_due * weight:
                    best, best_due, best_weight = i, due, weight
            counts[best] += 1
            chosen.append(best)
        return chosen
