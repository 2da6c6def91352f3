"""Keeping the garbage collector's pauses short: a full collection stops the trainer too.

On free-threaded Python every collection looks at every object that may be part of a cycle, about 0.3 us each. Media
items hold plain values and bytes only, so they never are; at 32 lanes they are half of all objects of an image job.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterable
from typing import Any

from zephon_ft.record import Record, Row


def _find_untrack() -> Any:
    if platform.python_implementation() != "CPython":
        return None
    untrack = ctypes.pythonapi.PyObject_GC_UnTrack  # does nothing where an object is not tracked
    untrack.argtypes, untrack.restype = [ctypes.py_object], None
    return untrack


_untrack = _find_untrack()


def spare_collector(units: Iterable[Record | Row]) -> None:
    """Take the media items of new units out of the collector's sight, on the thread that made them."""
    if _untrack is None:
        return
    for unit in units:
        if unit.media:
            for media in unit.media:
                _untrack(media)
            _untrack(unit.media)  # holds nothing else
