"""`shuffle`: a streaming shuffle of units (records or packed rows) within each flush interval.

The output of an interval is a permutation of its input and a function of the lane's stream and the seed alone. Units
are plans: no pixels are moved or held. The buffer emits from its 16th unit on, one for every two taken in, until it
holds `buffer_size`; then one for one: the first units come early, and the buffer is still large soon after a flush.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from zephon_ft.errors import ConfigError
from zephon_ft.ops.base import Accumulator, AccumulatorContext, Operator
from zephon_ft.random import key_of, mix

_FIRST = 16  # units in the buffer when the first one leaves


@dataclass(frozen=True)
class Shuffle(Operator):
    """Shuffle units through a buffer.

    Attributes:
        buffer_size: units that each is drawn from; 1 leaves the order as it is.
        seed: of the draws; None = the pipeline's seed.

    Raises:
        ConfigError: at once, for a buffer_size below 1.
    """

    name = "shuffle"
    stateful = True
    plans_by_length = True

    buffer_size: int
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.buffer_size < 1:
            raise ConfigError(f"shuffle: buffer_size must be at least 1, not {self.buffer_size}")

    def accumulator(self) -> Accumulator:
        return _Shuffler(self)

    def has_work(self) -> bool:
        return False

    def recipe(self) -> dict[str, Any]:
        return {"buffer_size": self.buffer_size, "seed": self.seed}


class _Shuffler(Accumulator):
    """Draw number i of an interval picks place ``mix(key, i) % size`` of the buffer; the last unit takes its place."""

    def __init__(self, options: Shuffle) -> None:
        self._options = options
        self._size = options.buffer_size
        self._first = min(_FIRST, options.buffer_size)
        self._units: list[Any] = []
        self._draws = 0
        self._skip = False

    def open(self, context: AccumulatorContext) -> None:
        seed = context.seed if self._options.seed is None else self._options.seed
        self._key = key_of(seed, self._options.name, context.position, context.lane, context.flush)

    def push(self, unit: Any) -> Iterable[list[Any]]:
        units = self._units
        units.append(unit)
        held = len(units)
        if held < self._first:
            return ()
        if held < self._size:
            self._skip = not self._skip
            if not self._skip:
                return ()
        return ([self._draw()],)

    def finish(self) -> Iterable[list[Any]]:
        rest = [self._draw() for _ in range(len(self._units))]
        return (rest,) if rest else ()

    def _draw(self) -> Any:
        units = self._units
        place = mix(self._key, self._draws) % len(units)
        self._draws += 1
        units[place], units[-1] = units[-1], units[place]
        return units.pop()
