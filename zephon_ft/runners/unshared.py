"""State that worker processes would not share, although it can be pickled: found in users' functions before they start.

Each worker has a copy of what a function captures. A copy of a table or a memory of its own results changes nothing; a
running count and an open file do, silently: nobody sees what a worker counts or writes, and that is an error here.
"""

from __future__ import annotations

import dis
import functools
import io
import types
from collections.abc import Iterator
from typing import Any

from zephon_ft.engine.plan import Plan
from zephon_ft.errors import ConfigError
from zephon_ft.ops.function import FunctionOperator

_DEPTH = 4  # functions that functions capture


def refuse_unshared(plan: Plan) -> None:
    """Look through the functions of a plan.

    Raises:
        ConfigError: one counts in a variable outside of it, or holds an open file; names operator and variable.
    """
    for segment in plan.segments:
        for step in (segment.head, *segment.steps):
            if step is None or not isinstance(step.operator, FunctionOperator):
                continue
            found = next(_found(step.operator.function, _DEPTH, set()), None)
            if found is not None:
                raise ConfigError(
                    f"{step.operator.name}: {found}, which worker processes do not share: each would have a copy of "
                    "its own, and this process none of what is done with it. Return it as a field of the row, or use "
                    'options(runner="thread")'
                )


def _found(function: Any, depth: int, seen: set[int]) -> Iterator[str]:
    """In words, what of it would not be shared."""
    if id(function) in seen or depth < 0:
        return
    seen.add(id(function))
    anywhere = isinstance(function, functools.partial)
    if isinstance(function, functools.partial):
        inner = [function.func, *function.args, *function.keywords.values()]
        names = ["function", *map(str, range(len(function.args))), *function.keywords]
    elif isinstance(function, types.FunctionType):
        yield from (f"it counts in {name!r}" for name in _counted(function.__code__, function.__code__.co_freevars))
        captured = _captured(function)
        names, inner = list(captured), list(captured.values())
    else:
        return
    for name, value in zip(names, inner, strict=True):
        if isinstance(value, io.IOBase) and not isinstance(value, (io.StringIO, io.BytesIO)):
            yield f"it holds the open file {name!r}"
        elif anywhere or isinstance(value, functools.partial) or _module(value) == _module(function):
            yield from _found(value, depth - 1, seen)


def _module(value: Any) -> str | None:
    return getattr(value, "__module__", None)


def _captured(function: types.FunctionType) -> dict[str, Any]:
    """The variables outside a function that its code names, with their values; those without one are left out."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not set yet
            continue
    names = _global_names(function.__code__)
    return found | {name: function.__globals__[name] for name in names if name in function.__globals__}


def _global_names(code: types.CodeType) -> set[str]:
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*map(_global_names, inner))


def _counted(code: types.CodeType, outside: tuple[str, ...]) -> Iterator[str]:
    """Names of variables outside a function that it changes by ``+=`` and the like."""
    before = ""
    for instruction in dis.get_instructions(code):
        stores = instruction.opname == "STORE_GLOBAL" or (
            instruction.opname == "STORE_DEREF" and instruction.argval in outside
        )
        if stores and before.endswith("="):
            yield str(instruction.argval)
        before = instruction.argrepr if instruction.opname == "BINARY_OP" else ""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _counted(constant, outside)
