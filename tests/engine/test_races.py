"""Moments between two steps of a worker, held open: nothing is seen too early, nothing is lost."""

from __future__ import annotations

import time

import pytest

from tests.conformance.functions import act, numbers, rows
from tests.engine.pipes import pipeline
from zephon_ft import PipelineError
from zephon_ft.engine.engine import Engine
from zephon_ft.engine.lane import Lane


@pytest.fixture
def slow_absorb(monkeypatch):
    """Time passes between a lane's end or failure and the moment its last batches are known."""
    absorb = Engine._absorb

    def slow(self, slot, out):
        if slot.lane.ended or slot.lane.failed is not None:
            with self.lock:
                self.arrived.notify_all()
            time.sleep(0.05)
            with self.lock:
                self.arrived.notify_all()
            time.sleep(0.05)
        absorb(self, slot, out)

    monkeypatch.setattr(Engine, "_absorb", slow)


def test_the_last_batches_of_a_finite_stream_are_never_lost(slow_absorb):
    pipe = pipeline(rows(48), lanes=2, epochs=1).batch(3).options(workers=4, task_rows=48)
    assert len(numbers(pipe)) == 16


def test_batches_planned_together_with_a_failure_come_before_it(slow_absorb):
    data = rows(48, **{"raise": {37: "ValueError"}})
    pipe = pipeline(data, lanes=1, epochs=1).map(act).batch(3).options(workers=4, task_rows=48)
    got = []
    with pytest.raises(PipelineError):
        for batch in pipe:
            got += batch.columns["n"].tolist()
    assert got == list(range(36))


def test_a_result_that_arrives_while_a_lane_is_drained_is_not_forgotten(monkeypatch):
    advance = Lane.advance

    def slow(self, events):
        out = advance(self, events)
        time.sleep(0.003)
        return out

    monkeypatch.setattr(Lane, "advance", slow)
    pipe = pipeline(rows(60), lanes=2, epochs=1, flush_every=7).map(act).shuffle(4).map(act).batch(2)
    expected = numbers(pipe.options(runner="inline"))
    assert numbers(pipe.options(workers=6, task_rows=1)) == expected
    assert len(expected) == 30
