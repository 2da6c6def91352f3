"""Guarantees of `BufferPool`."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from zephon_ft.buffers import BufferPool, size_class

SIZE = 200_000


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_memory_comes_back_when_the_last_view_dies() -> None:
    pool = BufferPool()
    array = pool.lease(SIZE)
    place = address(array)
    views: list[Any] = [array[5:9], array.reshape(100, -1).T, memoryview(array), array[:8].view(np.int32)]
    del array
    while views:
        assert pool.free_bytes == 0
        views.pop()
    assert pool.free_bytes == size_class(SIZE)
    assert address(pool.lease(SIZE)) == place
    assert (pool.allocated, pool.reused) == (1, 1)


def test_a_tensor_and_its_slices_keep_the_lease() -> None:
    torch = pytest.importorskip("torch")
    pool = BufferPool()
    array = pool.lease(SIZE)
    array[:] = 3
    tensor = torch.from_numpy(array.reshape(-1, 100))
    part = tensor[7]
    del array, tensor
    assert pool.free_bytes == 0
    other = pool.lease(SIZE)
    other[:] = 9
    assert (part == 3).all()
    del part
    assert pool.free_bytes == size_class(SIZE)


def test_a_lease_that_dies_on_another_thread_comes_back() -> None:
    pool = BufferPool()
    box = [pool.lease(SIZE)]
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    assert pool.free_bytes == size_class(SIZE)


def test_a_lease_in_a_reference_cycle_comes_back_with_the_collector() -> None:
    pool = BufferPool()
    cycle: list[Any] = [pool.lease(SIZE)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert pool.free_bytes == size_class(SIZE)


def test_an_empty_pool_allocates_and_leases_never_overlap() -> None:
    pool = BufferPool()
    arrays = [pool.lease(SIZE) for _ in range(5)]
    for number, array in enumerate(arrays):
        array[:] = number
    assert [int(a.min()) for a in arrays] == [int(a.max()) for a in arrays] == list(range(5))
    assert pool.allocated == 5


def test_unused_memory_is_bounded_without_another_lease() -> None:
    pool = BufferPool(max_free_bytes=2 * size_class(SIZE))
    arrays = [pool.lease(SIZE) for _ in range(5)]
    arrays.clear()
    assert pool._free_bytes <= 2 * size_class(SIZE)
    assert len(pool._free) == 2
    assert not pool._returned


def test_leases_outlive_their_pool() -> None:
    array = BufferPool().lease(SIZE)
    gc.collect()
    array[:] = 1
    assert int(array.sum()) == SIZE


def test_poisoned_leases_show_bytes_that_were_never_written() -> None:
    pool = BufferPool(poison=True)
    for _ in range(2):
        array = pool.lease(SIZE)
        assert (array == 0xA5).all()
        array[:] = 0
        del array
    assert pool.reused == 1


def test_a_lease_has_exactly_the_asked_size_and_can_be_written() -> None:
    pool = BufferPool()
    for nbytes in (0, 1, 4096, SIZE):
        array = pool.lease(nbytes)
        assert array.shape == (nbytes,)
        assert array.dtype == np.uint8
        assert array.flags.writeable
        assert array.flags.c_contiguous


def test_a_size_class_wastes_at_most_an_eighth() -> None:
    for nbytes in [*range(1 << 16, 1 << 18, 997), (1 << 30) + 1]:
        assert nbytes <= size_class(nbytes) <= nbytes * 9 / 8


def test_many_threads_never_share_memory() -> None:
    pool, wrong = BufferPool(), []

    def use(number: int) -> None:
        for step in range(200):
            array = pool.lease(SIZE + 20_000 * (step % 3))
            array[::4096] = number
            view = array[1:]
            del array
            if not (view[4095::4096] == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert pool.allocated <= 8 * 3


def test_leases_add_nothing_to_what_the_interpreter_walks_at_exit() -> None:
    # Workers go on while it does, and a registry that changes then ends the program with a traceback.
    pool = BufferPool()
    before = len(weakref.finalize._registry)  # type: ignore[attr-defined]
    held = [pool.lease(1 << 20) for _ in range(3)]
    assert len(weakref.finalize._registry) == before  # type: ignore[attr-defined]
    del held
    gc.collect()
    assert pool.free_bytes == 3 << 20
