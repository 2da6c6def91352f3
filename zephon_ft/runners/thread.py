"""thread: one pool of worker threads per process, shared fairly by all pipelines in it.

A worker with nothing to do sleeps on a condition; nothing polls. Threads are daemons: a user function that never
returns cannot keep the interpreter from exiting. At exit the pool closes every pipeline and waits for its workers.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from zephon_ft.runners.gil import watch_gil

if TYPE_CHECKING:
    from zephon_ft.engine.engine import Engine


class ThreadRunner:
    """Runs an engine's tasks on the process's pool."""

    fate = "its thread is left behind"

    def start(self, engine: Engine) -> None:
        """Add the engine to the pool, and as many workers as it may use."""
        the_pool().add(engine)

    def helper(self, engine: Engine) -> Callable[[], bool] | None:
        """The consumer only waits: its thread is the trainer's."""
        return None

    def stop(self, engine: Engine) -> list[str]:
        """Take the engine out of the pool and wait for its running tasks."""
        pool = the_pool()
        pool.remove(engine)
        stuck = engine.close(engine.options.close_timeout)
        for ident in stuck:
            pool.detach(ident)
        return list(stuck.values())


class _Crew:
    """Threads of one kind: workers that compute, or threads that wait on storage."""

    def __init__(self, name: str, io: bool) -> None:
        self.name, self.io = name, io
        self.condition = threading.Condition(threading.Lock())
        self.engines: list[Engine] = []
        self.turn = 0
        self.threads: list[threading.Thread] = []
        self.idle = 0
        self.closed = False

    def grow(self, size: int) -> None:
        """Have at least so many threads (the condition is held)."""
        while len(self.threads) < size:
            name = f"zephon_ft {self.name} {len(self.threads)}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self.threads.append(thread)
            thread.start()

    def wake(self, n: int) -> None:
        """Up to n more tasks may be ready."""
        # Read without the lock: a worker counts as idle before it looks for tasks under the engine's lock, under which
        # these were made ready, so it found them or is counted here.
        if self.idle:
            with self.condition:
                self.condition.notify(n)

    def _work(self) -> None:
        me = threading.current_thread()
        while True:
            with self.condition:
                self.idle += 1
                while (found := self._next()) is None:
                    if self.closed or me not in self.threads:
                        self.idle -= 1
                        return
                    if len(self.threads) > self.wanted():
                        self.idle -= 1
                        self.threads.remove(me)
                        return
                    self.condition.wait()
                self.idle -= 1
                if self.idle:  # source tasks are made on demand: where there was one there may be another
                    self.condition.notify()
            engine, task = found
            engine.run(task, self.io)
            watch_gil()
            found = engine = task = None  # an idle worker must not keep a closed pipeline alive

    def _next(self):  # type: ignore[no-untyped-def]
        """A task of the engine whose turn it is, or of the next one that has any (the condition is held)."""
        count = len(self.engines)
        for i in range(count):
            engine = self.engines[(self.turn + i) % count]
            task = engine.next_task(self.io)
            if task is not None:
                self.turn = (self.turn + i + 1) % count
                return engine, task
        return None

    def wanted(self) -> int:
        """Threads that the engines of now may use at once."""
        limits = [e.options.io_concurrency if self.io else e.workers for e in self.engines]
        return max(limits, default=0)


class ThreadPool:
    """The threads of this process."""

    def __init__(self) -> None:
        self._crews = (_Crew("worker", io=False), _Crew("storage", io=True))

    def add(self, engine: Engine, computing: bool = True) -> None:
        """Serve this engine too: all its tasks, or only those that wait on storage."""
        crews = self._crews[not computing : 1 + engine.remote]

        def wake(n: int) -> None:
            for crew in crews:
                crew.wake(n)

        engine.wake = wake
        for crew in crews:
            with crew.condition:
                crew.engines.append(engine)
                crew.grow(crew.wanted())
                crew.condition.notify_all()

    def remove(self, engine: Engine) -> None:
        """Serve it no more; threads that nobody needs end."""
        for crew in self._crews:
            with crew.condition:
                if engine in crew.engines:
                    crew.engines.remove(engine)
                crew.condition.notify_all()

    def detach(self, ident: int) -> None:
        """A worker is stuck in a user function: forget the thread, so that another takes its place."""
        for crew in self._crews:
            with crew.condition:
                crew.threads = [thread for thread in crew.threads if thread.ident != ident]
                crew.grow(min(crew.wanted(), len(crew.threads) + 1))

    def close(self) -> None:
        """Close every pipeline and wait for the workers, `close_timeout` at most."""
        engines = {id(engine): engine for crew in self._crews for engine in crew.engines}.values()
        until = time.monotonic() + max((engine.options.close_timeout for engine in engines), default=0.0)
        for engine in engines:
            self.remove(engine)
            engine.close(max(0.0, until - time.monotonic()))
        for crew in self._crews:
            with crew.condition:
                crew.closed = True
                crew.condition.notify_all()
            for thread in list(crew.threads):
                if thread is not threading.current_thread():
                    thread.join(max(0.0, until - time.monotonic()))


_pool: ThreadPool | None = None
_pool_lock = threading.Lock()


def the_pool() -> ThreadPool:
    """This process's pool, made when it is first needed."""
    global _pool
    with _pool_lock:
        if _pool is None:
            # Threads of ours are the parallelism: tokenizers must not start a pool of its own in each of them.
            os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
            _pool = ThreadPool()
            atexit.register(_pool.close)
        return _pool


def _forget_after_fork() -> None:
    global _pool, _pool_lock
    if _pool is not None:
        atexit.unregister(_pool.close)
    _pool, _pool_lock = None, threading.Lock()  # the parent's threads do not exist in the child


with contextlib.suppress(AttributeError):  # not on Windows
    os.register_at_fork(after_in_child=_forget_after_fork)
