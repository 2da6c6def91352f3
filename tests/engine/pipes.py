"""Pipelines on the thread runner, whatever the interpreter's default is."""

from __future__ import annotations

from typing import Any

from tests.conformance import functions
from zephon_ft import Pipeline


def pipeline(data: list[dict[str, Any]], **recipe: Any) -> Pipeline:
    """See `functions.pipeline`."""
    return functions.pipeline(data, **recipe).options(runner="thread")
