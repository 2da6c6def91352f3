from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from zephon_ft.ab.job import CHECK_ROWS, Job, Request
from zephon_ft.ab.measure import Counts, Result, measure
from zephon_ft.ab.tree import memory, processes, usage

BURN = (
    "import time\nend = time.process_time() + 0.25\nwhile time.process_time() < end: pass\nprint('done', flush=True)\n"
)


def one(item: object) -> Counts:
    return 1, 0, 2


def test_cpu_time_of_child_processes_counts_alive_or_ended() -> None:
    children: list[subprocess.Popen[str]] = []

    def stream() -> Iterator[int]:
        for number in range(1000):
            if number == 20:  # in the window: the one is waited for, the other goes on living
                subprocess.run([sys.executable, "-S", "-c", BURN], stdout=subprocess.PIPE, check=True)
                alive = [sys.executable, "-S", "-c", BURN + "input()"]
                children.append(subprocess.Popen(alive, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
                assert children[0].stdout is not None and children[0].stdout.readline() == "done\n"
            time.sleep(0.005)
            yield number

    try:
        window = measure(stream, one, warmup=0.02, seconds=0.3)
    finally:
        for child in children:
            child.communicate("\n")
    assert 0.45 <= window.cpu_s < window.wall_s + 0.5
    assert window.minor_faults > 100


def test_counts_are_those_of_the_window_and_the_first_item_is_timed_apart() -> None:
    closed = []

    def stream() -> Iterator[int]:
        time.sleep(0.1)
        try:
            while True:
                yield 0
                time.sleep(0.01)
        finally:
            closed.append(True)

    window = measure(stream, one, warmup=0.0, seconds=0.2)
    assert 0.1 <= window.first_s < 1
    assert window.wall_s >= 0.2
    assert 1 <= window.samples <= 100 * window.wall_s + 1 and window.tokens == 2 * window.samples
    assert closed


def test_what_was_made_before_the_window_is_not_counted() -> None:
    def stream() -> Iterator[int]:
        start = time.perf_counter()
        while True:
            yield 0
            time.sleep(0.0001 if time.perf_counter() - start < 0.15 else 0.01)

    window = measure(stream, one, warmup=0.2, seconds=0.2)
    assert window.samples <= 100 * window.wall_s + 1


def test_a_stream_that_has_not_settled_shows_in_its_drift() -> None:
    def stream() -> Iterator[int]:
        start = time.perf_counter()
        while True:
            yield 0
            time.sleep(0.02 if time.perf_counter() - start < 0.2 else 0.002)

    assert measure(stream, one, warmup=0.0, seconds=0.4).drift > 2


@pytest.mark.parametrize("items", [0, 3])
def test_a_stream_that_ends_is_an_error(items: int) -> None:
    with pytest.raises(ValueError, match="the stream"):
        measure(lambda: iter(range(items)), one, warmup=0.0, seconds=0.1)


def test_a_process_tree_holds_its_children_and_their_memory() -> None:
    code = "data = bytearray(50_000_000)\nfor i in range(0, len(data), 4096): data[i] = 1\nprint(flush=True)\ninput()"
    before = usage()
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in processes(child.pid)
        assert 45e6 < memory(child.pid) < 150e6
        assert (usage() - before).faults > 10_000
    finally:
        child.communicate("\n")


def test_requests_and_results_survive_json() -> None:
    request = Request(job=Job(mode="full", data="x.parquet", workers=2), side="thread", decode="own")
    assert Request.from_json(request.to_json()) == request
    assert request.check().job.rows == CHECK_ROWS and request.check().job.passes == 1
    result = Result(side="thread", mode="full", runner="thread", workers=2, check={"samples": 1})
    assert Result.from_json(result.to_json()) == result
    with pytest.raises(ValueError):
        Result.from_json('{"something": "else"}')
