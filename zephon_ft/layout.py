"""Units -> `Batch`: where every document, label and media row lies. A pure function of the units and the options.

Writes everything but the pixels: those are the batch's `fills`, each a disjoint slice of a media buffer. Together they
cover the buffer, so that every byte of a delivered array is written.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from zephon_ft.batch import Batch, Fill
from zephon_ft.buffers import BufferPool
from zephon_ft.errors import ConfigError, DataError
from zephon_ft.ops.assemble import Piece, assemble, filled, numbers, pads
from zephon_ft.record import Media, Record, Row, Unit

if TYPE_CHECKING:
    from zephon_ft.ops.batch import BatchOp

_NUMBERS = (bool, int, float, np.number, np.bool_)


class _Place(NamedTuple):
    """Where a media item's document lies: tokens column..column+length-1 of a row."""

    media: Media
    row: int
    column: int
    length: int
    dummy: bool = False


def lay_out(
    units: Sequence[Unit], options: BatchOp, kinds: Mapping[str, Any], pool: BufferPool | None, names: tuple[str, ...]
) -> Batch:
    """See `BatchOp.layout`.

    Raises:
        DataError: tokenized and other records in one batch.
        ConfigError: a field without a pad value or with a reserved name; media of a kind that is not declared.
    """
    masked = (options.rows or 1) - len(units)
    if masked > 0:  # the end of a finite source with remainder="pad"
        nothing = np.zeros(0, np.int32)
        units = [*units, *[Row({"input_ids": nothing, "labels": nothing}, nothing, ())] * masked]
    tokenized = sum(["input_ids" in unit.fields for unit in units])
    if tokenized == 0:
        return _plain(units, kinds, pool, names)
    if tokenized < len(units):
        raise DataError(f"batch: {tokenized} of {len(units)} records have input_ids: tokenize all of them or none")
    pad = pads(options.pad_token_id, options.pad_values)
    rows = [
        unit if isinstance(unit, Row) else assemble([Piece(unit, 0, unit.num_tokens)], pad, operator="batch")
        for unit in units
    ]
    return _tokens(rows, options, pad, kinds, pool, names)


