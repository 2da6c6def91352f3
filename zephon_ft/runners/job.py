"""Job: what one message to a worker asks for: a task, or several short ones, as a message costs the same for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zephon_ft.engine.tasks import FillTask

if TYPE_CHECKING:
    from zephon_ft.engine.tasks import Task

TASKS = 8  # in one message, at most
_PIXELS = 2_000_000  # source pixels to decode in one message: about 10 ms of work


class Job:
    """Tasks on their way through a worker, and their payloads, which are kept for another try.

    Attributes:
        attempts: workers that died over it.
    """

    __slots__ = ("_pixels", "attempts", "parts")

    def __init__(self, task: Task, payload: Any) -> None:
        self.parts = [(task, payload)]
        self.attempts = 0
        self._pixels = _pixels(task)

    @property
    def open(self) -> bool:
        """Whether another short task may go along."""
        return self._pixels < _PIXELS and len(self.parts) < TASKS

    def add(self, task: Task, payload: Any) -> bool:
        """Take another task along; False where that is too much for one message."""
        pixels = _pixels(task)
        if self._pixels + pixels > _PIXELS:
            return False
        self.parts.append((task, payload))
        self._pixels += pixels
        return True

    def message(self) -> list[tuple[Any, Any]]:
        """What the worker gets: functions and their payloads."""
        return [(task.compute, payload) for task, payload in self.parts]


def _pixels(task: Task) -> int:
    """Source pixels that a task decodes; other tasks are long enough to travel alone."""
    if not isinstance(task, FillTask):
        return _PIXELS
    return sum(batch.kinds[fill.kind].pixels(fill.media) for batch, fill in task.fills)
