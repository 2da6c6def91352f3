"""Payloads: encoded bytes of media stay in shared memory, and a place there is used again only when nobody needs it."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest

from tests.conformance.functions import identity
from tests.guarantees.random_pipelines import take
from tests.runners.helpers import processes
from tests.vision.samples import encode
from zephon_ft import Dataset, Media, Pipeline, StaticMixtureWorkSource
from zephon_ft.runners.channel import ParentEnd, WorkerEnd
from zephon_ft.runners.payloads import LARGE, Lender
from zephon_ft.runners.shared import Arena, Window
from zephon_ft.vision.square import Square

MIB = 1 << 20


def media(content: Any, index: int = 0) -> Media:
    return Media("pixel_values", 3, 12, ("facts",), content, 4, (0, 1, 2, 0), 5, index)


def noise(seed: int, size: int = 20_000) -> bytes:
    return np.random.default_rng(seed).bytes(size)


class Ends:
    """Both ends of a channel in one process."""

    def __init__(self, limit: int = 64 * MIB) -> None:
        self.arena = Arena()
        self.lender = Lender(self.arena, limit)
        self.parent = ParentEnd(self.arena, self.lender)
        self.worker = WorkerEnd(self.parent.theirs, Window(self.arena.fd))

    def ask(self, message: Any, answer: Any = None) -> tuple[Any, Any]:
        """What the worker gets, and what the parent gets back; `answer` may be a function of the former."""
        self.parent.send(message)
        got = self.worker.receive()
        self.worker.answer(answer(got) if callable(answer) else answer)
        return got, self.parent.receive()[1]

    def made(self, *contents: bytes | memoryview) -> list[Media]:
        """Media that the worker has made of these, as the parent has them."""
        return self.ask("make", [media(content, index) for index, content in enumerate(contents)])[1]

    def lends(self) -> Ends:
        """After a first payload, which shows that there are any."""
        assert type(self.made(noise(0))[0].data) is bytes
        return self

    def region(self, item: Media) -> int:
        """Offset of the region that an item's bytes lie in."""
        found = self.arena.locate(np.frombuffer(item.data, np.uint8))
        assert found is not None
        return found[0].offset


def test_payloads_stay_in_shared_memory_and_are_read_where_they_lie():
    ends = Ends().lends()
    first, second = ends.made(noise(1), noise(2))
    assert (bytes(first.data), bytes(second.data)) == (noise(1), noise(2))
    assert (len(first.data), first.index, second.index) == (20_000, 0, 1)
    region = ends.region(first)

    def seen(items: list[Media]) -> Any:
        assert [bytes(item.data) for item in items] == [noise(2), noise(1)]
        assert all(type(item.data) is memoryview and item.data.readonly for item in items)
        return items  # as a stateful operator's function gives on what it got

    _, back = ends.ask([second, first], seen)
    assert [ends.region(item) for item in back] == [region, region]
    assert back[0].data is second.data  # it has not travelled at all


def test_small_payloads_and_media_without_bytes_travel_in_the_message():
    ends = Ends().lends()
    found = ends.made(b"x" * (LARGE - 1), b"", memoryview(b"view")[1:])
    assert [item.data for item in found] == [b"x" * (LARGE - 1), b"", b"iew"]
    assert all(type(item.data) is bytes for item in found)
    assert ends.ask("make", media(None))[1].data is None


def test_media_that_share_their_bytes_still_do():
    ends = Ends().lends()
    content = noise(1)
    first, second = ends.made(content, content)
    place = [ends.arena.locate(np.frombuffer(item.data, np.uint8)) for item in (first, second)]
    assert place[0] == place[1]


def test_what_only_cloudpickle_can_send_finds_its_payloads():
    ends = Ends().lends()
    _, (item, function) = ends.ask("make", [media(noise(1)), lambda x: x + 1])
    assert (bytes(item.data), function(1), type(item.data)) == (noise(1), 2, memoryview)