def _tokens(
    rows: list[Row],
    options: BatchOp,
    pad: Mapping[str, Any],
    kinds: Mapping[str, Any],
    pool: BufferPool | None,
    names: tuple[str, ...],
) -> Batch:
    used = [row.num_tokens for row in rows]
    multiple = options.pad_to_multiple
    length = options.row_length or -(-max(*used, 1) // multiple) * multiple
    if max(used) > length:
        raise DataError(f"batch: a row of {max(used)} tokens is longer than the row length {length}")

    arrays = _Names()
    aligned = sorted({name for row in rows for name in row.fields})
    for name in aligned:
        arrays.put(name, _padded(name, [row.fields.get(name) for row in rows], length, pad[name]))
    arrays.put("document_lengths", np.concatenate([row.lengths for row in rows]).astype(np.int32, copy=False))
    scalars = sorted({name for row in rows for name in row.scalars})
    for name in scalars:
        arrays.put(name, _stacked_scalar(name, rows, pad))

    dummies = _dummies(rows, kinds) if options.ensure_image else []
    if sum(item.tokens for item in dummies) > length - used[-1]:
        raise ConfigError("batch: no room for the dummy image: pack must reserve it (Pack.reserve)")
    segments = [[*row.lengths.tolist()] for row in rows]  # lengths of the documents of each row; they fill it
    for item in dummies:
        segments[-1].append(item.tokens)
    for segment in segments:
        segment.append(length - sum(segment))  # padding, a document of its own; often empty
    positions = _positions(np.fromiter(chain.from_iterable(segments), np.int64)).reshape(len(rows), length)
    arrays.put("positions", positions)

    places = []
    for number, row in enumerate(rows):
        stops = np.cumsum(row.lengths).tolist()
        for item in row.media:
            document = bisect_right(stops, item.offset)
            size = int(row.lengths[document])
            places.append(_Place(item, number, stops[document] - size, size))
    start = used[-1]
    for item in dummies:
        arrays["input_ids"][-1, start : start + item.tokens] = options.dummy_token_id
        places.append(_Place(replace(item, offset=start), len(rows) - 1, start, item.tokens, dummy=True))
        start += item.tokens
    fills = _media(arrays, places, kinds, pool)
    if any(kind.geometry.rope == "qwen" for kind in kinds.values()):
        arrays.put("rope_positions", _rope(positions, places, kinds))
    return Batch(
        arrays=arrays,
        keys=tuple(row.keys for row in rows),
        kinds=kinds,
        aligned=tuple(name for name in aligned if name not in ("input_ids", "labels")),
        scalars=tuple(scalars),
        offsets=np.concatenate(
            [row.offsets if row.offsets is not None else np.zeros_like(row.lengths) for row in rows]
        ),
        row_length=options.row_length or 0,
        fills=fills,
        names=names,
    )


def _plain(units: Sequence[Unit], kinds: Mapping[str, Any], pool: BufferPool | None, names: tuple[str, ...]) -> Batch:
    """Records without tokens: one column per field, media buffers beside them."""
    columns = _Names()
    fields = [unit.fields for unit in units]
    for name in sorted(set(chain.from_iterable(fields))):
        columns.put(name, _column([row.get(name) for row in fields]))
    arrays = _Names(columns)
    if kinds:
        arrays.put("media_counts", np.array([len(unit.media) for unit in units], np.int32))
    places = [_Place(item, number, 0, 0) for number, unit in enumerate(units) for item in unit.media]
    fills = _media(arrays, places, kinds, pool)
    keys = tuple([(unit.key,) if isinstance(unit, Record) else unit.keys for unit in units])
    return Batch(arrays=arrays, columns=columns, keys=keys, kinds=kinds, fills=fills, names=names)


def _media(arrays: _Names, places: list[_Place], kinds: Mapping[str, Any], pool: BufferPool | None) -> list[Fill]:
    """Lease each kind's buffer and write its columns; dummies are zeroed here, the rest is returned as fills."""
    if unknown := {place.media.kind for place in places} - set(kinds):
        raise ConfigError(
            f"batch: media of kind {', '.join(sorted(unknown))} in the stream, but images() declares none"
        )
    fills = []
    for name, kind in kinds.items():
        mine = [place for place in places if place.media.kind == name]
        shape = (sum(place.media.rows for place in mine), *kind.row_shape)
        nbytes = prod(shape) * kind.dtype.itemsize
        memory = np.empty(nbytes, np.uint8) if pool is None else pool.lease(nbytes)
        buffer = memory.view(kind.dtype).reshape(shape)
        arrays.put(name, buffer)
        columns = [kind.columns(place.media) for place in mine]
        for column, value in (columns[0] if columns else kind.columns(kind.dummy())).items():
            values = [found[column] for found in columns]
            arrays.put(column, np.array(values, np.int64).reshape(len(mine), len(value)))
        start = 0
        for place in mine:
            stop = start + place.media.rows
            if place.dummy:
                buffer[start:stop] = 0
            else:
                fills.append(Fill(place.media, name, start, stop, place.row, place.column, place.length))
            start = stop
    return fills


def _rope(positions: np.ndarray, places: list[_Place], kinds: Mapping[str, Any]) -> np.ndarray:
    """int32 (3, B, L): plain positions on all three axes, but for documents with images of a kind with M-RoPE."""
    from zephon_ft.vision.rope import mrope

    out = np.stack([positions] * 3)
    documents: dict[tuple[int, int, int], list[tuple[int, tuple[int, int, int]]]] = {}
    for place in places:
        geometry = kinds[place.media.kind].geometry
        if geometry.rope == "qwen":
            time, height, width = kinds[place.media.kind].plan(place.media).grid
            merged = (time, height // geometry.merge_size, width // geometry.merge_size)
            document = (place.row, place.column, place.length)
            documents.setdefault(document, []).append((place.media.offset - place.column, merged))
    for (row, column, length), images in documents.items():
        mrope(length, images, merge_size=1, out=out[:, row, column : column + length])
    return out


def _positions(lengths: np.ndarray) -> np.ndarray:
    """int32 (sum of lengths,): 0, 1, 2, ... restarting at every segment."""
    starts = np.cumsum(lengths) - lengths
    return (np.arange(int(lengths.sum())) - np.repeat(starts, lengths)).astype(np.int32)


def _padded(name: str, parts: list[np.ndarray | None], length: int, pad: Any) -> np.ndarray:
    """(B, L): one row per part, padded at its end; rows without the field are padding altogether."""
    dtype = np.result_type(*[part.dtype for part in parts if part is not None])
    out = filled(name, (len(parts), length), pad, dtype, "batch")
    for row, part in zip(out, parts, strict=True):
        if part is not None:
            row[: len(part)] = part
    return out


def _stacked_scalar(name: str, rows: list[Row], pad: Mapping[str, Any]) -> np.ndarray:
    """(D,): the scalar of every document; rows without it take the declared value."""
    rows = [row for row in rows if row.keys]
    if all(name in row.scalars for row in rows):
        return np.concatenate([row.scalars[name] for row in rows])
    lists = [row.scalars[name].tolist() if name in row.scalars else [pad.get(name)] * len(row.keys) for row in rows]
    return numbers(name, list(chain.from_iterable(lists)), "batch")


def _column(values: list[Any]) -> Any:
    """An array where all values are numbers or arrays of one shape and type, else the list as it is."""
    first = values[0]
    if isinstance(first, np.ndarray) and first.dtype != object:
        alike = all(isinstance(v, np.ndarray) and v.shape == first.shape and v.dtype == first.dtype for v in values)
        return np.stack(values) if alike else values
    if all(issubclass(kind, _NUMBERS) for kind in set(map(type, values))):
        array = np.asarray(values)
        return array if array.dtype.kind in "biuf" else values
    return values


def _dummies(rows: list[Row], kinds: Mapping[str, Any]) -> list[Media]:
    """The declared dummy of every kind that these rows have nothing of."""
    present = {item.kind for row in rows for item in row.media}
    return [kind.dummy() for name, kind in kinds.items() if name not in present]


class _Names(dict[str, Any]):
    """Arrays by name; a name that is taken twice is an error, not an overwrite."""

    def __init__(self, *others: dict[str, Any]) -> None:
        super().__init__()
        self._others = others

    def put(self, name: str, value: Any) -> None:
        if name in self or any(name in other for other in self._others):
            raise ConfigError(f"batch: {name!r} is the name of a field and of an array of the batch: rename the field")
        self[name] = value
