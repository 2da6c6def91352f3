"""What `map`, `filter` and `flat_map` share: how a user's function is called and identified."""

from __future__ import annotations

import functools
import hashlib
import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from zephon_ft.errors import ConfigError, DataError
from zephon_ft.ops.base import Operator, WorkContext
from zephon_ft.record import Key

_PLAIN = (str, int, float, bool, bytes, type(None))


@dataclass(frozen=True)
class FunctionOperator(Operator):
    """An operator around a user's function.

    Worker processes have copies of what the function captures, made at the start; so has everything else of theirs. A
    table or a memory of results may be captured. To collect something, return it as a field of the row.

    Args:
        function: ``fn(row)`` or ``fn(row, rng)``; `row` is a dict of its own, `rng` a `numpy.random.Generator` keyed by
            (seed, operator, record), so its draws never depend on threads or arrival.
        version: identifies the function in the recipe; needed where source and plain closure values cannot.
        parallelism: at most so many workers run it at once (default: no limit).
        pixels: the function sees decoded pixels, so the decoder decides the stream.
    """

    function: Callable[..., Any]
    version: str | None = None
    parallelism: int | None = None
    pixels: bool = False

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ConfigError(f"{self.kind()}: a function is needed, got {type(self.function).__name__}")
        if self.parallelism is not None and self.parallelism < 1:
            raise ConfigError(f"{self.kind()}: parallelism must be >= 1, got {self.parallelism}")

    @classmethod
    def kind(cls) -> str:
        """The verb that users write."""
        raise NotImplementedError

    @property
    def name(self) -> str:  # type: ignore[override]
        """The verb and the function's name, e.g. ``map(parse)``."""
        return f"{self.kind()}({getattr(self.function, '__name__', type(self.function).__name__)})"

    def caller(self, context: WorkContext) -> Callable[[dict[str, Any], Key], Any]:
        """``call(fields, key)``: the function with the record's generator, for functions that want one."""
        function, keyed = self.function, context.rng
        return lambda fields, key: function(fields, keyed.generator(key))

    @property
    def is_keyed(self) -> bool:
        """Whether the function wants the record's generator."""
        return wants_rng(self.function)

    def recipe(self) -> dict[str, Any]:
        recipe = {"op": self.kind(), "function": identity(self.function, self.version), "pixels": self.pixels}
        # The numbers that a generator draws from its bits may change with numpy.
        return recipe | ({"numpy": np.__version__} if self.is_keyed else {})


def wants_rng(function: Callable[..., Any]) -> bool:
    """Whether the function has a parameter named `rng`."""
    try:
        return "rng" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def must_be_row(value: Any, operator: str) -> dict[str, Any]:
    """`value` if it is a dict; else an error that says what is expected."""
    if type(value) is dict or isinstance(value, dict):
        return value
    hint = "; to drop a record use filter, or flat_map and return []" if value is None else ""
    raise DataError(f"{operator} must return a dict (a row), got {type(value).__name__}{hint}")


def identity(function: Callable[..., Any], version: str | None = None) -> dict[str, Any]:
    """What identifies a function in the recipe: its source, defaults and closure values, or the given version.

    Raises:
        ConfigError: neither source nor plain values identify it; pass ``version=``.
    """
    name = getattr(function, "__qualname__", type(function).__qualname__)
    if version is not None:
        return {"name": name, "version": version}
    if isinstance(function, functools.partial):
        inner = identity(function.func)
        plain = {str(i): value for i, value in enumerate(function.args)} | function.keywords
        return {"name": name, "partial": inner, "values": {k: _plain(name, k, v) for k, v in plain.items()}}
    if isinstance(function, type) or inspect.isbuiltin(function):
        return {"name": f"{function.__module__}.{name}"}
    if not isinstance(function, types.FunctionType):
        raise ConfigError(f"{name}: an object with state cannot be told apart from another; pass version='...'")
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        source = function.__code__.co_code.hex() + repr(function.__code__.co_names)
    closure = inspect.getclosurevars(function).nonlocals
    defaults = dict(enumerate(function.__defaults__ or ())) | (function.__kwdefaults__ or {})
    values = {str(k): _plain(name, str(k), v) for k, v in (closure | defaults).items()}  # type: ignore[operator]
    return {"name": name, "source": hashlib.sha256(source.encode()).hexdigest(), "values": values}


def _plain(function: str, name: str, value: Any) -> Any:
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(function, name, v) for v in value]
    if isinstance(value, dict):
        return {str(k): _plain(function, name, v) for k, v in value.items()}
    if isinstance(value, types.FunctionType):
        return identity(value)
    if isinstance(value, (types.ModuleType, type)):
        return value.__name__
    raise ConfigError(
        f"{function}: its value {name!r} is a {type(value).__name__}, which cannot be compared between runs; "
        "pass version='...' and change it whenever the function's meaning changes"
    )
