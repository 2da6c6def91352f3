"""Clock: what a task cost its worker."""

from __future__ import annotations

import time

_WAITING = 4  # a task that took so many times its CPU time was waiting, not held up by other programs


class Clock:
    """Started when it is made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.thread_time()

    def seconds(self) -> float:
        """CPU seconds of this thread since the start; elapsed seconds where it mostly waited (I/O, sleep).

        On a busy machine elapsed time says more about the neighbours than about the work.
        """
        cpu = time.thread_time() - self._cpu
        wall = time.perf_counter() - self._wall
        return wall if wall > _WAITING * cpu + 0.001 else cpu
