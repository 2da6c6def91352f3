"""ByteCache: one read for many, bounded, and never stuck."""

from __future__ import annotations

import threading
import time

import pytest

from zephon_ft.errors import StorageError
from zephon_ft.io.cache import ByteCache

A = frozenset({"a"})


def get(cache: ByteCache[str], place: int, nbytes: int = 10, columns=A) -> tuple[str, bool]:
    loaded = []
    with cache.hold(place, columns, lambda: nbytes, lambda: loaded.append(1) or (f"{place}", nbytes)) as value:
        return value, bool(loaded)


def test_the_piece_that_was_used_longest_ago_is_dropped_first():
    cache: ByteCache[str] = ByteCache(30)
    for place in (1, 2, 3):
        get(cache, place)
    assert get(cache, 1) == ("1", False)
    get(cache, 4)
    assert [get(cache, place)[1] for place in (1, 3, 4)] == [False, False, False]
    assert get(cache, 2) == ("2", True)
    assert cache.nbytes == 30


def test_other_columns_of_a_place_are_another_piece_and_fewer_are_not():
    cache: ByteCache[str] = ByteCache(1000)
    get(cache, 1, columns=frozenset("ab"))
    assert not get(cache, 1, columns=frozenset("b"))[1]
    assert get(cache, 1, columns=frozenset("bc"))[1]
    assert get(cache, 2, columns=frozenset("b"))[1]


def test_a_piece_larger_than_the_limit_is_used_and_dropped():
    cache: ByteCache[str] = ByteCache(5)
    assert get(cache, 1) == ("1", True)
    assert cache.nbytes == 0


def test_reads_that_do_not_fit_together_run_one_after_the_other():
    cache: ByteCache[str] = ByteCache(25)
    running, most, lock = [0], [0], threading.Lock()

    def load() -> tuple[str, int]:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.01)
        with lock:
            running[0] -= 1
        return "x", 10

    def work(place: int) -> None:
        with cache.hold(place, A, lambda: 10, load):
            assert cache.nbytes <= 25

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert most[0] <= 2
    assert cache.nbytes <= 25


@pytest.mark.parametrize("error", [ValueError("broken"), StorageError("broken"), MemoryError("broken")])
def test_a_failed_read_raises_in_all_that_wait_for_it_and_is_not_kept(error):
    cache: ByteCache[str] = ByteCache(100)
    started, go = threading.Event(), threading.Event()

    def fail() -> tuple[str, int]:
        started.set()
        assert go.wait(10)
        raise error

    seen: list[BaseException] = []

    def work(load) -> None:
        try:
            with cache.hold(1, A, lambda: 10, load):
                pass
        except Exception as caught:
            seen.append(caught)

    first = threading.Thread(target=work, args=(fail,))
    second = threading.Thread(target=work, args=(lambda: pytest.fail("was read twice"),))
    first.start()
    assert started.wait(10)
    second.start()
    while cache._entries[(1, A)].users < 2:
        time.sleep(0.001)
    go.set()
    first.join(10)
    second.join(10)
    assert sorted(str(caught) for caught in seen) == ["broken", "broken"]
    assert all(isinstance(caught, (MemoryError, StorageError, ValueError)) for caught in seen)
    assert cache.nbytes == 0
    assert get(cache, 1) == ("1", True)


def test_an_interrupted_read_is_made_anew_by_the_thread_that_waits():
    cache: ByteCache[str] = ByteCache(100)
    started, go = threading.Event(), threading.Event()

    def interrupted() -> tuple[str, int]:
        started.set()
        assert go.wait(10)
        raise KeyboardInterrupt

    def first() -> None:
        with pytest.raises(KeyboardInterrupt), cache.hold(1, A, lambda: 10, interrupted):
            pass

    got: list[tuple[str, bool]] = []
    threads = [threading.Thread(target=first), threading.Thread(target=lambda: got.append(get(cache, 1)))]
    threads[0].start()
    assert started.wait(10)
    threads[1].start()
    while cache._entries[(1, A)].users < 2:
        time.sleep(0.001)
    go.set()
    for thread in threads:
        thread.join(10)
    assert got == [("1", True)]
    assert cache.nbytes == 10


def test_an_error_of_the_user_releases_the_piece():
    cache: ByteCache[str] = ByteCache(0)
    with pytest.raises(RuntimeError), cache.hold(1, A, lambda: 10, lambda: ("x", 10)):
        raise RuntimeError
    assert cache.nbytes == 0
