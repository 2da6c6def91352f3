"""Summary of a lane batch: its digest, and small hashes of its parts, so that a difference can be told without it.

A part is one field of one row: of a token batch the row's stretch of an aligned field, the values of its documents, and
its images as decoded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from zephon_ft.batch import Batch
from zephon_ft.digest import digest_of
from zephon_ft.record import Key

_LONGEST = 60  # characters of a value that is shown


class Part(NamedTuple):
    """One field of one row (-1: of the whole batch): a hash, and the value itself where it is short."""

    field: str
    row: int
    hash: str
    text: str


@dataclass(frozen=True, slots=True)
class Summary:
    """A lane batch.

    Attributes:
        step, lane, index: its place.
        digest: as in `Batch.digest`.
        parts: its fields, row by row.
        keys: identity of the records behind each row.
    """

    step: int
    lane: int
    index: int
    digest: str
    parts: tuple[Part, ...]
    keys: tuple[tuple[Key, ...], ...]


def summarize(batch: Batch, image_token_id: int | None) -> Summary:
    """The summary of a lane batch.

    Args:
        image_token_id: what stands in `input_ids` for an image, to find which row an image belongs to.
    """
    parts = sorted(_parts(batch, image_token_id), key=lambda part: (part.row < 0, part.row))
    return Summary(batch.step, batch.lane, batch.index, batch.digest(), tuple(parts), batch.keys)


def _parts(batch: Batch, image_token_id: int | None) -> Iterator[Part]:
    rows = len(batch)
    for name, column in batch.columns.items():
        for row in range(rows):
            yield _part(name, row, column[row])
    edges = np.cumsum([0, *map(len, batch.keys)]).tolist()
    grid = batch.arrays["input_ids"].shape if batch.has_tokens else (rows, -1)
    for name, array in batch.arrays.items():
        if name in batch.kinds:
            yield from _media(batch, name, image_token_id)
        elif name == "document_lengths" or name in batch.scalars:
            for row, (start, stop) in enumerate(pairwise(edges)):
                yield _part(name, row, array[start:stop])
        elif array.shape == grid or name == "media_counts":
            for row in range(rows):
                yield _part(name, row, array[row])
        elif array.shape[1:] == grid:  # rope_positions
            for row in range(rows):
                yield _part(name, row, array[:, row])
        else:
            yield _part(name, -1, array)


def _media(batch: Batch, name: str, image_token_id: int | None) -> Iterator[Part]:
    """The images of a batch, each with the row that it belongs to."""
    from zephon_ft.vision.preview import previews, reassemble

    if batch.has_tokens and image_token_id is not None and len(batch.kinds) == 1:
        length = batch.arrays["input_ids"].shape[1]
        for preview in previews(batch, image_token_id):
            row = int(preview.tokens[0]) // length if len(preview.tokens) else -1
            yield _part(name, row, preview.pixels)
    elif "media_counts" in batch.arrays and len(batch.kinds) == 1:
        images = iter(reassemble(batch, name, batch.kinds[name].geometry))
        for row, count in enumerate(batch.arrays["media_counts"].tolist()):
            for _ in range(count):
                yield _part(name, row, next(images)[0])
    else:
        yield _part(name, -1, batch.arrays[name])


def _part(field: str, row: int, value: Any) -> Part:
    text = repr(value.item() if isinstance(value, np.generic) else value) if np.ndim(value) == 0 else ""
    digest = hashlib.sha256(digest_of({"value": value}).encode()).hexdigest()[:16]
    return Part(field, row, digest, text if len(text) <= _LONGEST else "")
