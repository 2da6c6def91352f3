"""Draws: whole numbers that depend on a key alone, the same on every machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from zephon_ft.random import key_of, mix

T = TypeVar("T")


class Draws:
    """A sequence of draws; `key` is what they are for."""

    def __init__(self, *key: int | str) -> None:
        self._key = key_of(*key)
        self._count = 0

    def below(self, n: int) -> int:
        """One of 0 .. n-1."""
        self._count += 1
        return mix(self._key, self._count) % n

    def one(self, choices: Sequence[T]) -> T:
        """One of the choices."""
        return choices[self.below(len(choices))]

    def several(self, choices: Sequence[T], n: int) -> list[T]:
        """`n` different ones, in the order drawn."""
        left = list(choices)
        return [left.pop(self.below(len(left))) for _ in range(n)]
