"""`pack`: several records in one row of fixed length, under several budgets at once.

Decides from lengths alone, in stream order: the packing is a function of the lane's stream, whatever the threads. Never
splits a record (`pack_flat` does), so never an image. A record over a budget is dropped (counted), cut at the end of
its text, or an error, as `over_long` says; an image is never cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from zephon_ft.errors import ConfigError, DataError
from zephon_ft.ops.assemble import Piece, aligned_names, assemble, pads, token_ids
from zephon_ft.ops.base import Accumulator, AccumulatorContext, GroupWork, Operator, WorkContext
from zephon_ft.ops.bins import ALGORITHMS, Budgets
from zephon_ft.record import IGNORE_INDEX, Record, Row

_POLICIES = ("drop", "truncate_text", "error")


@dataclass(frozen=True)
class Pack(Operator):
    """Pack whole records into rows.

    Attributes:
        max_length: tokens in a row, at most.
        algorithm: ``"best_fit"`` (fullest bin that takes the record) or ``"first_fit"`` (oldest).
        open_bins: rows that are open at the same time; more fill better and hold more records in memory.
        max_images, max_patches: media items, and rows of media buffers, in a row at most; None = no limit.
        document_multiple: every document is padded to a multiple of this before it is placed (context parallelism).
        row_multiple: the length of delivered rows, `row_length`, is `max_length` rounded up to a multiple of this.
        over_long: what to do with a record over a budget by itself: ``"drop"`` it (counted), ``"truncate_text"`` (cut
            tokens from its end; dropped where that would cost an image or every label), or ``"error"``.
        pad_token_id: `input_ids` of padding.
        pad_values: value of every other aligned field in padding, by name; also stands in for scalars that some
            records lack.
        reserve: tokens kept free in each row for the dummy image of `batch(ensure_image=True)`; set by the pipeline.

    Raises:
        ConfigError: at once, for options out of range.
    """

    name = "pack"
    stateful = True
    light = True

    max_length: int
    algorithm: str = "best_fit"
    open_bins: int = 32
    max_images: int | None = None
    max_patches: int | None = None
    document_multiple: int = 1
    row_multiple: int = 1
    over_long: str = "drop"
    pad_token_id: int = 0
    pad_values: Mapping[str, Any] = field(default_factory=dict)
    reserve: int = 0

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise ConfigError(f"pack: algorithm {self.algorithm!r} is none of {', '.join(ALGORITHMS)}")
        if self.over_long not in _POLICIES:
            raise ConfigError(f"pack: over_long {self.over_long!r} is none of {', '.join(_POLICIES)}")
        for option in ("max_length", "open_bins", "document_multiple", "row_multiple"):
            if getattr(self, option) < 1:
                raise ConfigError(f"pack: {option} must be at least 1, not {getattr(self, option)}")
        for option in ("max_images", "max_patches"):
            if getattr(self, option) is not None and getattr(self, option) < 0:
                raise ConfigError(f"pack: {option} must be None or at least 0, not {getattr(self, option)}")
        if self.capacity < 1:
            raise ConfigError(
                f"pack: max_length {self.max_length} leaves no room for a document: {self.reserve} tokens are reserved "
                f"for a dummy image and documents are padded to multiples of {self.document_multiple}"
            )

    @property
    def plans_by_length(self) -> bool:  # type: ignore[override]
        """Truncation looks at labels, everything else at lengths."""
        return self.over_long != "truncate_text"

    @property
    def capacity(self) -> int:
        """Tokens of a row that documents may use."""
        return (self.max_length - self.reserve) // self.document_multiple * self.document_multiple

    @property
    def row_length(self) -> int:
        """Length of the rows in a batch."""
        return -(-self.max_length // self.row_multiple) * self.row_multiple

    def accumulator(self) -> Accumulator:
        return _Packer(self)

    def bind(self, context: WorkContext) -> GroupWork:
        pad, multiple = pads(self.pad_token_id, self.pad_values), self.document_multiple

        def work(group: list[Record]) -> Row:
            return assemble([Piece(record, 0, record.num_tokens) for record in group], pad, multiple)

        return work

    def recipe(self) -> dict[str, Any]:
        return {
            "max_length": self.max_length,
            "algorithm": self.algorithm,
            "open_bins": self.open_bins,
            "max_images": self.max_images,
            "max_patches": self.max_patches,
            "document_multiple": self.document_multiple,
            "row_multiple": self.row_multiple,
            "over_long": self.over_long,
            "pad_token_id": self.pad_token_id,
            "pad_values": dict(self.pad_values),
            "reserve": self.reserve,
        }


class _Packer(Accumulator):
    """Places records one by one; a group is the records of one closed bin."""

    def __init__(self, options: Pack) -> None:
        self._options = options
        self._capacity = options.capacity
        self._multiple = options.document_multiple
        self._max_images = inf if options.max_images is None else options.max_images
        self._max_patches = inf if options.max_patches is None else options.max_patches
        budgets = Budgets(self._capacity, self._max_images, self._max_patches, self._multiple, options.open_bins)
        self._bins = ALGORITHMS[options.algorithm](budgets)

    def open(self, context: AccumulatorContext) -> None:
        self._drop = context.drop

    def push(self, unit: Record) -> Iterable[list[Any]]:
        tokens = len(token_ids(unit, "pack"))
        if self._multiple > 1:
            tokens = -(-tokens // self._multiple) * self._multiple
        images = patches = 0
        if unit.media:
            images, patches = len(unit.media), sum(item.rows for item in unit.media)
        if tokens > self._capacity or images > self._max_images or patches > self._max_patches:
            shorter = self._over_long(unit, images, patches)
            return () if shorter is None else self._bins.place(shorter, self._capacity, images, patches)
        if not tokens:
            self._drop(unit, "no tokens")
            return ()
        return self._bins.place(unit, tokens, images, patches)

    def finish(self) -> Iterable[list[Any]]:
        return self._bins.drain()

    def _over_long(self, record: Record, images: int, patches: int) -> Record | None:
        """The record cut to the capacity, or None: dropped and reported."""
        options, cut = self._options, self._capacity
        if options.over_long == "error":
            raise DataError(
                f"pack: a record with {record.num_tokens} tokens, {images} images, {patches} patches is over a budget: "
                f"{cut} tokens, {options.max_images} images, {options.max_patches} patches (None = no limit); "
                f'raise the budget or choose over_long="drop" or "truncate_text"'
            )
        reason = None
        if options.over_long == "drop":
            reason = "over-long"
        elif images > self._max_images or patches > self._max_patches:
            reason = "over-long: too many images"
        elif any(item.offset + item.tokens > cut for item in record.media):
            reason = "over-long: the cut would lose an image"
        elif not _learns(record, cut):
            reason = "over-long: the cut would lose all labels"
        if reason is not None:
            self._drop(record, reason)
            return None
        fields = {**record.fields, **{name: record.fields[name][:cut] for name in aligned_names(record)}}
        return replace(record, fields=fields)


def _learns(record: Record, cut: int) -> bool:
    """Whether a supervised token is left before the cut (the first label of a document never counts)."""
    labels = record.fields.get("labels")
    return labels is None or bool((labels[1:cut] != IGNORE_INDEX).any())
