"""Runner: where an engine's tasks are executed. The engine decides what, the runner only where and when.

A runner calls ``host.next_task(io)`` and then ``host.run(task, io)`` for what it got, on any thread, as often as it
likes; the data cannot depend on it. A runner that computes elsewhere does what `run` does piece by piece: the task's
``prepare`` and ``complete`` where the engine is, its ``compute`` anywhere, and ``host.finish`` whatever happens (see
`zephon_ft.engine.tasks.Task`).

A runner of your own needs this file and the suite in tests/conformance, which every runner passes; its
example_runner.py is a small one. `zephon_ft.runners.choice.RUNNERS` makes it known by a name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from zephon_ft.buffers import BufferPool
    from zephon_ft.engine.engine import Engine
    from zephon_ft.engine.options import Options
    from zephon_ft.engine.pace import Pace
    from zephon_ft.engine.plan import Plan
    from zephon_ft.engine.tasks import Task
    from zephon_ft.engine.work import WorkerState


class Host(Protocol):
    """What a runner may use of the engine that it runs. All methods are safe to call from any thread.

    Attributes:
        wake: set by `Runner.start`; called from any thread, without locks, when up to n more tasks may be ready; must
            not block. Tasks may be ready without a call where a task was just taken or finished.
        workers: tasks that compute at once, at most; the engine gives out no more. A runner that keeps tasks waiting
            near its workers raises it in `Runner.start`.
        remote: whether there are tasks that wait on storage, which ``next_task(io=True)`` gives out; as many at once as
            ``options.io_concurrency`` says. Without it there are none.
        failure: what went wrong, once something did: the consumer raises it, so no further task is worth starting.
        options: of the run; for a runner ``close_timeout`` and ``io_concurrency``.
        plan: what is run: for `WorkerState`, where it computes elsewhere.
        pool: memory of batches; its ``memory`` may be set in `Runner.start`, to memory that workers share.
        pace: how much work goes into a task; may be set in `Runner.start`.
    """

    wake: Callable[[int], None]
    workers: int
    remote: bool
    failure: BaseException | None
    options: Options
    plan: Plan
    pool: BufferPool
    pace: Pace

    def next_task(self, io: bool = False, share: tuple[int, int] = (0, 1)) -> Task | None:
        """A task for the calling thread, or None. Each one that was given out must come to `run` or `finish`.

        Args:
            io: one that waits on storage, else one that computes.
            share: (i, n): reads only for the i-th of n shares of the lanes, for workers that share no memory.
        """

    def run(self, task: Task, io: bool = False) -> None:
        """Execute a task and take its result back, on the thread that asked for it. Never raises."""

    def finish(self, task: Task, io: bool = False) -> None:
        """A task is done, whatever came of it. `run` calls it; a runner that computes elsewhere does."""

    def state(self) -> WorkerState:
        """Statistics of the calling thread, into which those of other processes are merged."""

    def fail(self, error: BaseException) -> None:
        """End the run: the consumer raises `error`. The first one counts."""

    def close(self, timeout: float) -> dict[int, str]:
        """Give out no more tasks and wait for the running ones. Every `Runner.stop` calls it.

        Returns:
            by thread, what did not return within `timeout` seconds, in words.
        """


class Runner(Protocol):
    """Executes the tasks of one engine. Made by a factory without arguments, used for one run.

    Attributes:
        fate: what becomes of a worker that does not come back at the end, in words.
    """

    fate: str

    def start(self, engine: Engine) -> None:
        """Begin: set ``wake`` and start what works. Called once; `engine` is all of `Host`.

        Raises:
            ConfigError: it cannot run here, or not this pipeline. `stop` is called then, too.
        """

    def helper(self, engine: Engine) -> Callable[[], bool] | None:
        """What the waiting consumer calls to run one task itself (False: there is none), or None if it just waits.

        Called once, before `start`.
        """

    def stop(self, engine: Engine) -> list[str]:
        """End within the engine's `close_timeout`: call ``engine.close`` and let go of every worker.

        Called from any thread, also at the exit of the interpreter; once.

        Returns:
            the user functions that did not return, in words.
        """


if TYPE_CHECKING:
    _ENGINE_IS_A_HOST: type[Host] = Engine