def test_a_region_is_lent_again_only_when_no_view_of_it_is_left():
    ends = Ends().lends()
    kept: list[Media] = []
    for number in range(300):  # 18 MB through regions of 1 MiB; of one answer in ten an item stays
        items = ends.made(*(noise(3 * number + k) for k in range(3)))
        if number % 10 == 0:
            kept.append(items[1])
    assert [bytes(item.data) for item in kept] == [noise(30 * n + 1) for n in range(30)]
    assert len({ends.region(item) for item in kept}) > 10
    kept.clear()
    size = os.fstat(ends.arena.fd).st_size
    for number in range(300):
        ends.made(*(noise(number + k) for k in range(3)))
    assert os.fstat(ends.arena.fd).st_size == size  # nothing new was needed


def test_what_a_worker_may_still_read_is_not_written_over():
    ends = Ends().lends()
    other = ParentEnd(ends.arena, ends.lender)
    worker = WorkerEnd(other.theirs, Window(ends.arena.fd))
    number = other.send(ends.made(noise(1)))  # nobody else keeps it
    for seed in range(400):
        ends.made(noise(seed))
    assert bytes(worker.receive()[0].data) == noise(1)
    worker.answer(None)
    assert other.receive() == (number, None)


def test_regions_that_are_lent_keep_to_the_limit_however_few_views_hold_them():
    limit = 4 * MIB
    ends = Ends(limit).lends()
    kept = [ends.made(noise(number), noise(1), noise(2))[0] for number in range(500)]
    regions = {ends.region(item) for item in kept if type(item.data) is memoryview}
    assert len(regions) <= limit // MIB
    assert [bytes(item.data) for item in kept] == [noise(number) for number in range(500)]
    assert type(kept[-1].data) is bytes
    assert os.fstat(ends.arena.fd).st_blocks * 512 <= limit + limit // 4 + MIB  # and the slots
    del kept
    assert all(type(ends.made(noise(number))[0].data) is memoryview for number in range(10, 20))


def test_payloads_of_all_sizes_arrive():
    ends = Ends().lends()
    sizes = [5000, 300_000, 5000, 3 * MIB, 900_000, 5000, 18 * MIB, 3 * MIB, 5000]
    for _ in range(2):
        for size in sizes:
            ends.parent._wanted = [32 * MIB] * 2  # nobody reads the socket meanwhile
            (item,) = ends.made(noise(size, size))
            assert bytes(item.data) == noise(size, size)
    assert type(item.data) is memoryview


def test_a_message_that_is_taken_back_takes_its_region_along():
    ends = Ends().lends()
    assert ends.parent.send("first") != ends.parent.send("second")
    assert ends.worker.receive() == "first"
    assert ends.parent.take_back() is not None
    ends.worker.answer([media(noise(1))])
    assert bytes(ends.parent.receive()[1][0].data) == noise(1)
    for seed in range(200):
        (item,) = ends.made(noise(seed))
        assert bytes(item.data) == noise(seed)
    assert type(item.data) is memoryview  # it has regions to write to


# -- in a pipeline ---------------------------------------------------------------------------------------------


def photographs(**options: Any) -> Pipeline:
    """Images of 12 KB or more, which are shuffled, so that they go through the parent twice."""
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (40, 64, 64, 3), np.uint8)
    rows = [{"images": encode(Image.fromarray(picture), "PNG"), "n": n} for n, picture in enumerate(pixels)]
    source = StaticMixtureWorkSource([Dataset.from_rows("d", rows)], seed=3)
    pipe = Pipeline(source, 2, seed=3).images(Square(size=32)).shuffle(15).map(identity, parallelism=2).batch(2)
    return pipe.options(**options)


def test_streams_are_the_same_while_workers_are_killed_whose_tasks_name_payloads():
    expected = take(photographs(runner="inline"), 60)
    with iter(photographs(runner="process", workers=2)) as stream:
        got = []
        for number in range(len(expected)):
            if number % 25 == 10:
                os.kill(processes(stream)[number % 2], signal.SIGKILL)
            batch = next(stream)
            got.append((batch.lane, batch.index, batch.digest()))
        assert stream._runner._lender._lent  # payloads have been named at all
    assert got == expected


@pytest.mark.parametrize("budget", [1, 300_000])
def test_streams_are_the_same_whatever_may_be_lent(budget):
    expected = take(photographs(runner="inline"), 10)
    assert take(photographs(runner="process", workers=2, memory_budget=budget), 10) == expected
