"""Every runner: closing, dropping and going on."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import pytest

from tests.conformance.functions import act, identity, numbers, pipeline, rows
from zephon_ft import ClosedError, ConfigError
from zephon_ft.errors import StuckWorkerWarning


def chain(data, lanes: int = 4, **recipe):
    return pipeline(data, lanes=lanes, flush_every=20, **recipe).map(act).shuffle(6).map(identity).batch(2)


def test_closing_half_way_ends_the_iterator(runner):
    stream = iter(chain(rows(100)).options(runner=runner))
    numbers(stream, 3)
    stream.close()
    stream.close()
    assert stream.closed
    with pytest.raises(ClosedError):
        next(stream)


def test_iterating_again_goes_on_behind_the_last_batch_that_was_handed_out(runner):
    whole = numbers(chain(rows(100)).options(runner=runner), 30)
    pipe = chain(rows(100)).options(runner=runner)
    parts = []
    for count in (1, 7, 4, 18):
        stream = iter(pipe)
        parts += numbers(stream, count)
        stream.close()
    assert parts == whole


def test_a_second_live_iterator_is_a_clear_error(runner):
    pipe = chain(rows(100)).options(runner=runner)
    stream = iter(pipe)
    with pytest.raises(ConfigError, match="still open"):
        iter(pipe)
    next(stream)
    stream.close()
    with iter(pipe) as again:
        next(again)


def test_leaving_a_loop_and_dropping_an_iterator_let_a_new_one_begin(runner):
    pipe = chain(rows(100)).options(runner=runner)
    for _ in pipe:
        break
    stream = iter(pipe)
    next(stream)
    del stream
    assert len(numbers(iter(pipe), 3)) == 3


def test_closing_lets_go_of_everything_that_was_read(runner):
    stream = iter(chain(rows(200)).options(runner=runner, prefetch=8))
    numbers(stream, 3)
    stream.close()
    assert stream.stats()["held_bytes"] == 0
    engine = weakref.ref(stream._engine)
    del stream
    gc.collect()
    deadline = time.monotonic() + 5
    while engine() is not None and time.monotonic() < deadline:
        time.sleep(0.01)
        gc.collect()
    assert engine() is None


def test_a_close_while_the_consumer_waits_wakes_it(runner):
    if runner == "inline":
        pytest.skip("the consumer itself works, it never waits")
    stream = iter(chain(rows(100, sleep=dict.fromkeys(range(100), 0.5))).options(runner=runner, workers=1))
    timer = threading.Timer(0.2, stream.close)
    timer.start()
    with pytest.raises(ClosedError):
        list(stream)
    timer.join()


def test_a_close_waits_for_a_function_that_does_not_return_no_longer_than_it_was_told(runner):
    if runner == "inline":
        pytest.skip("the consumer itself works, so nothing runs when it closes")
    data = rows(100, sleep={9: 15})
    stream = iter(chain(data, lanes=1).options(runner=runner, workers=1, close_timeout=0.3, task_rows=1))
    numbers(stream, 1)
    time.sleep(0.5)
    began = time.monotonic()
    with pytest.warns(StuckWorkerWarning, match=r"map\(act\) on dataset 'd'.* row 9"):
        stream.close()
    assert time.monotonic() - began < 5


def test_every_byte_is_accounted_for_at_the_end(runner):
    stream = iter(chain(rows(96), lanes=2, epochs=2).options(runner=runner))
    numbers(stream)
    assert stream.stats()["held_bytes"] == 0
    assert stream.stats()["peak_held_bytes"] > 0
