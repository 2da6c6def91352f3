"""Runner: where an engine's tasks are executed. The engine decides what, the runner only where and when.

A runner calls ``engine.next_task(io)`` and then ``engine.run(task, io)`` for what it got, on any thread, as often as it
likes; the data cannot depend on it. A runner that computes elsewhere does what `run` does piece by piece: the task's
``prepare`` and ``complete`` where the engine is, its ``compute`` anywhere, and ``engine.finish`` whatever happens. The
contract that every runner passes is in tests/conformance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from zephon_ft.engine.engine import Engine


class Runner(Protocol):
    """Executes the tasks of one engine.

    Attributes:
        fate: what becomes of a worker that does not come back at the end, in words.
    """

    fate: str

    def start(self, engine: Engine) -> None:
        """Begin. Sets ``engine.wake``, which is called without locks when n more tasks may be ready."""

    def helper(self, engine: Engine) -> Callable[[], bool] | None:
        """What the waiting consumer calls to run one task itself (False: there is none), or None if it just waits."""

    def stop(self, engine: Engine) -> list[str]:
        """End within the engine's `close_timeout`; returns the user functions that did not return, in words."""
