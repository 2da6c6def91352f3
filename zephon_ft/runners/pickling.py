"""What travels between the parent and its workers, as bytes: quick for records, true to type for exceptions.

Plain pickle does it where it can. What it cannot (lambdas, closures, everything of ``__main__``, which workers do not
import) goes by value with cloudpickle. An exception keeps its type where that can be pickled, and brings its traceback
as a note.
"""

from __future__ import annotations

import copyreg
import os
import pickle
import traceback
from collections import ChainMap
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from operator import attrgetter, methodcaller
from typing import Any, Protocol

import cloudpickle
import numpy as np

_PROTOCOL = 5


class Sink(Protocol):
    """Where pickled bytes go."""

    def clear(self) -> None:
        """Begin anew."""

    def write(self, data: Any, /) -> Any:
        """Take bytes, or anything with the buffer protocol."""


def dump(
    value: Any,
    sink: Sink,
    reducers: Reducers | None = None,
    inside: Callable[[pickle.PickleBuffer], Any] | None = None,
) -> None:
    """Write `value` so that `pickle.loads` gives it back in another process of this pipeline.

    Args:
        sink: is cleared first, and again where plain pickle gives up half-way.
        reducers: how to take objects apart; default: the usual.
        inside: tells of a buffer whether its bytes are written; those of others are for the reader to provide, as the
            `buffers` of `pickle.loads`. Default: all are.

    Raises:
        Exception: it cannot be pickled in any way; whatever pickle raised.
    """
    table = _REDUCERS if reducers is None else reducers
    sink.clear()
    try:
        pickler = pickle.Pickler(sink, _PROTOCOL, buffer_callback=inside)
        pickler.dispatch_table = table
        pickler.dump(value)
    except Exception:
        sink.clear()
        _ByValue(sink, table, inside).dump(value)


class _ByValue(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, sink: Sink, table: Any, inside: Any) -> None:
        # Set before pickle's own __init__ looks for it.
        self.dispatch_table = ChainMap(cloudpickle.Pickler.dispatch_table, _Accepting(), table)
        super().__init__(sink, _PROTOCOL, inside)


class _Accepting(dict):  # type: ignore[type-arg]
    """Stands before `Reducers`: what plain pickle refuses is no problem here."""

    def __missing__(self, cls: type) -> Any:
        if _is_here_only(cls) and not issubclass(cls, (BaseException, type)):
            return _default
        raise KeyError(cls)


def _is_here_only(cls: type) -> bool:
    return cls.__module__ == "__main__"  # workers have another main module


class Reducers(dict):  # type: ignore[type-arg]
    """How to take an object of a type apart: what it is made with, and the usual for all others, found once per type.

    (A chain of mappings would be asked in Python for every object.)
    """

    def __missing__(self, cls: type) -> Any:
        if issubclass(cls, type):
            raise KeyError(cls)  # classes go by name
        if issubclass(cls, BaseException):
            reducer: Any = _exception
        elif _is_here_only(cls):
            reducer = _refuse
        elif cls is np.ndarray:
            reducer = _array
        elif cls in copyreg.dispatch_table:
            reducer = copyreg.dispatch_table[cls]
        elif cls.__module__.startswith("zephon_ft.") and is_dataclass(cls) and "__slots__" in cls.__dict__:
            reducer = _slotted(cls)
        else:
            reducer = _default
        self[cls] = reducer
        return reducer


def _slotted(cls: type) -> Any:
    """Records and what they hold: a call with all fields, several times as fast as what dataclasses provide."""
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    get = attrgetter(*names)
    return (lambda value: (cls, get(value))) if len(names) > 1 else (lambda value: (cls, (get(value),)))


def _array(value: np.ndarray) -> Any:
    """Most arrays are tokens: numpy's own way takes twice as long for these."""
    if value.ndim == 1 and value.size and value.flags.c_contiguous and value.dtype.kind in "biuf":
        return np.frombuffer, (pickle.PickleBuffer(value), value.dtype)
    return value.__reduce_ex__(_PROTOCOL)


def _refuse(value: Any) -> Any:
    raise pickle.PicklingError(f"{type(value).__name__} is defined in the main module: it goes by value")


_default = methodcaller("__reduce_ex__", _PROTOCOL)
_REDUCERS = Reducers()


# -- exceptions ------------------------------------------------------------------------------------------------


def _exception(error: BaseException) -> Any:
    trace = None
    if error.__traceback__ is not None:
        lines = "".join(traceback.format_tb(error.__traceback__))
        trace = f"In worker process {os.getpid()}:\nTraceback (most recent call last):\n{lines}".rstrip()
    context = None if error.__suppress_context__ or error.__cause__ is not None else error.__context__
    return _restore, (_blob(error), _nearest(error), str(error), trace, error.__cause__, context)


def _blob(error: BaseException) -> bytes | None:
    """The pickled exception, without its causes; None if it would not survive (an ``__init__`` of its own)."""
    try:
        blob = cloudpickle.dumps(error, _PROTOCOL)
        return blob if type(pickle.loads(blob)) is type(error) else None
    except Exception:
        return None


def _nearest(error: BaseException) -> list[type]:
    """Classes that any process knows, the nearest first."""
    return [c for c in type(error).__mro__ if c.__module__ in ("builtins", "zephon_ft.errors") and c is not object]


def _restore(
    blob: bytes | None,
    nearest: list[type[BaseException]],
    text: str,
    trace: str | None,
    cause: BaseException | None,
    context: BaseException | None,
) -> BaseException:
    error = next(_candidates(blob, nearest, text))
    error.__cause__, error.__context__ = cause, context
    error.__suppress_context__ = cause is not None
    if trace is not None:
        error.add_note(trace)
    return error


def _candidates(blob: bytes | None, nearest: list[type[BaseException]], text: str) -> Iterator[BaseException]:
    if blob is not None:
        try:
            yield pickle.loads(blob)
        except Exception as error:
            text = f"{text} ({type(error).__name__} while it was unpickled: {error})"
    for cls in nearest:
        try:
            yield cls(text)
        except TypeError:
            continue
