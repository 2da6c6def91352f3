"""Stream: the iterator over a pipeline's batches. Owns the engine and ends with it."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import gc
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from zephon_ft.batch import Batch
from zephon_ft.engine.engine import Engine
from zephon_ft.errors import ClosedError, StuckWorkerWarning
from zephon_ft.runners.base import Runner

_frozen = _exiting = False
_live: set[tuple[Engine, Runner]] = set()  # of this process, that nothing has stopped yet


class Stream(Iterator[Batch]):
    """Batches in delivery order. Close it, or just drop it: workers stop either way."""

    def __init__(
        self,
        engine: Engine,
        runner: Runner,
        on_batch: Callable[[Batch], None],
        on_end: Callable[[dict[str, int]], None],
    ) -> None:
        self._engine, self._on_batch, self._on_end = engine, on_batch, on_end
        self._help = runner.helper(engine)
        self._error: str | None = None
        self._done = False
        self._runner, self._pid = runner, os.getpid()
        self._finalizer = weakref.finalize(self, _dropped, engine, runner, self._pid)
        self._finalizer.atexit = False  # `_stop_all` does it then, and waits
        _live.add((engine, runner))
        runner.start(engine)
        _freeze_once()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Batch:
        if self._done:
            raise StopIteration
        if self._error is not None:
            raise ClosedError(f"this iterator ended with an error: {self._error}; iterate over the pipeline again")
        if self._pid != os.getpid():
            raise ClosedError("this iterator and its workers belong to the parent process; iterate again in this one")
        try:
            batch = self._engine.next_batch(self._help)
        except ClosedError:
            if _exiting and threading.current_thread() is not threading.main_thread():
                threading.Event().wait()  # a daemon thread, which ends with the interpreter: silently
            raise
        except BaseException as error:
            self._error = f"{type(error).__name__}: {error}"
            self.close()
            raise
        if batch is None:
            self._done = True
            lost = self._engine.lost()
            self.close()
            self._on_end(lost)
            raise StopIteration
        self._on_batch(batch)
        return batch

    @property
    def closed(self) -> bool:
        """Whether it has ended, failed or been closed, or belongs to the process that this one was forked from."""
        return not self._finalizer.alive or self._pid != os.getpid()

    def close(self) -> None:
        """Stop the workers and let go of everything; `close_timeout` at most. Further use raises ClosedError."""
        if self._finalizer.detach() is not None and self._pid == os.getpid():
            _stop(self._engine, self._runner)

    def stats(self) -> dict[str, Any]:
        """Counts of what was dropped and skipped, by reason; bytes held now and at most."""
        return self._engine.stats()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _dropped(engine: Engine, runner: Runner, pid: int) -> None:
    """Stop what was dropped, on a thread of its own.

    The collector runs this at any point of any thread, also of a worker that holds a lock which stopping needs.
    """
    if pid == os.getpid():
        with contextlib.suppress(RuntimeError):  # no thread can start any more: `_stop_all` will do it
            _thread.start_new_thread(_stop, (engine, runner))


def _stop_all() -> None:
    """At interpreter exit: stop what is still open."""
    global _exiting
    _exiting = True
    for engine, runner in list(_live):
        _stop(engine, runner)


def _stop(engine: Engine, runner: Runner) -> None:
    _live.discard((engine, runner))
    for stuck in runner.stop(engine):
        warnings.warn(
            f"{stuck} did not return within close_timeout={engine.options.close_timeout} s; {runner.fate}",
            StuckWorkerWarning,
            stacklevel=3,
        )


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_live.clear)  # workers of the parent do not exist in the child


def _freeze_once() -> None:
    """Take what lives for the whole run out of the collector's sight: each collection stops the trainer too."""
    global _frozen
    if not _frozen:
        _frozen = True
        atexit.register(_stop_all)  # after the runner has registered what it does at exit, so that this comes before
        gc.collect()
        gc.freeze()
