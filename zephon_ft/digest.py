"""Canonical SHA-256 of named values: equal exactly if names, types, shapes and bytes are equal, on every machine.

Values are arrays, numbers, strings, bytes, None, and lists and dicts of them; each is written as a type tag, its size
and its content, so that no two different values give the same bytes. Names and dict keys are sorted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from zephon_ft.errors import ConfigError


def digest_of(values: Mapping[str, Any]) -> str:
    """Hex digest of a mapping of names to values.

    Raises:
        ConfigError: a value of another type, named by its place.
    """
    sha = hashlib.sha256()
    for name in sorted(values):
        _head(sha.update, "field", name)
        _feed(sha.update, values[name], name)
    return sha.hexdigest()


def _head(update: Callable[[Any], None], tag: str, *facts: Any) -> None:
    """A header that cannot be mistaken for content: its length, then its text."""
    text = "\0".join((tag, *map(str, facts))).encode("utf-8", "surrogatepass")
    update(len(text).to_bytes(8, "little"))
    update(text)


def _feed(update: Callable[[Any], None], value: Any, place: str) -> None:
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise ConfigError(f"digest: field {place!r} is an array of Python objects; remove or convert it with map()")
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        _head(update, "array", array.dtype.str, array.shape)
        if array.size:
            update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    elif value is None or isinstance(value, (bool, int, float)):
        _head(update, type(value).__name__, repr(value))
    elif isinstance(value, str):
        _head(update, "str", value)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        _head(update, "bytes", memoryview(value).nbytes)
        update(value)
    elif isinstance(value, (list, tuple)):
        _head(update, "list", len(value))
        for index, item in enumerate(value):
            _feed(update, item, f"{place}[{index}]")
    elif isinstance(value, Mapping):
        _head(update, "dict", len(value))
        for key in sorted(value, key=str):
            _head(update, "key", type(key).__name__, key)
            _feed(update, value[key], f"{place}.{key}")
    else:
        raise ConfigError(
            f"digest: field {place!r} holds a {type(value).__name__}, which has no canonical bytes; "
            f"remove or convert it with map()"
        )
