"""The bare loop: the job's work functions, row after row, on as many threads or processes, and nothing else.

It takes the rows in the pipeline's order, decodes into one buffer a worker that it reuses, and delivers nothing: what
the consumer sees are counts. A loader's rate over this one is its share of what the work itself allows.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from zephon_ft.ab.functions import Functions, Lap
from zephon_ft.ab.job import Job
from zephon_ft.ab.measure import Counts
from zephon_ft.ab.recipe import dataset, plain_text, reading, tokenizer
from zephon_ft.io.dataset import Dataset
from zephon_ft.record import Record
from zephon_ft.text.ordinary import encode_ordinary
from zephon_ft.work.mixture import Chunk, StaticMixtureWorkSource

ROWS_AT_ONCE = 8  # that are read, as the engine's tasks do
_POLL = 0.02  # seconds between looks at the counts
_TEXTS = 2000  # texts that the tokenizer's loop goes round in


class BareWork:
    """One worker of the loop: its functions and its buffer.

    Args:
        job: the work.
        rows: where it is read from; shared by threads.
    """

    def __init__(self, job: Job, rows: Dataset) -> None:
        self._rows = rows
        self._fields = rows.columns
        self._functions = Functions(job, self._read_file)
        self._buffer: np.ndarray | None = None  # the largest image so far fits

    def run(self, chunk: Chunk, lap: Lap | None = None) -> Counts:
        """Do everything for some rows of one shard; returns (samples, images, tokens)."""
        images = tokens = 0
        fetched = self._rows.fetch(chunk.shard[0], chunk.row, self._fields)
        if lap is not None:
            lap("read")
        for number, row in zip(chunk.row, fetched, strict=True):
            if not isinstance(row, dict):
                raise row
            record = self._functions.record(row, number, lap)
            tokens += record.num_tokens
            for media in record.media:
                fits = self._buffer is not None and len(self._buffer) >= media.rows
                made = self._functions.pixels(media, self._buffer if fits else None)
                self._buffer = self._buffer if fits else made
                images += 1
            if lap is not None:
                lap("decode")
        return len(fetched), images, tokens

    def _read_file(self, record: Record, path: str) -> bytes:
        return self._rows.read_file(self._rows.resolve(path, record.key[1]))


def chunks(job: Job, rows: Dataset, lanes: range) -> Iterator[Chunk]:
    """The rows of some lanes in the pipeline's order, a few at a time and of one shard. No worker is without a lane."""
    source = StaticMixtureWorkSource([rows], seed=job.seed).lanes(max(job.lanes, job.workers))
    cursors = [source.cursor(lane) for lane in lanes]
    for cursor in itertools.cycle(cursors):
        chunk = cursor.take(ROWS_AT_ONCE)
        for shard in dict.fromkeys(chunk.shard):
            places = [i for i, s in enumerate(chunk.shard) if s == shard]
            yield Chunk(
                *([column[i] for i in places] for column in (chunk.dataset, chunk.shard, chunk.row, chunk.passes))
            )


def threads(job: Job) -> Iterator[Counts]:
    """The loop on `job.workers` threads: what has been done since the last look."""
    rows = dataset(job)
    return _threads(job.workers, lambda number: _work_loop(job, rows, number, job.workers))


def tokenizer_threads(job: Job) -> Iterator[Counts]:
    """The tokenizer alone on as many threads, on texts in memory: no reading, no records.

    Texts are given to the library as they are, one by one: the yardstick for all that a loader may do about them.
    """
    rows = dataset(job)
    names = reading(job).text
    fetched = (row for shard, facts in enumerate(rows.shards) for row in rows.fetch(shard, range(facts.rows)))
    texts = [plain_text(row, names)["text"] for row in itertools.islice(fetched, _TEXTS) if isinstance(row, dict)]
    loaded = tokenizer(job)

    def loop(number: int) -> Iterator[Counts]:
        encoder, _ = loaded.clone_ordinary()
        for text in itertools.cycle(texts[number:] + texts[:number]):
            yield 1, 0, len(encode_ordinary(encoder, text))

    return _threads(job.workers, loop)


def processes(job: Job) -> Iterator[Counts]:
    """The loop in `job.workers` spawned processes, each with lanes of its own: what has been done since the last look.

    Nothing is sent but the counts, through shared memory.
    """
    context = multiprocessing.get_context("spawn")
    table = context.RawArray("q", 3 * job.workers)
    pool = [
        context.Process(target=_process, args=(job, number, table, os.getpid()), daemon=True)
        for number in range(job.workers)
    ]
    for process in pool:
        process.start()
    try:
        yield from _watch(lambda: table[:], lambda: all(process.is_alive() for process in pool))
    finally:
        for process in pool:
            process.terminate()
            process.join()


def _process(job: Job, number: int, table: Any, parent: int) -> None:
    place = 3 * number
    for counts in _work_loop(job, dataset(job), number, job.workers):
        for i, count in enumerate(counts):
            table[place + i] += count
        if os.getppid() != parent:
            return


def _work_loop(job: Job, rows: Dataset, number: int, workers: int) -> Iterator[Counts]:
    """One worker's work, without end: chunk after chunk of every `workers`-th lane."""
    work = BareWork(job, rows)
    yield from map(work.run, chunks(job, rows, range(number, max(job.lanes, workers), workers)))


def _threads(workers: int, loop: Callable[[int], Iterator[Counts]]) -> Iterator[Counts]:
    table, stop = [0] * (3 * workers), threading.Event()
    failed: list[BaseException] = []

    def body(number: int) -> None:
        try:
            for counts in loop(number):
                for i, count in enumerate(counts):
                    table[3 * number + i] += count
                if stop.is_set():
                    return
        except BaseException as error:
            failed.append(error)
            raise

    pool = [threading.Thread(target=body, args=(number,), daemon=True) for number in range(workers)]
    for thread in pool:
        thread.start()
    try:
        yield from _watch(lambda: table[:], lambda: not failed)
    finally:
        stop.set()
        for thread in pool:
            thread.join()


def _watch(read: Callable[[], list[int]], alive: Callable[[], bool]) -> Iterator[Counts]:
    """Differences of the summed counts, at intervals; the first as soon as there is one."""
    last = (0, 0, 0)
    while True:
        time.sleep(0.001 if last == (0, 0, 0) else _POLL)
        if not alive():
            raise RuntimeError("a worker of the bare loop failed; its error is above")
        values = read()
        now = (sum(values[0::3]), sum(values[1::3]), sum(values[2::3]))
        if now != last:
            yield tuple(a - b for a, b in zip(now, last, strict=True))  # type: ignore[misc]
            last = now


SIDES: dict[str, Callable[[Job], Iterator[Counts]]] = {
    "bare": threads,
    "bare-process": processes,
    "bare-tokenizer": tokenizer_threads,
}
