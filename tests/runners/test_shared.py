"""`Arena` and `Window`: regions that two sides see, and that are returned."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import resource
import sys

import numpy as np
import pytest

from zephon_ft.buffers import BufferPool
from zephon_ft.runners.shared import PAGE, Arena, Region, Window


def blocks(arena: Arena) -> int:
    """Bytes that the file really takes."""
    return os.fstat(arena.fd).st_blocks * 512


def test_both_sides_see_the_same_bytes_and_private_writes_stay_private():
    arena = Arena()
    memory = arena.map(10)
    window = Window(arena.fd)
    region = arena.region(memory)
    window.map(region)[:3] = b"abc"
    assert memory[:3] == b"abc"
    private = window.map_private(region)
    private[:3] = b"xyz"
    assert memory[:3] == b"abc"
    assert len(memory) == PAGE


def test_arrays_are_found_wherever_they_lie_in_a_region():
    arena = Arena()
    pool = BufferPool()
    pool.memory = arena
    leases = [pool.lease(100_000) for _ in range(4)]
    for lease in leases:
        region, first = arena.locate(lease[5000:].view(np.uint8))
        assert first == 5000
        lease[5000] = 77
        assert Window(arena.fd).map(region)[first] == 77
    assert arena.locate(np.zeros(10)) is None


def test_memory_of_others_is_never_taken_for_a_region_that_nobody_refers_to():
    arena = Arena()
    arena.map(1 << 20)  # dropped at once: the system must not give its address to anybody else
    gc.collect()
    others = [np.frombuffer(mmap.mmap(-1, 1 << 20), np.uint8) for _ in range(8)]
    assert [arena.locate(other) for other in others] == [None] * 8


@pytest.mark.skipif(sys.platform != "linux", reason="MADV_REMOVE")
def test_released_memory_goes_back_to_the_system_at_once():
    arena = Arena()
    memory = arena.map(1 << 20)
    memory[:] = b"x" * len(memory)
    assert blocks(arena) >= 1 << 20
    arena.release(memory)
    assert blocks(arena) == 0
    assert arena.map(1 << 20)[:4] == b"\0\0\0\0"


def test_where_pages_cannot_be_returned_regions_are_used_again(monkeypatch):
    arena = Arena()
    memory = arena.map(1 << 20)

    class Stubborn:
        def __len__(self) -> int:
            return len(memory)

        def madvise(self, advice: int) -> None:
            raise OSError(errno.EOPNOTSUPP, "no")

    stubborn = Stubborn()
    arena.release(stubborn)  # type: ignore[arg-type]
    assert arena.map(1 << 20) is stubborn


def test_no_room_is_an_error_that_says_what_to_do():
    arena = Arena()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(OSError, match=r"no room for 2097152 bytes of shared memory .*runner=\"thread\""):
            arena.map(2 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert arena.region(arena.map(PAGE)) == Region(0, PAGE)
