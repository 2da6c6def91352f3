"""Tokenized units are no work for the garbage collector, and are freed all the same."""

from __future__ import annotations

import gc

import pytest

from tests.guarantees.random_pipelines import Spec, build
from zephon_ft.record import Media, Record, Row


@pytest.mark.parametrize("runner", ["inline", "thread"])
def test_tokenized_units_are_not_tracked_and_are_freed_with_their_pipeline(runner):
    gc.collect()
    gc.freeze()
    try:
        stream = iter(build(Spec("images", (60,), (1,), 4, 100, 1, (), "best_fit", 40, (), 2, 0), runner=runner))
        for _ in range(8):
            next(stream)
        tracked = [o for o in gc.get_objects() if isinstance(o, (Record, Row, Media)) and gc.is_tracked(o)]
        assert sum(stage.taken for slot in stream._engine.slots for stage in slot.lane.stages) > 50
        assert len(tracked) < 20  # those that a worker has in hand just now
        stream.close()
    finally:
        gc.unfreeze()
