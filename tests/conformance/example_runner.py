"""A runner written against `runners/base.py` alone: one thread of its own. The suite runs on it as on the others."""

from __future__ import annotations

import threading
from collections.abc import Callable

from zephon_ft.runners.base import Host


class OneThread:
    """All tasks, those that wait on storage too, on one thread that belongs to one run."""

    fate = "its thread is left behind"

    def start(self, engine: Host) -> None:
        self._host, self._ready, self._over = engine, threading.Semaphore(0), False
        engine.wake = self._wake
        threading.Thread(target=self._work, daemon=True).start()

    def helper(self, engine: Host) -> Callable[[], bool] | None:
        return None

    def stop(self, engine: Host) -> list[str]:
        self._over = True
        left = engine.close(engine.options.close_timeout)
        self._ready.release()
        return list(left.values())

    def _wake(self, n: int) -> None:
        self._ready.release()

    def _work(self) -> None:
        while not self._over:
            for io in (False, True):
                while (task := self._host.next_task(io)) is not None:
                    self._host.run(task, io)
            self._ready.acquire()
