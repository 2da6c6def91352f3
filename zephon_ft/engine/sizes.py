"""How many bytes a unit keeps in memory: what the byte budget counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zephon_ft.record import Record, Row

if TYPE_CHECKING:
    from zephon_ft.batch import Batch

_OBJECT = 64  # a small Python object with its header
_SAMPLE = 4  # small records of one task are alike: so many are measured, the rest get their mean
_SMALL = 4096


def set_nbytes(records: list[Record], keep_media: bool) -> None:
    """Set `nbytes` of records that come out of one task; without `keep_media` their encoded bytes are let go."""
    if not records:
        return
    if not keep_media:
        for record in records:
            if record.media:
                record.media = tuple(replace(m, data=None) if m.data else m for m in record.media)
    step = max(1, len(records) // _SAMPLE)
    sample = [nbytes_of(record) for record in records[::step]]
    if max(sample) > _SMALL or any(map(_may_be_large, records)):
        for record in records:
            record.nbytes = nbytes_of(record)
    else:
        mean = sum(sample) // len(sample)
        for record in records:
            record.nbytes = mean


def nbytes_of(unit: Record | Row) -> int:
    """Bytes that a unit keeps: payload, held media, and a flat charge per object."""
    total = 4 * _OBJECT
    for value in unit.fields.values():
        total += _value(value)
    for media in unit.media:
        total += 3 * _OBJECT + (len(media.data) if media.data else 0)
    if type(unit) is Row:
        total += 2 * _OBJECT * len(unit.keys)
    return total


def nbytes_of_batch(batch: Batch) -> int:
    """Bytes that a batch keeps: its arrays, and the texts, bytes and lists of its columns."""
    return batch.nbytes + sum(_value(value) for value in batch.columns.values() if type(value) is list)


def _may_be_large(record: Record) -> bool:
    """Whether a record can be far from the mean of its task: a quick look at its long texts and bytes."""
    if record.media:
        return True
    for value in record.fields.values():
        kind = type(value)
        if (kind is str or kind is bytes) and len(value) > _SMALL:
            return True
    return False


def _value(value: Any) -> int:
    if isinstance(value, (str, bytes)):
        return _OBJECT + len(value)
    nbytes = getattr(value, "nbytes", None)  # arrays
    if nbytes is not None:
        return 2 * _OBJECT + int(nbytes)
    if isinstance(value, dict):
        return sum(map(_value, value.values()), _OBJECT)
    if isinstance(value, Iterable):
        return sum(map(_value, value), _OBJECT)
    return _OBJECT // 2
