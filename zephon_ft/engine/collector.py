"""Keeping the garbage collector's pauses short: a full collection stops the trainer too.

On free-threaded Python every collection looks at every object that may be part of a cycle, about 0.3 us each. Tokenized
units hold arrays, numbers, text and media, so they never are; at 32 lanes they are most objects of a job.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterable
from typing import Any

import numpy as np

from zephon_ft.record import Record, Row


def _find_untrack() -> Any:
    if platform.python_implementation() != "CPython":
        return None
    untrack = ctypes.pythonapi.PyObject_GC_UnTrack  # does nothing where an object is not tracked
    untrack.argtypes, untrack.restype = [ctypes.py_object], None
    return untrack


_untrack = _find_untrack()
_PLAIN = frozenset({np.ndarray, int, float, bool, str, bytes, type(None)})


def spare_collector(units: Iterable[Record | Row]) -> None:
    """Take new tokenized units out of the collector's sight, on the thread that made them."""
    if _untrack is None:
        return
    for unit in units:
        fields = unit.fields
        if "input_ids" not in fields:
            continue
        if unit.media:
            for media in unit.media:
                _untrack(media)
            _untrack(unit.media)
        if _PLAIN.issuperset(map(type, fields.values())):
            _untrack(fields)
            if type(unit) is Row:
                _untrack(unit.keys)
                _untrack(unit.scalars)
            _untrack(unit)
