"""process: worker processes, for interpreters whose threads take turns. Same bytes as every other runner.

One thread of the parent hands out tasks and takes in results; it sleeps until a worker answers, a worker dies, or the
engine has something new. Workers are started for each iterator, never as forks of this process, and end with it, or
with the parent.
What stateful operators decide, the joining of documents to rows, and the layout of batches happen on that thread;
pixels are written by the workers straight into the batch. A worker that dies is noticed at once and its tasks run
elsewhere; one that hangs while the iterator closes is killed and reaped before anything that it could write to is let
go.
"""

from __future__ import annotations

import logging
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from zephon_ft.errors import ConfigError, PipelineError
from zephon_ft.runners.channel import Closed
from zephon_ft.runners.dispatch import Dispatch
from zephon_ft.runners.nursery import Nursery
from zephon_ft.runners.payloads import Lender
from zephon_ft.runners.shared import Arena
from zephon_ft.runners.shipment import ship
from zephon_ft.runners.thread import ThreadRunner, the_pool
from zephon_ft.runners.worker import Answer
from zephon_ft.runners.worker_process import LAST_WAIT, Board, WorkerProcess, cause

if TYPE_CHECKING:
    from zephon_ft.engine.engine import Engine

logger = logging.getLogger("zephon_ft")
_ATTEMPTS = 3  # deaths of a worker while it ran a task, before the task is blamed


