"""Tokenized units are no work for the garbage collector, and are freed all the same."""

from __future__ import annotations

import gc
import time

import pytest

from tests.guarantees.random_pipelines import Spec, build
from zephon_ft.record import Media, Record, Row


def tracked() -> int:
    return sum(type(o) in (Record, Row, Media) and gc.is_tracked(o) for o in gc.get_objects())


@pytest.mark.parametrize("runner", ["inline", "thread"])
def test_tokenized_units_are_not_tracked_and_are_freed_with_their_pipeline(runner):
    gc.collect()
    gc.freeze()
    try:
        stream = iter(build(Spec("images", (60,), (1,), 4, 100, 1, (), "best_fit", 40, (), 2, 0), runner=runner))
        for _ in range(8):
            next(stream)
        until = time.monotonic() + 20
        while tracked() >= 20 and time.monotonic() < until:
            time.sleep(0.05)  # workers still have some in hand; they stop where enough is planned
        assert sum(stage.taken for slot in stream._engine.slots for stage in slot.lane.stages) > 50
        assert tracked() < 20
        stream.close()
    finally:
        gc.unfreeze()
