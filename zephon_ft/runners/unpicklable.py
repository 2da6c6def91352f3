"""Why a pipeline cannot be sent to worker processes: which operator, which object in it, and what to do."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterator
from typing import Any

import cloudpickle

from zephon_ft.engine.plan import Plan
from zephon_ft.errors import ConfigError

_DEPTH = 4  # functions that functions capture


def explain(plan: Plan, error: Exception) -> ConfigError:
    """The error for a plan that could not be pickled because of `error`."""
    steps = [step for segment in plan.segments for step in (segment.head, *segment.steps) if step is not None]
    parts: list[tuple[str, Any]] = [(step.operator.name, step.operator) for step in steps]
    parts += [(f"dataset {dataset.name!r}", dataset) for dataset in plan.source.datasets]
    for name, part in parts:
        reason = _reason(part)
        if reason is not None:
            path, culprit, why = _search(part, _DEPTH) or ("", part, reason)
            what = f"{path!r}, a {type(culprit).__name__}," if path else f"a {type(culprit).__name__}"
            return ConfigError(
                f"{name}: holds {what} which cannot be sent to worker processes ({type(why).__name__}: {why}). Make it "
                'inside the function or in Operator.bind, or use options(runner="thread") or "inline", which need no '
                "pickling"
            )
    return ConfigError(
        f"the pipeline cannot be sent to worker processes ({type(error).__name__}: {error}); use "
        'options(runner="thread") or "inline", which need no pickling'
    )


def _reason(value: Any) -> Exception | None:
    """Why it cannot be pickled, or None."""
    try:
        cloudpickle.dumps(value)
    except Exception as error:
        return error
    return None


def _search(value: Any, depth: int) -> tuple[str, Any, Exception] | None:
    """The innermost named object that cannot be pickled: its path, itself, and why."""
    for name, inner in _inside(value):
        reason = _reason(inner)
        if reason is not None:
            deeper = _search(inner, depth - 1) if depth else None
            return (f"{name}.{deeper[0]}", *deeper[1:]) if deeper else (name, inner, reason)
    return None


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    """What a function captures, or an object holds, by name."""
    if isinstance(value, functools.partial):
        yield "function", value.func
        yield from ((str(number), item) for number, item in enumerate(value.args))
        yield from value.keywords.items()
    elif isinstance(value, types.MethodType):
        yield "self", value.__self__
    elif isinstance(value, types.FunctionType):
        captured = inspect.getclosurevars(value)
        yield from captured.nonlocals.items()
        yield from captured.globals.items()
        yield from _defaults(value)
    elif isinstance(value, dict):
        yield from ((str(key), item) for key, item in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((str(number), item) for number, item in enumerate(value))
    else:
        yield from getattr(value, "__dict__", {}).items()


def _defaults(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Default values of a function's parameters, by name."""
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is not inspect.Parameter.empty:
            yield name, parameter.default
