"""Every runner: a consumer that does not take holds up the work, within a bound in records and in bytes."""

from __future__ import annotations

import os
import time
from typing import Any

from tests.conformance.functions import numbers, pipeline, rows

MB = 1 << 20


def leave_a_mark(row: dict[str, Any]) -> dict[str, Any]:
    """One byte in a file for each row: seen from any process."""
    with open(row["log"], "ab", buffering=0) as file:
        file.write(b".")
    return {"n": row["n"]}


def add_a_megabyte(row: dict[str, Any]) -> dict[str, Any]:
    return {"n": row["n"], "payload": bytes(MB)}


def test_work_stops_a_bounded_number_of_records_ahead_of_the_consumer_and_goes_on_when_it_takes(runner, tmp_path):
    log = tmp_path / "log"
    data = [{"n": n, "log": str(log)} for n in range(20_000)]
    pipe = pipeline(data, lanes=2, flush_every=50).map(leave_a_mark).batch(2)
    with iter(pipe.options(runner=runner, workers=2, prefetch=4, task_rows=2)) as stream:
        numbers(stream, 2)
        stopped = settled(log)
        assert 4 <= stopped < 1000
        numbers(stream, 1000)
        # Each taken batch lets about as many records in; what is ahead of the consumer stays what it was.
        assert 2000 <= settled(log) < 2000 + 1000


def settled(log: os.PathLike[str]) -> int:
    """The number of marks, once it does not change any more."""
    before, since = -1, time.monotonic()
    while time.monotonic() - since < 0.5:
        now = os.path.getsize(log)
        if now != before:
            before, since = now, time.monotonic()
        time.sleep(0.02)
    return before


def test_what_is_held_stays_within_the_budget_and_what_is_under_way(runner):
    budget = 16 * MB
    pipe = pipeline(rows(400), lanes=4).map(add_a_megabyte).batch(1)
    options = {"runner": runner, "workers": 2, "memory_budget": budget, "task_rows": 1, "prefetch": 200}
    with iter(pipe.options(**options)) as stream:  # without the budget it would hold 200 batches of a megabyte
        time.sleep(0.5)
        numbers(stream, 60)
        assert MB <= stream.stats()["peak_held_bytes"] <= budget + 16 * MB
