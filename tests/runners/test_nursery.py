"""Nursery: workers are forks of one template, and whatever becomes of that, there are workers."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.conformance.functions import identity, numbers, pipeline, rows
from tests.runners.helpers import alive, processes, wait_for
from zephon_ft.runners import process
from zephon_ft.runners.channel import ParentEnd
from zephon_ft.runners.nursery import Nursery
from zephon_ft.runners.payloads import Lender
from zephon_ft.runners.shared import Arena

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no pidfd: no template")


def stream_of(count: int = 400, function=identity, workers: int = 3):
    pipe = pipeline(rows(count), lanes=2, epochs=1).map(function).batch(2)
    return pipe.options(runner="process", workers=workers, task_rows=1)


def draw(row):
    time.sleep(0.01)  # so that no worker does them all
    return {"n": os.getpid(), "drawn": int(np.random.randint(1 << 40))}


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def settled(*modules: str) -> Nursery:
    nursery = Nursery(modules)
    fd = nursery.open()
    assert fd is not None
    assert select.select([fd], [], [], 60)[0]
    nursery.settle()
    return nursery


@pytest.mark.parametrize(
    ("module", "forked"),
    [("json", True), ("tests.runners.starts_a_thread", False), ("no.such.module", False)],
    ids=["harmless", "starts a thread", "cannot be imported"],
)
def test_workers_are_forked_only_where_that_is_safe_and_start_anyway(module, forked):
    nursery, arena = settled(module), Arena()
    arena.map(4096)
    channel = ParentEnd(arena, Lender(arena, 0))  # open, so the worker waits for its plan
    try:
        worker, pidfd = nursery.start(*channel.theirs, arena.fd, 0)
        assert (parent_of(worker.pid) == os.getpid()) != forked
        worker.kill()
        assert worker.wait(10) == -signal.SIGKILL
        os.close(pidfd)
    finally:
        channel.close()
        nursery.close()
        arena.close()


def test_a_template_that_is_killed_takes_its_workers_along_and_the_stream_goes_on():
    expected = numbers(stream_of(40))
    with iter(stream_of(40)) as stream:
        batches = [next(stream)]
        before = processes(stream)
        stream._runner._nursery._template.kill()
        batches += list(stream)
        assert wait_for(lambda: not any(map(alive, before)), 10)
    assert [batch.columns["n"].tolist() for batch in batches] == expected


def test_the_template_and_all_workers_end_with_the_stream():
    stream = iter(stream_of())
    pids = [*processes(stream), stream._runner._nursery._template.pid]
    assert {parent_of(pid) for pid in pids[:-1]} == {pids[-1]}
    stream.close()
    assert not any(map(alive, pids))


def test_workers_inherit_nothing_of_each_other():
    with iter(stream_of()) as stream:
        folders = [Path(f"/proc/{pid}/fd") for pid in processes(stream)]
        files = [[os.readlink(fd) for fd in folder.iterdir()] for folder in folders]
    channels = [[link for link in links if link.startswith(("socket:", "anon_inode:"))] for links in files]
    assert [len(own) for own in channels] == [2, 2, 2]
    assert len({link for own in channels for link in own}) == 6


def test_workers_do_not_draw_the_same_random_numbers(monkeypatch):
    monkeypatch.setattr(process, "Nursery", lambda modules: Nursery(("numpy.random",)))
    with iter(stream_of(60, draw)) as stream:
        batches = list(stream)
    drawn = [value for batch in batches for value in batch.columns["drawn"].tolist()]
    assert len({value for batch in batches for value in batch.columns["n"].tolist()}) > 1
    assert len(set(drawn)) == len(drawn)
