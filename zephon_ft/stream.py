"""Stream: the iterator over a pipeline's batches. Owns the engine and ends with it."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from zephon_ft.batch import Batch
from zephon_ft.engine.engine import Engine
from zephon_ft.errors import ClosedError, StuckWorkerWarning
from zephon_ft.runners.base import Runner

_frozen = False


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
        self._finalizer = weakref.finalize(self, _stop, engine, runner)
        runner.start(engine)
        _freeze_once()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Batch:
        if self._done:
            raise StopIteration
        if self._error is not None:
            raise ClosedError(f"this iterator ended with an error: {self._error}; iterate over the pipeline again")
        try:
            batch = self._engine.next_batch(self._help)
        except ClosedError:
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
        """Whether it has ended, failed or been closed."""
        return not self._finalizer.alive

    def close(self) -> None:
        """Stop the workers and let go of everything; `close_timeout` at most. Further use raises ClosedError."""
        self._finalizer()

    def stats(self) -> dict[str, Any]:
        """Counts of what was dropped and skipped, by reason; bytes held now and at most."""
        return self._engine.stats()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _stop(engine: Engine, runner: Runner) -> None:
    for stuck in runner.stop(engine):
        warnings.warn(
            f"{stuck} did not return within close_timeout={engine.options.close_timeout} s; its thread is left behind",
            StuckWorkerWarning,
            stacklevel=2,
        )


def _freeze_once() -> None:
    """Take what lives for the whole run out of the collector's sight: each collection stops the trainer too."""
    global _frozen
    if not _frozen:
        _frozen = True
        gc.collect()
        gc.freeze()
