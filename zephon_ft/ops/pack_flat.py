"""`pack_flat`: continuous text, cut exactly at the row length; every row but the last of an interval is full.

The rest of a cut document is a document of its own: positions restart and its first label is -100. No token is lost: a
flush emits the short tail row, which `batch` pads. With ``shift_labels`` the last token of a cut row is repeated as the
first of the next one, so that, once labels are shifted, every next token of a document is predicted exactly once;
without it each source token appears exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from zephon_ft.errors import ConfigError, DataError
from zephon_ft.ops.assemble import Piece, assemble, pads, token_ids
from zephon_ft.ops.base import Accumulator, AccumulatorContext, GroupWork, Operator, WorkContext
from zephon_ft.record import Record, Row


@dataclass(frozen=True)
class PackFlat(Operator):
    """Concatenate documents and cut rows of exactly `max_length` tokens.

    Attributes:
        max_length: tokens in a row.
        algorithm: ``"wrap"``: a document that does not fit goes on in the next row.
        shift_labels: repeat the last token of a cut document at the start of the next row (for training with
            ``to_training(shift_labels=True)`` or models that shift inside).
        pad_token_id, pad_values: as in `pack`.

    Raises:
        ConfigError: at once, for options out of range.
        DataError: while running, for a record with images: they cannot be cut, use `pack`.
    """

    name = "pack_flat"
    stateful = True
    plans_by_length = True
    light = True

    max_length: int
    algorithm: str = "wrap"
    shift_labels: bool = False
    pad_token_id: int = 0
    pad_values: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.algorithm != "wrap":
            raise ConfigError(f'pack_flat: algorithm {self.algorithm!r} is not known; "wrap" is')
        if self.max_length < (least := 2 if self.shift_labels else 1):
            raise ConfigError(f"pack_flat: max_length must be at least {least}, not {self.max_length}")

    @property
    def row_length(self) -> int:
        """Length of the rows in a batch."""
        return self.max_length

    def accumulator(self) -> Accumulator:
        return _Cutter(self.max_length, int(self.shift_labels))

    def bind(self, context: WorkContext) -> GroupWork:
        pad = pads(self.pad_token_id, self.pad_values)

        def work(group: list[Piece]) -> Row:
            return assemble(group, pad, operator="pack_flat")

        return work

    def recipe(self) -> dict[str, Any]:
        return {
            "max_length": self.max_length,
            "algorithm": self.algorithm,
            "shift_labels": self.shift_labels,
            "pad_token_id": self.pad_token_id,
            "pad_values": dict(self.pad_values),
        }


class _Cutter(Accumulator):
    """A group is the pieces of one row; a long record is in several groups."""

    conserves = False

    def __init__(self, length: int, overlap: int) -> None:
        self._length, self._overlap = length, overlap
        self._pieces: list[Piece] = []
        self._free = length

    def open(self, context: AccumulatorContext) -> None:
        self._drop = context.drop

    def push(self, unit: Record) -> Iterable[list[Any]]:
        tokens = len(token_ids(unit, "pack_flat"))
        if unit.media:
            raise DataError(
                f"pack_flat: the record has {len(unit.media)} images, and an image cannot be cut: use pack() for it"
            )
        if not tokens:
            self._drop(unit, "no tokens")
            return ()
        if tokens < self._free:
            self._pieces.append(Piece(unit, 0, tokens))
            self._free -= tokens
            return ()
        rows, start = [], 0
        while True:
            stop = min(start + self._free, tokens)
            self._pieces.append(Piece(unit, start, stop))
            self._free -= stop - start
            if not self._free:
                rows.append(self._pieces)
                self._pieces, self._free = [], self._length
            if stop == tokens:
                return rows
            start = stop - self._overlap

    def finish(self) -> Iterable[list[Any]]:
        pieces, self._pieces = self._pieces, []
        return [pieces] if pieces else ()
