"""Documents -> one `Row`: what `pack`, `pack_flat` and a batch of unpacked records share.

A document is a piece of a record. Its fields travel by three rules:

- aligned: a 1-D numpy array as long as `input_ids`; needs a declared pad value, which also fills documents without it.
- scalar: a number or bool; one per document. Where some documents lack it, a pad value must be declared.
- anything else (text, dicts, arrays of another shape) stays behind.

The first label of each document is -100, because nothing stands before it: no label crosses a document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from zephon_ft.errors import ConfigError, DataError
from zephon_ft.record import IGNORE_INDEX, Key, Media, Record, Row

_SCALARS = (bool, int, float, np.number, np.bool_)


class Piece(NamedTuple):
    """Tokens start..stop-1 of one record: one document of a row."""

    record: Record
    start: int
    stop: int

    @property
    def key(self) -> Key:
        """Identity of the record."""
        return self.record.key

    @property
    def nbytes(self) -> int:
        """Its share of the bytes that the record keeps in memory."""
        return self.record.nbytes * (self.stop - self.start) // max(1, self.record.num_tokens)


def pads(pad_token_id: int, pad_values: Mapping[str, Any]) -> dict[str, Any]:
    """The pad value of each field, the two that every row has included."""
    return {"input_ids": pad_token_id, "labels": IGNORE_INDEX, **pad_values}


def token_ids(record: Record, operator: str) -> np.ndarray:
    """`input_ids` of a record; a `DataError` says what to do where there is none."""
    ids = record.fields.get("input_ids")
    if not isinstance(ids, np.ndarray) or ids.ndim != 1:
        have = ", ".join(sorted(record.fields)) or "none"
        raise DataError(f"{operator}: needs input_ids as a 1-D integer array; put tokenize() before (fields: {have})")
    return ids


def aligned_names(record: Record) -> list[str]:
    """Names of the fields that travel token by token, `input_ids` and `labels` included."""
    length = record.num_tokens
    return [
        name
        for name, value in record.fields.items()
        if isinstance(value, np.ndarray) and value.ndim == 1 and len(value) == length
    ]


def assemble(pieces: Sequence[Piece], pad: Mapping[str, Any], multiple: int = 1, operator: str = "pack") -> Row:
    """Write documents one behind the other.

    Args:
        pieces: the documents, in order; none is empty.
        pad: pad value per aligned field (see `pads`), and per scalar that some documents may lack.
        multiple: each document is padded to a multiple of this many tokens.
        operator: name for error messages.

    Raises:
        ConfigError: an aligned field without a pad value, or a scalar that only some documents have.
        DataError: labels of another length than `input_ids`; numbers that no numpy type holds.
    """
    starts, lengths, total = [], [], 0
    aligned: dict[str, list[tuple[int, np.ndarray]]] = {"labels": []}
    scalars: set[str] = set()
    media: list[Media] = []
    for record, start, stop in pieces:
        starts.append(total)
        fields, length = record.fields, record.num_tokens
        for name, value in fields.items():
            if isinstance(value, np.ndarray) and value.ndim == 1:
                if len(value) == length:
                    aligned.setdefault(name, []).append((total, value[start:stop]))
                elif name == "labels":
                    raise DataError(f"{operator}: {len(value)} labels for {length} tokens (record {record.key})")
            elif isinstance(value, _SCALARS):
                scalars.add(name)
        if fields.get("labels") is None:
            aligned["labels"].append((total, fields["input_ids"][start:stop]))
        media += [moved(item, total - start) for item in record.media]
        lengths.append(-(-(stop - start) // multiple) * multiple)
        total += lengths[-1]
    arrays = {name: _join(name, aligned[name], total, pad, operator) for name in sorted(aligned)}
    arrays["labels"][starts] = IGNORE_INDEX
    records = [piece.record for piece in pieces]
    return Row(
        fields=arrays,
        lengths=np.array(lengths, np.int32),
        keys=tuple(record.key for record in records),
        scalars={
            name: numbers(name, [record.fields.get(name, pad.get(name)) for record in records], operator)
            for name in sorted(scalars)
        },
        media=tuple(media),
        nbytes=sum(a.nbytes for a in arrays.values()) + sum(len(m.data) for m in media if m.data is not None),
        offsets=np.array([piece.start for piece in pieces], np.int32),
    )


def moved(media: Media, by: int) -> Media:
    """The same media item, its placeholders `by` tokens later (`dataclasses.replace` takes ten times as long)."""
    m = media
    return Media(m.kind, m.tokens, m.rows, m.facts, m.data, m.offset + by, m.key, m.position, m.index) if by else m


def _join(
    name: str, parts: list[tuple[int, np.ndarray]], total: int, pad: Mapping[str, Any], operator: str
) -> np.ndarray:
    """One aligned field of a row from (place, values) parts; what no part covers is padding."""
    if name not in pad:
        raise ConfigError(
            f"{operator}: field {name!r} is as long as input_ids, so it travels with the tokens and needs a value "
            f"for padding: pass pad_values={{{name!r}: ...}} or remove the field with map()"
        )
    if name in ("input_ids", "labels"):
        dtype = np.dtype(np.int32)
        if wrong := [str(part.dtype) for _, part in parts if part.dtype.kind not in "iu"]:
            raise DataError(f"{operator}: {name} must be integers, not {wrong[0]}")
    else:
        dtype = np.result_type(*[part.dtype for _, part in parts])
    out = filled(name, total, pad[name], dtype, operator)
    for place, part in parts:
        out[place : place + len(part)] = part
    return out


def filled(name: str, shape: Any, value: Any, dtype: np.dtype[Any], operator: str) -> np.ndarray:
    """An array of padding; a value that the field's type cannot hold is a `ConfigError`."""
    try:
        return np.full(shape, value, dtype)
    except (OverflowError, TypeError, ValueError):
        raise ConfigError(f"{operator}: pad value {value!r} of field {name!r} does not fit its type {dtype}") from None


def numbers(name: str, values: list[Any], operator: str) -> np.ndarray:
    """Stack one scalar field; says what to do where a document lacks it or its value is no number."""
    wrong = next((v for v in values if not isinstance(v, _SCALARS)), 0)
    if wrong is None:
        raise ConfigError(
            f"{operator}: field {name!r} is a number in some records and absent in others: declare what stands in for "
            f"it, pad_values={{{name!r}: ...}}, or remove the field with map()"
        )
    try:
        array = np.asarray(values)
    except (OverflowError, ValueError):
        array = np.empty(0, object)
    if wrong != 0 or array.dtype.kind not in "biuf":
        raise DataError(f"{operator}: field {name!r} holds values that no numpy number type fits: {values!r:.200}")
    return array
