"""`Batch`: what a lane delivers - a small header plus flat numpy buffers.

Three encodings of the same document boundaries are derived from one, `positions`, which restarts at 0 with every
document. Padding is a document of its own, so over the flattened batch
``document_ids = cumsum(positions == 0) - 1`` and ``cu_seqlens = where(positions == 0) ++ [T]`` hold.
Media are uint8, as decoded; what models want of them is made in `to_training`. `layout` makes batches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from zephon_ft.digest import digest_of
from zephon_ft.record import IGNORE_INDEX, Key, Media


@dataclass(frozen=True, slots=True)
class Fill:
    """One media item that is still to be decoded into a batch.

    Attributes:
        media: what to decode.
        kind: name of the buffer in `Batch.arrays`.
        start, stop: its rows in that buffer.
        row, column, length: where its document lies: tokens column..column+length-1 of a row. Length 0: the batch has
            no tokens, and `row` is the record's number.
    """

    media: Media
    kind: str
    start: int
    stop: int
    row: int
    column: int
    length: int


class Origin(NamedTuple):
    """Where one document of a row came from, and where it lies.

    Attributes:
        dataset: name of its dataset.
        shard, row, repetition: its source row, and in which pass over the dataset.
        children: child numbers, one per `flat_map` on its way.
        offset: index of its first token in the record's `input_ids` (not 0 where `pack_flat` cut it).
        start, stop: its tokens in the row of the batch; both 0 in a batch without tokens.
    """

    dataset: str
    shard: int
    row: int
    repetition: int
    children: tuple[int, ...]
    offset: int
    start: int
    stop: int


@dataclass(slots=True, weakref_slot=True, eq=False)
class Batch:
    """One batch of B rows.

    Attributes:
        arrays: of a token batch, L tokens a row, D documents (padding and dummies not counted), N images, P rows:
            ``input_ids``, ``labels``, ``positions`` int32 (B, L); aligned fields (B, L) under their names;
            ``document_lengths`` int32 (D,); scalar fields (D,) under their names; per media kind its buffer, e.g.
            ``pixel_values`` uint8 (P, ...), and its columns, e.g. ``image_grid_thw`` int64 (N, 3);
            ``rope_positions`` int32 (3, B, L) where a kind has them.
        columns: of a batch without tokens, its fields by name: an array (B, ...) where all values are numbers or arrays
            of one shape, else a list.
        keys: identity of the record behind each document, per row.
        kinds: the media kinds of the pipeline by name of their buffer.
        aligned, scalars: names of the arrays that come from fields of the records.
        offsets: int32 (D,), see `Row.offsets`.
        row_length: L of packed rows, which is the same in every batch; 0 where rows are records.
        fills: media still to be decoded when the batch was laid out.
        names: names of the datasets, by dataset number.
        lane, index: the lane that it belongs to, and its number in that lane.
        step: the optimizer step that it belongs to.
        stamp: its place in the stream, for `state_dict(after=batch)`.
        parts: with `lanes_per_batch` > 1, the lane batches that were joined; they share the memory of this one.
    """

    arrays: dict[str, np.ndarray]
    columns: dict[str, Any] = field(default_factory=dict)
    keys: tuple[tuple[Key, ...], ...] = ()
    kinds: Mapping[str, Any] = field(default_factory=dict)
    aligned: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()
    offsets: np.ndarray | None = None
    row_length: int = 0
    fills: list[Fill] = field(default_factory=list)
    names: tuple[str, ...] = ()
    lane: int = 0
    index: int = 0
    step: int = 0
    stamp: Any = None
    parts: tuple[Batch, ...] = ()

    def __len__(self) -> int:
        """Number of rows B."""
        return len(self.keys)

    @property
    def has_tokens(self) -> bool:
        """Whether the batch was made of tokenized records."""
        return "input_ids" in self.arrays

    @property
    def num_tokens(self) -> int:
        """Tokens of documents, padding of rows and dummies not counted."""
        return int(self.arrays["document_lengths"].sum()) if self.has_tokens else 0

    @property
    def num_valid_tokens(self) -> int:
        """Labels that a loss counts, before as after a shift: the first label of a document never counts."""
        return int(np.count_nonzero(self.arrays["labels"] != IGNORE_INDEX)) if self.has_tokens else 0

    @property
    def fill_rate(self) -> float:
        """Share of the B * L places that documents use; 1.0 for a batch without tokens."""
        return self.num_tokens / self.arrays["input_ids"].size if self.has_tokens else 1.0

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        held = [*self.arrays.values(), *self.columns.values()]
        return sum(value.nbytes for value in held if isinstance(value, np.ndarray))

    def row_tokens(self) -> np.ndarray:
        """Tokens of documents in each row of a token batch: int32 (B,)."""
        documents = np.array([len(keys) for keys in self.keys])
        ends = np.cumsum(documents)
        before = np.concatenate([[0], np.cumsum(self.arrays["document_lengths"])])  # a masked row has no document
        return (before[ends] - before[ends - documents]).astype(np.int32)

    def records(self) -> list[list[Origin]]:
        """Where every document of every row came from."""
        lengths = self.arrays["document_lengths"].tolist() if self.has_tokens else [0] * sum(map(len, self.keys))
        offsets = [0] * len(lengths) if self.offsets is None else self.offsets.tolist()
        document, rows = 0, []
        for keys in self.keys:
            row, start = [], 0
            for dataset, shard, source_row, repetition, *children in keys:
                name = self.names[dataset] if dataset < len(self.names) else str(dataset)
                stop = start + lengths[document]
                place = (offsets[document], start, stop)
                row.append(Origin(name, shard, source_row, repetition, tuple(children), *place))
                document, start = document + 1, stop
            rows.append(row)
        return rows

    def blank(self, fill: Fill) -> None:
        """Give up a media item: its pixels become zero and no label of its document counts."""
        self.arrays[fill.kind][fill.start : fill.stop] = 0
        if fill.length:
            self.arrays["labels"][fill.row, fill.column : fill.column + fill.length] = IGNORE_INDEX

    def digest(self, pixels: bool = True) -> str:
        """SHA-256 (hex) over names, dtypes, shapes and bytes in the order of names; see `digest_of`.

        Args:
            pixels: False leaves the media buffers out: what is left is the same for every decoder build.

        A lane batch is the unit of determinism: of joined lane batches it is the SHA-256 over their digests.
        """
        if self.parts:
            return hashlib.sha256("".join(part.digest(pixels) for part in self.parts).encode()).hexdigest()
        arrays = {name: array for name, array in self.arrays.items() if pixels or name not in self.kinds}
        return digest_of({**self.columns, **arrays})

    def to_training(
        self, device: Any = None, dtype: Any = None, shift_labels: bool = False, layout: str = "padded"
    ) -> dict[str, Any]:
        """Tensors for a trainer: see `zephon_ft.training.to_training`."""
        from zephon_ft.training import to_training

        return to_training(self, device=device, dtype=dtype, shift_labels=shift_labels, layout=layout)
