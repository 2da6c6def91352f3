"""WorkerProcess: one worker as its parent sees it, and the board on which all workers write what they are doing."""

from __future__ import annotations

import os
import signal
import subprocess

from zephon_ft.engine.plan import Plan
from zephon_ft.runners.channel import ParentEnd
from zephon_ft.runners.job import Job
from zephon_ft.runners.nursery import Nursery
from zephon_ft.runners.payloads import Lender
from zephon_ft.runners.shared import Arena
from zephon_ft.runners.worker import STATUS, operator_names

LAST_WAIT = 5.0  # seconds for what was killed to be gone


class Board:
    """What the workers are doing, in memory that they share with their parent: to be read also after the worst."""

    def __init__(self, arena: Arena, workers: int, plan: Plan) -> None:
        self._names = operator_names(plan)
        memory = arena.map(8 * STATUS * workers)
        self._first = arena.region(memory).offset
        self._values = memoryview(memory)[: 8 * STATUS * workers].cast("q")

    def place(self, number: int) -> int:
        """Where a worker's status lies in the arena, in bytes; it is cleared for a new worker."""
        self._values[STATUS * number + 1] = self._values[STATUS * number + 2] = 0
        return self._first + 8 * STATUS * number

    def close(self) -> None:
        """Tell all workers that nothing more is wanted."""
        for first in range(0, len(self._values), STATUS):
            self._values[first] = 1

    def doing(self, number: int) -> tuple[str, tuple[int, ...]]:
        """Name of the operator that a worker is in, and key of its record; empty where there is none."""
        status = self._values[STATUS * number : STATUS * (number + 1)].tolist()
        return self._names[status[1]], tuple(status[3 : 3 + status[2]])


class WorkerProcess:
    """A started worker.

    Attributes:
        jobs: sent to it, by number of the message; the first is what it works on.
        next: what it will be sent when there is room.
        ready: it has the plan.
        exit_fd: readable when the process has ended; None where the system has no such thing.
        sources: file descriptors to watch: its answers, and `exit_fd`.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, number: int, nursery: Nursery, arena: Arena, lender: Lender, board: Board) -> None:
        self.number = number
        self.jobs: dict[int, Job] = {}
        self.next: Job | None = None
        self.ready = False
        self.channel = ParentEnd(arena, lender)
        try:
            self.process, self.exit_fd = nursery.start(*self.channel.theirs, arena.fd, board.place(number))
        except OSError:
            self.channel.close()
            raise
        self.channel.started()
        self.sources = (self.channel.fd,) if self.exit_fd is None else (self.channel.fd, self.exit_fd)

    def left(self) -> list[Job]:
        """What it has not answered."""
        return [*self.jobs.values(), *([] if self.next is None else [self.next])]

    def dismiss(self, wait: float) -> int:
        """Let it go: it sees the end of the channel and exits, or is killed after `wait` seconds; its exit code."""
        self.channel.hang_up()
        try:
            code = self.process.wait(wait)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait(LAST_WAIT)
        self.channel.close()  # it reads no more
        if self.exit_fd is not None:
            os.close(self.exit_fd)
        return code


def cause(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else "an unknown signal"
    return f"exit code {code}, {name}" + (": killed from outside, perhaps for want of memory" if code == -9 else "")
