"""`batch`: the last step of every pipeline. Cuts the stream of units into batches and lays each one out.

Not an accumulator: a partial batch is carried across a flush, so that batches are always full. Where a batch is cut
depends on the units alone; its layout is a pure function of them, done once they are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from zephon_ft.batch import Batch
from zephon_ft.buffers import BufferPool
from zephon_ft.errors import ConfigError, DataError
from zephon_ft.layout import lay_out
from zephon_ft.ops.base import Operator
from zephon_ft.ops.pack import Pack
from zephon_ft.ops.pack_flat import PackFlat
from zephon_ft.record import Unit


@dataclass(frozen=True)
class BatchOp(Operator):
    """Cut batches of a number of units, or of a number of tokens.

    Attributes:
        size: units (packed rows, or records) per batch.
        tokens: tokens per batch, instead of `size`. After `pack`, a multiple of its row length: so many rows. Else as
            many records as fit, in order, counted without padding.
        ensure_image: put one declared dummy per media kind into a batch that has none of it: a document of its own in
            the padding of the last row, labels -100, zero pixels. Needs `pack`, which reserves the room.
        pad_to_multiple: where rows are records, L is the longest one, rounded up to a multiple of this.
        pad_token_id, pad_values: as in `pack`, whose values the pipeline puts here when there is one.
        row_length: L of packed rows, None where units are records; set by the pipeline (`after`).
        dummy_token_id: `input_ids` of a dummy's tokens; set by the pipeline.

    Raises:
        ConfigError: at once, for options that do not go together.
    """

    name = "batch"

    size: int | None = None
    tokens: int | None = None
    ensure_image: bool = False
    pad_to_multiple: int = 1
    pad_token_id: int = 0
    pad_values: Mapping[str, Any] = field(default_factory=dict)
    row_length: int | None = None
    dummy_token_id: int = 0

    def __post_init__(self) -> None:
        if (self.size is None) == (self.tokens is None):
            raise ConfigError(
                "batch: give either a number of units, batch(8), or a number of tokens, batch(tokens=8192)"
            )
        for option in ("size", "tokens", "pad_to_multiple"):
            if getattr(self, option) is not None and getattr(self, option) < 1:
                raise ConfigError(f"batch: {option} must be at least 1, not {getattr(self, option)}")
        if self.row_length is not None and self.tokens is not None and self.tokens % self.row_length:
            rows, length = self.tokens // self.row_length, self.row_length
            fits = " or ".join(str(n * length) for n in (rows, rows + 1) if n)
            raise ConfigError(f"batch: tokens={self.tokens} is no multiple of the row length {length}: use {fits}")

    def after(self, packer: Pack | PackFlat) -> BatchOp:
        """This operator, told about the rows that it will get.

        Raises:
            ConfigError: `tokens` is no multiple of the row length; `ensure_image` after `pack_flat`.
        """
        if self.ensure_image and not isinstance(packer, Pack):
            raise ConfigError("batch: ensure_image=True needs pack() before it; pack_flat() rows have no images")
        return replace(
            self,
            row_length=packer.row_length,
            pad_token_id=packer.pad_token_id,
            pad_values={**packer.pad_values, **self.pad_values},
        )

    @property
    def rows(self) -> int | None:
        """Rows of a batch, None where that varies (a number of tokens without `pack`)."""
        if self.size is not None or self.row_length is None or self.tokens is None:
            return self.size
        return self.tokens // self.row_length

    def has_work(self) -> bool:
        return False

    def new_cutter(self) -> Cutter:
        """The serial half: one per lane, for the whole run."""
        if self.ensure_image and self.row_length is None:
            raise ConfigError("batch: ensure_image=True needs pack() before it: pack keeps room for the dummy image")
        if self.tokens is None:
            return Cutter(size=self.size)
        if self.row_length is not None:
            return Cutter(size=self.tokens // self.row_length)
        return Cutter(tokens=self.tokens)

    def layout(
        self,
        units: Sequence[Unit],
        kinds: Mapping[str, Any] | None = None,
        pool: BufferPool | None = None,
        names: tuple[str, ...] = (),
    ) -> Batch:
        """Make the batch of these units: everything but the media is written, `Batch.fills` lists what is to decode.

        Args:
            units: what `Cutter.take` returned.
            kinds: the pipeline's media kinds by name of their buffer; every batch has the buffers of all of them.
            pool: where media buffers are leased; None = plain numpy memory.
            names: names of the datasets, by dataset number.
        """
        return lay_out(units, self, kinds or {}, pool, names)

    def recipe(self) -> dict[str, Any]:
        return {
            "size": self.size,
            "tokens": self.tokens,
            "ensure_image": self.ensure_image,
            "pad_to_multiple": self.pad_to_multiple,
            "pad_token_id": self.pad_token_id,
            "pad_values": dict(self.pad_values),
            "row_length": self.row_length,
            "dummy_token_id": self.dummy_token_id,
        }


class Cutter:
    """Collects units until a batch is complete.

    Use: ``if not cutter.fits(unit): emit(cutter.take())``, ``cutter.add(unit)``, ``if cutter.complete:
    emit(cutter.take())``.
    """

    def __init__(self, size: int | None = None, tokens: int | None = None) -> None:
        self._size = size
        self._limit = tokens
        self._units: list[Unit] = []
        self._tokens = 0
        self.complete = False  # whether to cut now, without waiting for another unit

    def __len__(self) -> int:
        """Units of the batch so far."""
        return len(self._units)

    def fits(self, unit: Unit) -> bool:
        """Whether the unit still goes into this batch; if not, cut before it."""
        return self._limit is None or not self._units or self._tokens + unit.num_tokens <= self._limit

    def add(self, unit: Unit) -> None:
        """Take in a unit that fits.

        Raises:
            DataError: a unit that is over the token limit by itself; a tokenized record without tokens.
        """
        if self._limit is not None:
            tokens = unit.num_tokens
            if "input_ids" not in unit.fields:
                raise DataError("batch: tokens= counts input_ids, and the record has none: put tokenize() before")
            if tokens > self._limit:
                raise DataError(
                    f"batch: a record of {tokens} tokens does not fit tokens={self._limit}: "
                    f"raise it, or drop long records with filter()"
                )
            self._tokens += tokens
            self.complete = self._tokens == self._limit
        if "input_ids" in unit.fields and not unit.num_tokens:
            raise DataError("batch: a record without tokens: drop such records with filter()")
        self._units.append(unit)
        if self._size is not None:
            self.complete = len(self._units) == self._size

    def take(self) -> list[Unit]:
        """The units of this batch; the next one begins."""
        units, self._units = self._units, []
        self._tokens, self.complete = 0, False
        return units
