"""Worker: what runs in a process of the process runner. It takes a plan once, then tasks, until its parent is gone.

Forked from a template (see `template`), or started as ``python -c BOOTSTRAP sys.path-as-JSON parent tray answers arena
status``. It does not import the script's main module, so that needs no ``if __name__ == "__main__"`` guard, and nothing
starts twice.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from zephon_ft.engine.plan import Plan
from zephon_ft.engine.work import WorkerState
from zephon_ft.errors import PipelineError
from zephon_ft.runners.channel import Closed, WorkerEnd
from zephon_ft.runners.shared import PAGE, Region, Window
from zephon_ft.runners.shipment import Shipment

BOOTSTRAP = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from zephon_ft.runners.worker import main; main(*map(int, sys.argv[2:]))"
)
STATUS = 16  # int64 values of one worker's status: closing, operator number, length of the key, the key
_DOING = [struct.Struct(f"=qq{size}q") for size in range(STATUS - 2)]  # by the length of the key
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """What the tasks of a message brought.

    Attributes:
        results: what `compute` returned, of each task in order, up to the first that failed.
        error: what that one raised, or None.
        counts, notes: what they added to the worker's statistics.
        datasets: what they added to each dataset's.
    """

    results: list[Any]
    error: BaseException | None
    counts: dict[str, int]
    notes: list[Any]
    datasets: list[dict[str, int]]


def operator_names(plan: Plan) -> list[str]:
    """Everything that a worker can be doing; a status holds the number in this list."""
    steps = [step for segment in plan.segments for step in (segment.head, *segment.steps) if step is not None]
    return ["", "read", *(step.operator.name for step in steps), *(f"decode {kind}" for kind in plan.kinds)]


class RemoteState(WorkerState):
    """A worker's state, with what it is doing in shared memory, where the parent finds it after the worst."""

    def __init__(self, plan: Plan, status: memoryview) -> None:
        self._status = status
        self._numbers = {name: number for number, name in enumerate(operator_names(plan))}
        super().__init__(plan)
        self._seen = [dataset.stats() for dataset in plan.source.datasets]

    @property  # type: ignore[override]
    def doing(self) -> tuple[str, Any]:
        """Operator and unit in progress."""
        return self._doing

    @doing.setter
    def doing(self, value: tuple[str, Any]) -> None:
        self._doing = value
        name, unit = value
        key = () if unit is None else getattr(unit, "key", None) or next(iter(getattr(unit, "keys", ())), ())
        size = min(len(key), STATUS - 3)
        _DOING[size].pack_into(self._status, 8, self._numbers.get(name, 0), size, *key[:size])

    @property  # type: ignore[override]
    def closing(self) -> bool:
        """Whether the parent wants no more."""
        return bool(self._status[0])

    @closing.setter
    def closing(self, value: bool) -> None:
        """The parent alone decides it."""

    def answer(self, results: list[Any], error: BaseException | None = None) -> Answer:
        """The answer to a message, with the statistics since the last one."""
        counts, self.counts = self.counts, {}
        notes, self.notes = self.notes, []
        now = [dataset.stats() for dataset in self.plan.source.datasets]
        datasets = [
            {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}
            for before, after in zip(self._seen, now, strict=True)
        ]
        self._seen = now
        return Answer(results, error, counts, notes, datasets)


def main(parent: int, tray: int, answers: int, arena: int, status: int) -> None:
    """Run a worker until its parent closes the channel or dies.

    Args:
        parent: process id of what started it.
        tray, answers, arena: file descriptors.
        status: where its status lies in the arena, in bytes.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    die_with(parent)
    window = Window(arena)
    page, first = divmod(status, PAGE)
    memory = memoryview(window.map(Region(page * PAGE, PAGE)))
    channel = WorkerEnd((tray, answers), window)
    with suppress(Closed):
        _serve(channel, window, memory[first : first + 8 * STATUS].cast("q"))


def _serve(channel: WorkerEnd, window: Window, status: memoryview) -> None:
    shipment: Shipment = channel.receive()
    try:
        plan = shipment.unpack(window)
        for dataset in plan.source.datasets:
            dataset.set_cache_limit(shipment.cache_limit)
        state = RemoteState(plan, status)
    except BaseException as error:
        failure = PipelineError(
            f"a worker process could not load the pipeline: {type(error).__name__}: {error}; modules that it needs "
            'must be importable there, and data readable; options(runner="thread") needs neither'
        )
        failure.__cause__ = error
        channel.answer(Answer([], failure, {}, [], []))
        return
    channel.answer(state.answer([]))
    while True:
        work = channel.receive()
        if state.closing:
            return
        answer = _run(state, work)
        try:
            channel.answer(answer)
        except Closed:
            raise
        except Exception as error:
            failure = _cannot_travel(work, answer.results, error)
            channel.answer(Answer([], failure, answer.counts, answer.notes, answer.datasets))
        state.doing = ("", None)
        del work, answer  # nothing is kept while this worker waits


def _run(state: RemoteState, work: list[tuple[Any, Any]]) -> Answer:
    results: list[Any] = []
    try:
        for compute, payload in work:
            results.append(compute(state, payload))
    except BaseException as error:
        return state.answer(results, error)
    return state.answer(results)


def _cannot_travel(work: list[tuple[Any, Any]], results: list[Any], error: Exception) -> PipelineError:
    compute, result = work[0][0], results[0] if results else None
    what = f"the result of {compute.__qualname__.split('.')[0]}"
    bundle = result[0] if isinstance(result, tuple) else result
    for unit in getattr(bundle, "units", ()):
        for name, value in unit.fields.items() if isinstance(unit.fields, dict) else ():
            try:
                pickle.dumps(value)
            except Exception as reason:
                what, error = f"field {name!r}, a {type(value).__name__}", reason
                break
    return PipelineError(
        f"{what}, cannot be sent between processes ({type(error).__name__}: {error}). Let functions return plain "
        'values and arrays, or use options(runner="thread") or "inline", which send nothing'
    )


def die_with(parent: int) -> None:
    """End when the parent does, also by SIGKILL. Elsewhere than on Linux the end of the channel has to do."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
