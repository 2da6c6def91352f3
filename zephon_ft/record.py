"""What travels through a pipeline: Media, Record and Row.

A `Record` is one source row on its way; `pack` turns several into a `Row`. Neither holds pixels: an image travels
as a `Media` item (header facts, token count, encoded bytes while the budget can spare them) and is decoded once,
straight into the batch it lands in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# (dataset index, shard, row, pass, child number of each flat_map ...): who a record is, wherever it is processed.
Key = tuple[int, ...]

IGNORE_INDEX = -100  # the label that no loss counts (PyTorch's cross_entropy default)


@dataclass(frozen=True, slots=True)
class Media:
    """One media item. `pack`, `batch` and fills know its kind only by these fields.

    Attributes:
        kind: name of the batch buffer that it is decoded into, e.g. ``"pixel_values"``.
        tokens: number of placeholder tokens that it takes in `input_ids`.
        rows: number of rows that it takes in its kind's buffer (patches for Qwen, 1 for a fixed square).
        facts: what its kind needs to lay it out and decode it; immutable plain values.
        data: the encoded bytes, in worker processes perhaps a view of shared memory that is good for the task only; or
            None where the engine dropped them (the fill then fetches them again).
        offset: index of its first placeholder token in its record's (or row's) `input_ids`; -1 before tokenization.
        key: identity of the record that it belongs to.
        position: source position of that record in its lane.
        index: its number within that record.
    """

    kind: str
    tokens: int
    rows: int
    facts: Any
    data: bytes | memoryview | None
    offset: int = -1
    key: Key = ()
    position: int = -1
    index: int = 0


@dataclass(slots=True)
class Record:
    """One source row (or a child of one).

    Attributes:
        key: identity, see `Key`.
        position: ordinal of its source row in its lane (0, 1, 2, ...); behind a stateful operator, the number of its
            group in the flush interval (set by the engine).
        fields: the payload. After tokenization: `input_ids` int32 (n,), `labels` int32 (n,) where supervision is not
            "every token", any 1-D array of the same length (travels aligned) and scalars (one per document).
        media: its media items, in order of appearance.
        nbytes: bytes that it keeps in memory, as the byte budget counts them (set by the engine).
    """

    key: Key
    position: int
    fields: dict[str, Any]
    media: tuple[Media, ...] = ()
    nbytes: int = 0

    @property
    def num_tokens(self) -> int:
        """Length of `input_ids`, 0 where the record has none."""
        ids = self.fields.get("input_ids")
        return 0 if ids is None else len(ids)


class Sketch(Record):
    """A record of which only lengths are known, from a cost index: enough for accumulators to decide.

    `input_ids` is an array of the right length without content. A worker replaces it by the real record before anyone
    looks at more than lengths.
    """

    __slots__ = ()


@dataclass(slots=True)
class Row:
    """One packed row: documents one behind the other, without the padding at its end.

    Attributes:
        fields: aligned 1-D arrays of one length (n,): `input_ids` int32, `labels` int32 (first label of each document
            is -100), and every other aligned field.
        lengths: int32 (documents,): length of each document, its own padding to `document_multiple` included; their sum
            is n.
        keys: identity of the record behind each document.
        scalars: one array (documents,) per scalar field.
        media: media of all documents, in order; `offset` counts from the start of the row.
        nbytes: as in `Record`.
        offsets: int32 (documents,): index of each document's first token in its record's `input_ids`; not 0 only where
            `pack_flat` cut the record. None = all 0.
        position: number of its group among those of its operator in the flush interval (set by the engine).
    """

    fields: dict[str, np.ndarray]
    lengths: np.ndarray
    keys: tuple[Key, ...]
    scalars: Mapping[str, np.ndarray] = field(default_factory=dict)
    media: tuple[Media, ...] = ()
    nbytes: int = 0
    offsets: np.ndarray | None = None
    position: int = -1

    @property
    def num_tokens(self) -> int:
        """Tokens in the row, padding of documents included, padding of the row not."""
        return len(self.fields["input_ids"])


Unit = Record | Row  # what `shuffle` and `batch` take in
