"""Check that work functions and accumulators depend on their records alone: each runs twice and in another order.

What differs is named: a function that uses global random state, the time, a counter, or what it saw before. A record
counts as the same if all its fields have the same bytes.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from zephon_ft.digest import digest_of
from zephon_ft.engine.plan import Plan, Segment, Step
from zephon_ft.engine.work import WorkerState, fetch
from zephon_ft.errors import ConfigError
from zephon_ft.ops.base import AccumulatorContext
from zephon_ft.record import Record

ROWS = 64  # source rows that the functions run on
_LONGEST = 60  # characters of a value that is shown


def check_functions(plan: Plan) -> tuple[list[str], list[str]]:
    """Names of the operators that were checked, and what was found, each in a sentence.

    Runs on the first `ROWS` rows of lane 0. User functions are called, three times for each record.
    """
    chunk = plan.lane_source().cursor(0).take(ROWS)
    units = [unit for unit in fetch(WorkerState(plan), chunk, 0).units if isinstance(unit.fields, dict)]
    names: list[str] = []
    found: list[str] = []
    for segment in plan.segments:
        if segment.head is not None:
            units = _check_head(plan, segment, units, names, found)
        for step in segment.steps:
            units = _check(plan, step, units, names, found)
    return names, found


def _check(plan: Plan, step: Step, units: list[Any], names: list[str], found: list[str]) -> list[Any]:
    """Check a work function on units (or groups of units); returns what it makes of them."""
    name = step.operator.name
    first, second = (step.operator.bind(WorkerState(plan).context(step.position, name)) for _ in range(2))
    if first is None or second is None:
        return [unit for group in units for unit in (group if isinstance(group, list) else [group])]
    names.append(name)
    results = [_Result(first, unit) for unit in units]
    again = [_Result(second, unit) for unit in units]
    backwards = [_Result(first, unit) for unit in reversed(units)][::-1]
    for how, others in (("runs again", again), ("sees its records in another order", backwards)):
        for unit, a, b in zip(units, results, others, strict=True):
            if a.digests != b.digests:
                where = plan.describe(_keys(unit)[0]) if _keys(unit) else "no record"
                found.append(f"{name} gives other bytes when it {how}: {_what(a, b)} ({where})")
                return [made for result in results for made in result.made]
    return [made for result in results for made in result.made]


def _check_head(plan: Plan, segment: Segment, units: list[Any], names: list[str], found: list[str]) -> list[Any]:
    """Check an accumulator and its work function; returns the units that come out."""
    step = segment.head
    assert step is not None
    name = step.operator.name
    try:
        groups, again = (_groups(plan, step, units) for _ in range(2))
    except Exception as error:  # of a user's accumulator: the run itself reports it with its place
        found.append(f"{name}: its accumulator fails on the first {len(units)} units: {type(error).__name__}: {error}")
        return []
    names.append(f"{name}, its accumulator")
    if [list(map(_digests, group)) for group in groups] != [list(map(_digests, group)) for group in again]:
        found.append(
            f"{name}: a new accumulator gives other groups for the same units: it keeps state outside of itself"
        )
    return _check(plan, step, groups, names, found)


def _groups(plan: Plan, step: Step, units: list[Any]) -> list[list[Any]]:
    accumulator = step.operator.accumulator()
    accumulator.open(AccumulatorContext(plan.seed, 0, 0, step.position, lambda unit, reason: None))
    groups: list[list[Any]] = []
    for unit in units:
        groups.extend(accumulator.push(_copy(unit)))
    groups.extend(accumulator.finish())
    return groups


class _Result:
    """What a work function made of one unit or group: units with their digests, or an error."""

    def __init__(self, function: Callable[[Any], Any], unit: Any) -> None:
        self.made: list[Any] = []
        self.error = ""
        try:
            made = function(_copy(unit))
            self.made = made if isinstance(made, list) else [] if made is None else [made]
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
        self.fields = [_digests(unit) for unit in self.made]
        self.values = [{name: _text(value) for name, value in unit.fields.items()} for unit in self.made]
        self.digests = (self.fields, self.error)


def _what(a: _Result, b: _Result) -> str:
    """The first difference of two results, in words."""
    if a.error or b.error:
        return " and ".join(result.error or "no error" for result in (a, b))
    if len(a.made) != len(b.made):
        return f"{len(a.made)} and {len(b.made)} units come out"
    for number, (mine, theirs) in enumerate(zip(a.fields, b.fields, strict=True)):
        for field in sorted(mine.keys() | theirs.keys()):
            if mine.get(field) != theirs.get(field):
                values = [result.values[number].get(field, "(absent)") for result in (a, b)]
                return f"field {field!r}" + (f": {values[0]} and {values[1]}" if all(values) else "")
    return "its output"


def _digests(unit: Any) -> dict[str, str]:
    """A hash of every field of a unit, and of its identity and media."""
    facts = (_keys(unit), [(item.kind, item.tokens, item.rows, item.offset, item.data) for item in unit.media])
    return {**{name: _digest(value) for name, value in unit.fields.items()}, "(records and media)": repr(facts)}


def _digest(value: Any) -> str:
    try:
        return digest_of({"value": value})
    except ConfigError:  # an object of the user's, on its way to an operator that knows it
        try:
            return pickle.dumps(value).hex()
        except Exception:
            return type(value).__name__


def _text(value: Any) -> str:
    text = repr(value.item() if isinstance(value, np.generic) else value) if np.ndim(value) == 0 else ""
    return text if len(text) <= _LONGEST else ""


def _keys(unit: Any) -> list[tuple[int, ...]]:
    if isinstance(unit, list):
        return [key for part in unit for key in _keys(part)]
    return [unit.key] if isinstance(unit, Record) else list(unit.keys)


def _copy(unit: Any) -> Any:
    """A unit, or a group of units, of its own; read-only arrays stay read-only."""
    if isinstance(unit, list):
        return [_copy(part) for part in unit]
    return replace(unit, fields={name: _own(value) for name, value in unit.fields.items()})


def _own(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy() if value.flags.writeable else value
    if isinstance(value, dict):
        return {name: _own(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_own(item) for item in value]
    return value if isinstance(value, (str, bytes, int, float, bool, type(None))) else copy.copy(value)
