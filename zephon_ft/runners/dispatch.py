"""Dispatch: which work goes to which worker process, and what becomes of its results. On the runner's own thread.

Every worker has a message that it works on and one that waits, so that it never idles while the parent is busy; the one
that waits may hold several short tasks. A worker reads lanes of its own share, because processes cannot share what they
have read, and others' only where it would idle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zephon_ft.errors import PipelineError
from zephon_ft.runners.channel import SLOTS
from zephon_ft.runners.job import TASKS, Job
from zephon_ft.runners.worker import Answer
from zephon_ft.runners.worker_process import WorkerProcess

if TYPE_CHECKING:
    from zephon_ft.engine.engine import Engine
    from zephon_ft.engine.tasks import Task


class Dispatch:
    """Takes tasks from an engine and gives them to worker processes.

    Args:
        engine: `engine.workers` processes work for it.

    Attributes:
        again: work of processes that died, which comes first.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine, self._size = engine, engine.workers
        self.again: deque[Job] = deque()
        engine.workers *= SLOTS * TASKS  # tasks in flight

    def hand_out(self, workers: Sequence[WorkerProcess]) -> bool:
        """Give every worker what it has room for; returns whether any has room left."""
        if self._engine.failure is not None:
            return True
        ready = [worker for worker in workers if worker.ready]
        for level in range(SLOTS):
            jobs = [(worker, self._job(worker)) for worker in ready if len(worker.jobs) <= level]
            given = [(worker, job) for worker, job in jobs if job is not None]
            if level:
                self._fill_up(given)
            for worker, job in given:
                self._send(worker, job)
        for worker in ready:
            last = None if worker.jobs else self._job(worker, any_lane=True) or _take_back(workers)
            if last is not None:
                self._send(worker, last)
        return any(len(worker.jobs) < SLOTS for worker in ready)

    def take_in(self, job: Job, answer: Answer) -> None:
        """A worker has answered."""
        engine = self._engine
        try:
            engine.state().merge(answer.counts, answer.notes)
            for dataset, counts in zip(engine.plan.source.datasets, answer.datasets):
                if counts:
                    dataset.add_stats(counts)
            for (task, _), result in zip(job.parts, answer.results):  # fewer than tasks, where one has failed
                task.complete(engine, result)
        except BaseException as error:
            engine.fail(error)
        finally:
            self._finish(job)

    def clear(self) -> None:
        """What waits for another try will have none."""
        while self.again:
            self._finish(self.again.popleft())

    def _job(self, worker: WorkerProcess, any_lane: bool = False) -> Job | None:
        """Work for a worker, if there is any."""
        if self.again:
            return self.again.popleft()
        job, worker.next = worker.next, None
        if job is None and (part := self._task(worker, any_lane)) is not None:
            job = Job(*part)
        return job

    def _fill_up(self, given: list[tuple[WorkerProcess, Job]]) -> None:
        """Let short tasks that are left over go along with work that will wait: all workers have some now."""
        while given := [(worker, job) for worker, job in given if job.open and worker.next is None]:
            for worker, job in given:
                part = self._task(worker)
                if part is None:
                    return
                if not job.add(*part):
                    worker.next = Job(*part)

    def _task(self, worker: WorkerProcess, any_lane: bool = False) -> tuple[Task, Any] | None:
        """The next task that a worker has to compute, and its payload; what needs none is done here."""
        engine, share = self._engine, (0, 1) if any_lane else (worker.number, self._size)
        while (task := engine.next_task(share=share)) is not None:
            try:
                payload = task.prepare(engine)
                if payload is not None:
                    return task, payload
            except BaseException as error:
                engine.fail(error)
            engine.finish(task)
        return None

    def _send(self, worker: WorkerProcess, job: Job) -> None:
        try:
            worker.jobs[worker.channel.send(job.message())] = job
        except Exception as error:
            failure = PipelineError(
                f"a task cannot be sent to a worker process: {type(error).__name__}: {error}; its fields must be "
                'picklable, or use options(runner="thread")'
            )
            failure.__cause__ = error
            self._engine.fail(failure)
            self._finish(job)

    def _finish(self, job: Job) -> None:
        for task, _ in job.parts:
            self._engine.finish(task)


def _take_back(workers: Sequence[WorkerProcess]) -> Job | None:
    """Work that waits behind other work, which may take long."""
    for worker in workers:
        if worker.next is not None:
            job, worker.next = worker.next, None
            return job
        if len(worker.jobs) > 1 and (number := worker.channel.take_back()) is not None:
            return worker.jobs.pop(number)
    return None
