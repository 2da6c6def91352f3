"""Several lane batches of a rank as one delivered batch (`lanes_per_batch`), without a copy of their media.

Each part is laid out as it would be alone, so its digest does not change; its media are decoded into a slice of the
common buffer, and its token arrays become views of the common ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from zephon_ft.batch import Batch
from zephon_ft.buffers import BufferPool
from zephon_ft.errors import ConfigError
from zephon_ft.ops.assemble import pads
from zephon_ft.ops.batch import BatchOp
from zephon_ft.record import Unit


def lay_out_parts(
    parts: Sequence[list[Unit]], op: BatchOp, kinds: Mapping[str, Any], pool: BufferPool | None, names: tuple[str, ...]
) -> Batch:
    """One batch of several lane batches' units; of one, that one itself. `Batch.parts` holds the lane batches."""
    if len(parts) == 1:
        return op.layout(parts[0], kinds, pool, names)
    joint = _JointLease(parts, op, kinds, pool)
    laid = [op.layout(units, kinds, joint, names) for units in parts]  # type: ignore[arg-type]
    arrays = dict(joint.buffers)
    pad = pads(op.pad_token_id, op.pad_values)
    length = max((part.arrays["input_ids"].shape[1] for part in laid if part.has_tokens), default=0)
    for name in dict.fromkeys(chain.from_iterable(part.arrays for part in laid)):
        if name not in arrays:
            arrays[name] = _joined(name, laid, length, pad)
    return Batch(
        arrays=arrays,
        columns=_columns(laid),
        keys=tuple(chain.from_iterable(part.keys for part in laid)),
        kinds=kinds,
        aligned=tuple(sorted(set(chain.from_iterable(part.aligned for part in laid)))),
        scalars=tuple(sorted(set(chain.from_iterable(part.scalars for part in laid)))),
        offsets=None if laid[0].offsets is None else np.concatenate([part.offsets for part in laid]),  # type: ignore[misc]
        row_length=laid[0].row_length,
        names=names,
        parts=tuple(laid),
    )


class _JointLease:
    """Stands in for the pool: one buffer per media kind, given out part by part."""

    def __init__(
        self, parts: Sequence[list[Unit]], op: BatchOp, kinds: Mapping[str, Any], pool: BufferPool | None
    ) -> None:
        self.buffers: dict[str, np.ndarray] = {}
        self._left: list[np.ndarray] = []  # what is left of each buffer, in the order in which kinds ask
        self._turn = 0
        for name, kind in kinds.items():
            rows = 0
            for units in parts:
                mine = sum(item.rows for unit in units for item in unit.media if item.kind == name)
                rows += mine or (kind.dummy().rows if op.ensure_image else 0)
            shape = (rows, *kind.row_shape)
            nbytes = prod(shape) * kind.dtype.itemsize
            memory = np.empty(nbytes, np.uint8) if pool is None else pool.lease(nbytes)
            self.buffers[name] = memory.view(kind.dtype).reshape(shape)
            self._left.append(memory)

    def lease(self, nbytes: int) -> np.ndarray:
        turn, self._turn = self._turn, (self._turn + 1) % len(self._left)
        given, self._left[turn] = self._left[turn][:nbytes], self._left[turn][nbytes:]
        return given


def _joined(name: str, parts: Sequence[Batch], length: int, pad: Mapping[str, Any]) -> np.ndarray:
    """The parts' arrays of this name one behind the other; each part then holds a view of it."""
    found = [part.arrays.get(name) for part in parts]
    tokens = name in ("input_ids", "labels", "positions", "rope_positions") or any(name in p.aligned for p in parts)
    if not tokens:
        if any(array is None for array in found):
            raise ConfigError(
                f"lanes_per_batch: some lane batches have {name!r} and others do not; give it to every record"
            )
        return np.concatenate(found)  # type: ignore[arg-type]
    rows = [len(part) for part in parts]
    lead = (3,) if name == "rope_positions" else ()
    dtype = np.result_type(*[array for array in found if array is not None])
    out = np.full((*lead, sum(rows), length), pad.get(name, 0), dtype)
    start = 0
    for part, count, array in zip(parts, rows, found, strict=True):
        if array is not None:
            mine = out[..., start : start + count, : array.shape[-1]]
            mine[...] = array
            if name in ("positions", "rope_positions"):
                _go_on(out[..., start : start + count, :], part, array.shape[-1])
            part.arrays[name] = mine
        start += count
    return out


def _go_on(rows: np.ndarray, part: Batch, length: int) -> None:
    """Positions of the padding that a longer neighbour adds: the padding of a row is one document."""
    extra = np.arange(rows.shape[-1] - length, dtype=rows.dtype)
    for number, used in enumerate(part.row_tokens()):
        rows[..., number, length:] = extra + (length - used)


def _columns(parts: Sequence[Batch]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name in dict.fromkeys(chain.from_iterable(part.columns for part in parts)):
        values = [part.columns.get(name, [None] * len(part)) for part in parts]
        alike = all(isinstance(v, np.ndarray) and v.shape[1:] == values[0].shape[1:] for v in values)
        out[name] = np.concatenate(values) if alike else [item for value in values for item in value]
    return out
