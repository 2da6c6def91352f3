"""Failures: an exception with the operator and the record it happened at, and how it travels down a lane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zephon_ft.errors import PipelineError

if TYPE_CHECKING:
    from zephon_ft.engine.plan import Plan


class Failure:
    """The stream ends here with an error. It travels behind what came before it, so every run ends at one place."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def wrap(plan: Plan, name: str, unit: Any, error: Exception, where: str = "no record") -> PipelineError:
    """`error` as a PipelineError that names the operator and the unit's record (`where`: there is no unit)."""
    if isinstance(error, PipelineError):
        return error
    key = getattr(unit, "key", None)
    if key is None:
        keys = getattr(unit, "keys", ())
        key = keys[0] if keys else None
    if key:
        where = plan.describe(key)
    failure = PipelineError(f"{name}: {type(error).__name__}: {error} ({where})", name, where)
    failure.__cause__ = error
    return failure