class ProcessRunner:
    """Runs an engine's tasks in processes of its own; storage that waits on a network stays on the parent's threads."""

    fate = "its process was killed"

    def __init__(self) -> None:
        self._workers: list[WorkerProcess] = []
        self._deaths = 0  # since a task was last finished
        self._closing = False
        self._woken = False
        self._room = True  # some worker may have room for more
        self._bell_lock = threading.Lock()
        self._stuck: list[str] = []
        self._thread: threading.Thread | None = None

    # -- the consumer's side -----------------------------------------------------------------------------------

    def start(self, engine: Engine) -> None:
        """Send the plan on its way and start the workers; does not wait for them.

        Raises:
            ConfigError: the pipeline cannot be sent to other processes (says what and why), or the system cannot.
            PipelineError: a limit of the system is in the way.
        """
        if not hasattr(socket, "AF_UNIX"):
            raise ConfigError('options: runner="process" needs Unix sockets; use runner="thread"')
        self._engine = engine
        self._size, self._timeout = engine.workers, engine.options.close_timeout
        kinds = engine.plan.kinds.values()
        modules = dict.fromkeys(name for kind in kinds for name in getattr(kind, "modules", ()))
        try:
            with ExitStack() as undo:
                self._arena = Arena()
                undo.callback(self._arena.close)
                self._shipment = ship(engine.plan, self._arena, engine.cache_limit // self._size)
                self._nursery = Nursery(tuple(modules))
                self._board = Board(self._arena, self._size, engine.plan)
                self._lender = Lender(self._arena, engine.options.resolved_budget() // 4)
                self._selector = selectors.DefaultSelector()
                undo.callback(self._selector.close)
                self._bell, self._ear = socket.socketpair()
                undo.pop_all()
        except OSError as error:
            raise PipelineError(
                f"what worker processes share cannot be made: {error}; raise the limit that it names (ulimit -n, the "
                'memory of the container), or use options(runner="thread")'
            ) from error
        # A message costs both sides, and its reader's caches, more than a thread's next task does.
        engine.pace.seconds, engine.pace.layouts = 8 * engine.pace.seconds, 4 * engine.pace.layouts
        self._dispatch = Dispatch(engine)
        engine.pool.memory = self._arena
        if engine.remote:
            the_pool().add(engine, computing=False)
        self._storage_wake = engine.wake
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        engine.wake = self._wake
        self._thread = threading.Thread(target=self._run, name="zephon_ft processes", daemon=True)
        self._thread.start()

    def helper(self, engine: Engine) -> Callable[[], bool] | None:
        """The consumer only waits."""
        return None

    def stop(self, engine: Engine) -> list[str]:
        """Close the engine; workers that do not come back within `close_timeout` are killed."""
        if self._thread is None:  # it could not start
            return list(engine.close(0.0).values())
        until = time.monotonic() + self._timeout
        self._closing = True
        self._board.close()
        self._wake(1)
        if engine.remote:
            the_pool().remove(engine)
        left = engine.close(self._timeout)
        self._thread.join(max(0.0, until - time.monotonic()) + LAST_WAIT)
        if not self._thread.is_alive():
            return self._stuck
        for worker in self._workers:  # the thread itself is stuck, in a user's accumulator: end them from here
            worker.process.kill()
            worker.process.wait(LAST_WAIT)
        self._nursery.close()
        self.fate = ThreadRunner.fate
        return list(left.values())

    def _wake(self, n: int) -> None:
        """There may be something to do (called by anyone, without locks)."""
        self._storage_wake(n)
        if threading.current_thread() is self._thread or not (self._room or self._closing):
            return  # the next answer wakes it
        with self._bell_lock:
            if self._woken:
                return
            self._woken = True
        with suppress(OSError):  # ended
            self._bell.send(b"!")

    # -- the runner's own thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        # What this thread starts has Ctrl-C blocked from its first instruction on; the main thread gets it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._selector.register(self._ear, selectors.EVENT_READ)
            soon = self._nursery.open()
            if soon is None:
                self._populate()
            else:
                self._selector.register(soon, selectors.EVENT_READ, self._nursery)
            self._serve()
        except BaseException as error:
            self._engine.fail(error)
        finally:
            self._end()

    def _serve(self) -> None:
        """Until the engine is closed and nothing runs any more, or `close_timeout` is over."""
        until = None
        while True:
            left = None
            if self._closing:
                until = until or time.monotonic() + self._timeout
                left = until - time.monotonic()
                if left <= 0 or not any(worker.jobs for worker in self._workers):
                    return
            else:
                self._room = True  # before tasks are looked for, as below
                self._room = self._dispatch.hand_out(self._workers)
            awake = []
            for key, _ in self._selector.select(left):
                worker = key.data
                if worker is None:
                    with suppress(OSError):
                        self._ear.recv(64)
                    with self._bell_lock:  # after the bell fell silent, before tasks are looked for: no call is lost
                        self._woken = False
                    continue
                if worker is self._nursery:
                    self._selector.unregister(key.fd)
                    self._nursery.settle()
                    self._populate()
                    continue
                if key.fd == worker.exit_fd:  # what it has left to say is there already
                    worker.channel.worker_ended()
                if worker not in awake:
                    awake.append(worker)
            for worker in awake:
                self._take(worker)

    def _take(self, worker: WorkerProcess) -> None:
        """An answer, or a worker's end."""
        engine = self._engine
        try:
            number, answer = worker.channel.receive()
        except Closed:
            self._bury(worker)
            return
        if not isinstance(answer, Answer):
            reason = f"{type(answer).__name__}: {answer}"
            why = f"a worker's result cannot be read ({reason}): what functions return must be importable here"
            answer = Answer([], PipelineError(why), {}, [], [])
        if answer.error is not None:
            engine.fail(answer.error)
        if not worker.ready:
            worker.ready = True
            return
        self._deaths = 0
        self._dispatch.take_in(worker.jobs.pop(number), answer)

    # -- workers' lives ----------------------------------------------------------------------------------------

    def _populate(self) -> None:
        for number in range(self._size):
            self._workers.append(self._hire(number))

    def _hire(self, number: int) -> WorkerProcess:
        """A new worker, which learns the plan."""
        try:
            worker = WorkerProcess(number, self._nursery, self._arena, self._lender, self._board)
        except OSError as error:
            raise PipelineError(
                f"worker process {number} of {self._size} cannot be started ({error}); use fewer workers, allow more "
                '(ulimit -n, ulimit -u), or use runner="thread"'
            ) from error
        for source in worker.sources:
            self._selector.register(source, selectors.EVENT_READ, worker)
        worker.channel.send(self._shipment)
        return worker

    def _bury(self, worker: WorkerProcess) -> None:
        """A worker has ended by itself: its tasks run again, on a new one in its place."""
        self._workers.remove(worker)
        code = self._dismiss(worker)
        jobs = list(worker.jobs.values())
        self._dispatch.again.extend(worker.left())
        if self._closing:
            return
        self._deaths += 1
        doing = self._board.doing(worker.number)
        if jobs:
            jobs[0].attempts += 1
            logger.warning("a worker process died (%s) at %s; its tasks run again", cause(code), self._words(*doing))
        if jobs and jobs[0].attempts == _ATTEMPTS:
            name, where = doing[0] or "a task", self._where(doing[1])
            self._engine.fail(
                PipelineError(
                    f"{name}: the worker process that ran it died, {_ATTEMPTS} times over: {cause(code)} ({where}); "
                    'run it with options(runner="inline") to see what it does, or use fewer workers if memory ran out',
                    name,
                    where,
                )
            )
        elif self._deaths > _ATTEMPTS * self._size:
            why = f"worker processes die before they finish anything: {cause(code)}; `zephon-ft doctor` may know why"
            self._engine.fail(PipelineError(f"{why}; if memory ran out, use fewer workers or a smaller memory_budget"))
        if self._engine.failure is None:
            self._workers.append(self._hire(worker.number))

    def _dismiss(self, worker: WorkerProcess, wait: float = 0.5) -> int:
        for source in worker.sources:
            self._selector.unregister(source)
        return worker.dismiss(wait)

    def _end(self) -> None:
        """Let all workers go. Only then is anything let go that they could write to."""
        for worker in self._workers:
            if worker.jobs:
                if self._closing:  # and it does not come back; else this thread itself has failed
                    self._stuck.append(self._words(*self._board.doing(worker.number)))
                worker.process.kill()
            worker.channel.hang_up()  # all begin to leave at once
        for worker in self._workers:
            with suppress(subprocess.TimeoutExpired):
                self._dismiss(worker, max(1.0, self._timeout))
            self._dispatch.again.extend(worker.left())
        self._workers.clear()
        self._nursery.close()
        self._dispatch.clear()
        self._engine.wake = self._storage_wake  # engine and runner no longer hold each other
        self._selector.close()
        self._arena.close()
        self._bell.close()
        self._ear.close()

    # -- what a worker is doing --------------------------------------------------------------------------------

    def _where(self, key: tuple[int, ...]) -> str:
        return self._engine.plan.describe(key) if len(key) > 3 else "no record"

    def _words(self, name: str, key: tuple[int, ...]) -> str:
        return f"{name or 'a task'} on {self._where(key)}"
