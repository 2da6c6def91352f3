"""Process runner: workers that die or hang, a parent that dies, and what is left behind."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.conformance.functions import Counting, identity, numbers, pipeline, rows
from tests.engine.scripts import start
from tests.guarantees.random_pipelines import Spec, build, take
from tests.runners.helpers import alive, die_where_told, processes, sleep_where_told, wait_for
from zephon_ft import PipelineError, StuckWorkerWarning

IMAGES = Spec("images", (20, 11), (3, 2), 4, 8, 1, ("map",), "best_fit", 4, (), 2, 2)


def chain(data, function, lanes: int = 1, **recipe):
    pipe = pipeline(data, lanes=lanes, epochs=1, **recipe).map(function).shuffle(5).map(identity).batch(2)
    return pipe.options(runner="process", workers=2)


# -- workers that die ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["killed", "segfault", "exit"])
def test_a_worker_that_dies_is_noticed_and_its_tasks_run_again_with_the_same_result(how, tmp_path, caplog):
    data = [{**row, "folder": str(tmp_path)} for row in rows(40, die={11: how})]
    with caplog.at_level(logging.WARNING, "zephon_ft"):
        got = numbers(chain(data, die_where_told))
    assert got == numbers(chain(rows(40), die_where_told).options(runner="inline"))
    assert "map(die_where_told) on dataset 'd', shard 0 (rows-0), row 11" in caplog.text


def test_a_worker_killed_at_every_fifth_task_changes_nothing(tmp_path):
    data = [{**row, "folder": str(tmp_path)} for row in rows(30, die=dict.fromkeys(range(0, 30, 5), "killed"))]
    got = numbers(chain(data, die_where_told).options(task_rows=1))
    assert got == numbers(chain(rows(30), die_where_told).options(runner="inline"))


def test_a_record_that_kills_every_worker_is_named_with_the_exit_code():
    data = rows(40, die={11: "exit"}, always={11: True})
    with pytest.raises(PipelineError, match=r"map\(die_where_told\): .*died, 3 times over: exit code 7") as caught:
        numbers(chain(data, die_where_told).options(task_rows=3))
    assert caught.value.operator == "map(die_where_told)"
    assert caught.value.record == "dataset 'd', shard 0 (rows-0), row 11, pass 0"


def test_a_worker_killed_from_outside_in_the_middle_of_the_run_is_replaced():
    expected = take(build(IMAGES, runner="inline"), 6)
    pipe = build(IMAGES, runner="process", workers=2)
    with iter(pipe) as stream:
        got = []
        for number in range(24):
            if number == 5:
                victims = processes(stream)
                os.kill(victims[0], signal.SIGKILL)
            batch = next(stream)
            got.append((batch.lane, batch.index, batch.digest()))
        assert wait_for(lambda: victims[0] not in processes(stream))
    assert got == expected


# -- workers that hang -----------------------------------------------------------------------------------------


def test_a_hung_worker_is_killed_and_named_within_close_timeout():
    stream = iter(chain(rows(40, sleep={11: 1000}), sleep_where_told).options(close_timeout=0.5))
    next(stream)
    pids = processes(stream)
    time.sleep(0.3)
    began = time.monotonic()
    with pytest.warns(StuckWorkerWarning, match=r"map\(sleep_where_told\) on dataset 'd'.* row 11, .*was killed"):
        stream.close()
    assert time.monotonic() - began < 5
    assert not any(map(alive, pids))


def test_a_task_that_waits_behind_a_slow_one_goes_to_an_idle_worker():
    # Behind the row that sleeps for ever everything else must still be worked off.
    pipe = pipeline(rows(400, sleep={200: 1000}), lanes=1).map(sleep_where_told).map(identity, parallelism=2).batch(2)
    stream = iter(pipe.options(runner="process", workers=2, task_rows=1, close_timeout=0.1, prefetch=200))
    got = [next(stream) for _ in range(100)]
    assert [n for batch in got for n in batch.columns["n"].tolist()] == list(range(200))
    board = stream._runner._board
    assert wait_for(lambda: any(board.doing(number)[1] == (0, 0, 200, 0) for number in range(2)))
    with pytest.warns(StuckWorkerWarning, match="row 200"):
        stream.close()


def test_records_that_are_still_to_come_are_not_worked_off_at_close():
    stream = iter(chain(rows(400, sleep=dict.fromkeys(range(400), 0.2)), sleep_where_told).options(task_rows=40))
    processes(stream)
    time.sleep(0.3)
    began = time.monotonic()
    stream.close()
    assert time.monotonic() - began < 4


def test_a_stuck_accumulator_is_named_and_the_workers_end():
    class Stuck(Counting):
        def accumulator(self):
            counter = super().accumulator()
            counter.push = lambda unit: time.sleep(12) or ()
            return counter

    stream = iter(pipeline(rows(40)).apply(Stuck()).batch(2).options(runner="process", workers=1, close_timeout=0.2))
    pids = processes(stream)
    assert wait_for(lambda: any(s.lane.stages[1].doing is not None for s in stream._engine.slots))
    with pytest.warns(StuckWorkerWarning, match="counting on dataset 'd'.*thread is left behind"):
        stream.close()
    assert not any(map(alive, pids))


# -- the parent ends -------------------------------------------------------------------------------------------

PARENT = """
it = stream(runner="process", sleep=SLEEP)
workers = it._runner._workers
while len(workers) < 2 or not all(worker.ready for worker in workers): time.sleep(0.01)
print(*[worker.process.pid for worker in workers], it._runner._nursery._template.pid, flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc and /dev/shm")
@pytest.mark.parametrize("sleep", [0.0, 1000.0], ids=["idle workers", "workers that sleep"])
def test_workers_end_with_a_parent_that_is_killed_and_leave_nothing(sleep):
    program = start(PARENT.replace("SLEEP", str(sleep)) + "time.sleep(1000)")
    try:
        assert program.stdout is not None
        pids = [int(pid) for pid in program.stdout.readline().split()]
        assert len(pids) == 3  # two workers, and the template that they were forked from
        assert all(map(alive, pids))
        # Their common memory has no name, so there is nothing that could be left behind.
        assert not any("/dev/shm/" in Path(f"/proc/{pid}/maps").read_text() for pid in (program.pid, *pids))
    finally:
        program.kill()
        program.communicate()
    assert wait_for(lambda: not any(map(alive, pids)), 5)


def test_ctrl_c_ends_parent_and_workers_with_one_traceback():
    program = start(PARENT.replace("SLEEP", "0.01") + "print('waiting', flush=True)\nfor _ in it: pass")
    try:
        assert program.stdout is not None
        pids = [int(pid) for pid in program.stdout.readline().split()]
        assert program.stdout.readline() == "waiting\n"
        for pid in [*pids, program.pid]:  # as a terminal does
            os.kill(pid, signal.SIGINT)
        _, err = program.communicate(timeout=20)
    finally:
        program.kill()
    assert program.returncode == -signal.SIGINT
    assert err.count("Traceback") == 1
    assert wait_for(lambda: not any(map(alive, pids)), 5)


def test_a_script_needs_no_main_guard_and_leaving_it_is_silent():
    program = start('it = stream(runner="process")\nprint(len(next(it)), os.getpid(), flush=True)')
    out, err = program.communicate(timeout=60)
    assert (program.returncode, err) == (0, "")
    assert out.split() == ["2", str(program.pid)]  # once: no worker ran the script


# -- nothing is left over --------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_twenty_streams_opened_and_closed_leave_no_files_threads_or_children():
    def files() -> int:
        return len(os.listdir("/proc/self/fd"))

    def use(count: int) -> None:
        pids = []
        for number in range(count):
            stream = iter(chain(rows(40), identity, lanes=2).options(workers=1))
            for _ in range(number % 3):
                next(stream)
            pids += [worker.process.pid for worker in stream._runner._workers]
            stream.close()
        assert not any(map(alive, pids))

    use(2)
    before = files(), threading.active_count()
    use(20)
    assert files() <= before[0]
    assert threading.active_count() <= before[1]
