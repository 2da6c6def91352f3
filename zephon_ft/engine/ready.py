"""ReadyTasks: tasks that can run now, what is nearest to the trainer first. Used under the engine's lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from zephon_ft.engine.plan import Segment
from zephon_ft.engine.tasks import DrainTask, FillTask, LayoutTask, Task


class ReadyTasks:
    """One queue for each depth.

    Args:
        segments: of the plan; one with a `parallelism` has at most so many tasks running.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._caps = [segment.parallelism for segment in segments]
        self._active = [0] * len(segments)  # running tasks of each segment
        # Draining makes other tasks ready; then decoding, layouts, and the segments from the last to the first.
        self._near: dict[type[Task], deque[Task]] = {DrainTask: deque(), FillTask: deque(), LayoutTask: deque()}
        self._segments: list[deque[Task]] = [deque() for _ in segments]

    def push(self, task: Task, segment: int = -1) -> None:
        """Add a task; `segment`: the queue of a segment's tasks."""
        (self._near[type(task)] if segment < 0 else self._segments[segment]).append(task)

    def pop(self) -> Task | None:
        """The nearest task that may run."""
        for queue in self._near.values():
            if queue:
                return queue.popleft()
        for segment in range(len(self._segments) - 1, -1, -1):
            cap = self._caps[segment]
            if self._segments[segment] and (cap is None or self._active[segment] < cap):
                return self._segments[segment].popleft()
        return None

    def begun(self, task: Task) -> None:
        """A task runs now."""
        if task.segment >= 0:
            self._active[task.segment] += 1

    def done(self, task: Task) -> None:
        """It does not any more."""
        if task.segment >= 0:
            self._active[task.segment] -= 1

    def clear(self) -> None:
        """Forget all tasks."""
        for queue in (*self._near.values(), *self._segments):
            queue.clear()
