"""Dispatch: short tasks share a message where they wait anyway, nobody idles for it, and none of them is lost."""

from __future__ import annotations

from typing import Any

import pytest

from zephon_ft.engine.tasks import FillTask, SourceTask
from zephon_ft.runners.dispatch import Dispatch
from zephon_ft.runners.job import TASKS
from zephon_ft.runners.worker import Answer

SMALL, LARGE = 300_000, 5_000_000  # source pixels


class Kind:
    @staticmethod
    def pixels(media: int) -> int:
        return media


class Decoding(FillTask):
    """Decodes one image of so many pixels."""

    def __init__(self, pixels: int) -> None:
        item = type("Item", (), {"kind": "images", "media": pixels})
        super().__init__(None, [(type("Batch", (), {"kinds": {"images": Kind}}), item)], 0)  # type: ignore[list-item]
        self.results: list[Any] = []

    def prepare(self, engine: Any) -> Any:
        return "payload"

    def complete(self, engine: Any, result: Any) -> None:
        self.results.append(result)


class Engine:
    """Gives out tasks in order."""

    failure: BaseException | None = None

    def __init__(self, tasks: list[Any], workers: int) -> None:
        self.tasks, self.workers, self.finished = tasks, workers, []  # type: ignore[var-annotated]
        self.plan = type("Plan", (), {"source": type("Source", (), {"datasets": []})})

    def next_task(self, share: tuple[int, int]) -> Any:
        return self.tasks.pop(0) if self.tasks else None

    def finish(self, task: Any) -> None:
        self.finished.append(task)

    def fail(self, error: BaseException) -> None:
        self.failure = error

    def state(self) -> Any:
        return type("State", (), {"merge": staticmethod(lambda counts, notes: None)})


class Worker:
    """Takes two messages, and tells how many tasks are in each."""

    ready = True
    next: Any = None

    def __init__(self, number: int) -> None:
        self.number, self.sent = number, 0
        self.jobs: dict[int, Any] = {}
        self.channel = self

    def send(self, message: list[Any]) -> int:
        self.sent += 1
        return self.sent

    def take_back(self) -> int:
        return self.sent

    @property
    def loads(self) -> list[int]:
        return [len(job.parts) for job in self.jobs.values()]


def handed_out(tasks: list[Any], workers: int = 2) -> tuple[Engine, Dispatch, list[Any]]:
    engine, crew = Engine(tasks, workers), [Worker(number) for number in range(workers)]
    dispatch = Dispatch(engine)  # type: ignore[arg-type]
    dispatch.hand_out(crew)  # type: ignore[arg-type]
    return engine, dispatch, crew


@pytest.mark.parametrize(
    ("count", "loads"),
    [(1, [[1], []]), (3, [[1, 1], [1]]), (4, [[1, 1], [1, 1]]), (7, [[1, 3], [1, 2]]), (12, [[1, 5], [1, 5]])],
)
def test_short_tasks_share_the_message_that_waits_and_are_spread_evenly(count, loads):
    _, _, crew = handed_out([Decoding(SMALL) for _ in range(count)])
    assert [worker.loads for worker in crew] == loads


def test_one_message_holds_so_much_work_and_no_more():
    engine, _, crew = handed_out([Decoding(1) for _ in range(100)])
    assert [worker.loads for worker in crew] == [[1, TASKS], [1, TASKS]]
    engine, _, crew = handed_out([Decoding(LARGE) for _ in range(100)])
    assert ([worker.loads for worker in crew], len(engine.tasks)) == ([[1, 1], [1, 1]], 96)


def test_a_task_that_does_not_fit_goes_next_or_to_whoever_idles():
    tasks = [Decoding(SMALL), Decoding(SMALL), Decoding(LARGE)]
    _, dispatch, (worker,) = handed_out(list(tasks), 1)
    assert (worker.loads, worker.next.parts) == ([1, 1], [(tasks[2], "payload")])
    idle = Worker(1)
    dispatch.hand_out([worker, idle])  # type: ignore[list-item]
    assert [task for task, _ in idle.jobs[1].parts] == [tasks[2]]
    assert worker.next is None
    worker.jobs.clear()
    dispatch.hand_out([worker])  # type: ignore[list-item]
    assert worker.loads == []


def test_work_that_waits_goes_to_a_worker_that_idles():
    _, dispatch, (worker,) = handed_out([Decoding(SMALL) for _ in range(4)], 1)
    assert worker.loads == [1, 3]
    idle = Worker(1)
    dispatch.hand_out([worker, idle])  # type: ignore[list-item]
    assert (worker.loads, idle.loads) == ([1], [3])


def test_it_tells_whether_a_worker_has_room_for_more():
    for count, room in ((3, True), (4, False)):
        _, dispatch, crew = handed_out([Decoding(SMALL) for _ in range(count)])
        assert dispatch.hand_out(crew) is room  # type: ignore[arg-type]


def test_reading_travels_alone():
    class Reading(SourceTask):
        def __init__(self) -> None:
            super().__init__(None)  # type: ignore[arg-type]

        def prepare(self, engine: Any) -> Any:
            return "rows"

    _, _, crew = handed_out([Reading() for _ in range(9)])
    assert [worker.loads for worker in crew] == [[1, 1], [1, 1]]


def test_where_one_task_of_a_message_fails_the_others_are_finished_too():
    engine, dispatch, (worker,) = handed_out([Decoding(SMALL) for _ in range(4)], 1)
    job = worker.jobs.pop(2)
    dispatch.take_in(job, Answer(["first"], ValueError("second"), {}, [], []))
    tasks = [task for task, _ in job.parts]
    assert [task.results for task in tasks] == [["first"], [], []]
    assert engine.finished == tasks
