"""What a worker is doing, in words: for the report on one that does not return."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zephon_ft.engine.engine import Engine


def doing(engine: Engine, ident: int) -> str:
    """The operator and the record that a thread is at; an accumulator's, where it drains a lane."""
    state = engine.states.get(ident)
    name, unit = state.doing if state else ("", None)
    for slot in engine.slots:
        for stage in slot.lane.stages if slot.drainer == ident else ():
            if stage.doing is not None and stage.segment.head is not None:
                name, unit = stage.segment.head.operator.name, stage.doing
    key = getattr(unit, "key", None)
    return f"{name or 'a task'} on {engine.plan.describe(key) if key else 'no record'}"
