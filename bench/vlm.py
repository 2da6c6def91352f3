"""The vision-language job on photographs, against a bare loop of the same work functions on as many threads.

The pipeline does everything: order, read, headers, tokens, packing, layout, decoding into the batch, delivery. The bare
loop calls the very same functions (`Dataset.fetch`, and what the operators' `bind` returns) row after row on threads of
its own, decodes into one buffer a thread that it reuses, and delivers nothing. Make the data with photos.py first.

The rate is that of a running stream: its first steps are not timed, and whole steps are, so that as much work is
begun ahead when the clock stops as when it starts. The bare loop gets exactly the rows of those steps, in their order.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import common
import numpy as np
from photos import default_tokenizer, describe

CHAT_TOKENS = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|image_pad|>", "<|vision_end|>")
ROWS_AT_ONCE = 8  # that the bare loop fetches, as the engine's tasks do


def tokenizer_with_chat_tokens(path: str) -> Any:
    """The tokenizer of a file, with the structural tokens that Qwen's layout needs (GPT-2's has none of them)."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(path)
    tokenizer.add_special_tokens([name for name in CHAT_TOKENS if tokenizer.token_to_id(name) is None])
    return tokenizer


class Job:
    """One job in two forms."""

    def __init__(self, options: Any) -> None:
        from zephon_ft import Dataset
        from zephon_ft.vision.qwen2_5_vl import Qwen2_5_VL

        self.options = options
        self.geometry = Qwen2_5_VL()
        self.tokenizer = tokenizer_with_chat_tokens(options.tokenizer or default_tokenizer())
        self.rows: list[int] = []  # that the stream's timed batches hold
        self.datasets = {side: Dataset.from_path("photos", options.data) for side in ("pipeline", "bare")}

    def pipeline(self, workers: int, **changes: Any) -> Any:
        """The job as a user writes it."""
        from zephon_ft import Pipeline, StaticMixtureWorkSource

        o = self.options
        source = StaticMixtureWorkSource([self.datasets["pipeline"]], seed=1)
        return (
            Pipeline(source, lanes=o.lanes)
            .images(self.geometry, "images", scaled_decode=o.scaled_decode)
            .tokenize_chat(self.tokenizer)
            .pack(o.max_length)
            .batch(o.batch)
            .options(workers=workers, **{"runner": self.options.runner, **changes})
        )

    def run_pipeline(self, workers: int) -> dict[str, float]:
        """Images per second and CPU milliseconds per image of the running stream."""
        warm, timed = self.steps()
        stream = iter(self.pipeline(workers))
        for _ in range(warm):
            next(stream)
        clock, images, keys = common.Clock(), 0, []
        for _ in range(timed):
            batch = next(stream)
            images += len(batch.arrays["image_grid_thw"])
            keys += batch.keys
        wall, cpu = clock.read()
        stream.close()
        self.rows = [key[2] for row in keys for key in row]
        return _figures(images, wall, cpu)

    def steps(self) -> tuple[int, int]:
        """Batches before the clock starts, and while it runs."""
        return self.options.warm_steps * self.options.lanes, self.options.steps * self.options.lanes

    def run_bare(self, threads: int) -> dict[str, float]:
        """The same of the bare loop, on the rows that the pipeline had."""
        dataset, rows = self.datasets["bare"], self.rows
        parts = [rows[start : start + ROWS_AT_ONCE] for start in range(0, len(rows), ROWS_AT_ONCE)]
        lock, places, done = threading.Lock(), iter(parts), [0] * threads
        ready = threading.Barrier(threads + 1)

        def loop(number: int) -> None:
            work = BareWork(self, dataset)
            work.run(parts[0])  # what is made on first use is not timed, as in the stream
            ready.wait()
            while True:
                with lock:
                    part = next(places, None)
                if part is None:
                    return
                done[number] += work.run(part)

        pool = [threading.Thread(target=loop, args=(number,)) for number in range(threads)]
        for thread in pool:
            thread.start()
        ready.wait()
        clock = common.Clock()
        for thread in pool:
            thread.join()
        return _figures(sum(done), *clock.read())

    def step_costs(self) -> dict[str, float]:
        """Milliseconds per image of each step of the bare loop, on one thread."""
        work, spent = BareWork(self, self.datasets["bare"]), dict.fromkeys(("read", "header", "tokenize", "fill"), 0.0)
        work.run(self.rows[:ROWS_AT_ONCE])
        count = 0
        for start in range(0, len(self.rows), ROWS_AT_ONCE):
            count += work.run(self.rows[start : start + ROWS_AT_ONCE], spent)
        return {name: seconds / count * 1e3 for name, seconds in spent.items()}


class BareWork:
    """One thread's functions, bound as the engine binds them, and its buffer."""

    def __init__(self, job: Job, dataset: Any) -> None:
        from zephon_ft.engine.work import WorkerState
        from zephon_ft.record import Record

        plan = job.pipeline(1).plan()
        state = WorkerState(plan)
        self._dataset, self._fields, self._record = dataset, plan.fields[0], Record
        (_, self._header), (_, self._tokenize) = state.functions(plan.segments[0])
        self._fill = state.fill(job.geometry.buffer)
        self._buffer = np.empty((4 * 1280 + 64, *job.geometry.row_shape), np.uint8)

    def run(self, rows: list[int], spent: dict[str, float] | None = None) -> int:
        """Do everything for some rows; returns the images."""
        watch = _Watch(spent)
        fetched = self._dataset.fetch(0, rows, self._fields)
        watch.lap("read")
        images = 0
        for number, fields in zip(rows, fetched, strict=True):
            record = self._header(self._record((0, 0, number, 0), number, fields))
            watch.lap("header")
            record = self._tokenize(record)
            watch.lap("tokenize")
            for item in record.media:
                self._fill(item, item.data, self._buffer[: item.rows])
                images += 1
            watch.lap("fill")
        return images


class _Watch:
    """Adds the time between laps to the named sums; does nothing without sums."""

    def __init__(self, sums: dict[str, float] | None) -> None:
        self._sums, self._last = sums, time.perf_counter()

    def lap(self, name: str) -> None:
        if self._sums is not None:
            now = time.perf_counter()
            self._sums[name] += now - self._last
            self._last = now


def _figures(images: int, wall: float, cpu: float) -> dict[str, float]:
    return {"images/s": images / wall, "cpu": cpu / images * 1e3, "cores": cpu / wall}


def profile(job: Job, lines: int = 40) -> None:
    """Print where the time of the inline runner goes (cProfile sees one thread only)."""
    import cProfile
    import pstats

    stream = iter(job.pipeline(1, runner="inline"))
    warm, timed = job.steps()
    for _ in range(warm):
        next(stream)
    profiler, images = cProfile.Profile(), 0
    profiler.enable()
    for _ in range(timed):
        images += len(next(stream).arrays["image_grid_thw"])
    profiler.disable()
    stream.close()
    print(f"{images} images")
    pstats.Stats(profiler, stream=sys.stdout).sort_stats("tottime").print_stats(lines)


def counts(text: str) -> Iterator[int]:
    """``1,2`` -> 1, 2."""
    return map(int, text.split(","))


def main() -> None:
    """Command line."""
    parser = common.parser(__doc__)
    parser.add_argument("data", type=Path, help="Parquet made by photos.py")
    parser.add_argument("--tokenizer", help="a tokenizer.json; default the one that the package ships")
    parser.add_argument("--workers", default="1,2", help="numbers of threads, e.g. 1,2")
    parser.add_argument("--steps", type=int, default=4, help="optimizer steps timed in each run")
    parser.add_argument("--lanes", type=int, default=8)
    parser.add_argument("--max-length", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument(
        "--warm-steps", type=int, default=3, help="steps before the clock starts: planning ahead must settle"
    )
    parser.add_argument("--runner", default="thread", help="CPU figures count this process only (default thread)")
    parser.add_argument("--scaled-decode", action="store_true")
    parser.add_argument("--profile", action="store_true", help="print a profile of the inline runner instead")
    options = parser.parse_args()
    job = Job(options)
    if options.profile:
        profile(job)
        return
    report = common.Report("vlm")
    for name, value in describe(options.data, options.tokenizer or default_tokenizer()).items():
        report.fact(name, value)
    report.fact("pack", f"{options.max_length} tokens, batch {options.batch}, {options.lanes} lanes")
    report.begin()
    job.run_pipeline(1)  # fills the caches of both data sets
    job.run_bare(1)
    report.row("images in a run", [len(job.rows)])
    for name, cost in job.step_costs().items():
        report.row(f"step {name}", [cost], "ms/image")
    for workers in counts(options.workers):
        results = common.interleave(
            {"pipeline": lambda: job.run_pipeline(workers), "bare": lambda: job.run_bare(workers)},  # noqa: B023
            options.repeats,
        )
        for side, runs in results.items():
            report.row(f"{workers} threads, {side}", [run["images/s"] for run in runs], "images/s")
            report.row(f"{workers} threads, {side}, CPU", [run["cpu"] for run in runs], "ms/image")
        share = common.ratios(results, "pipeline", "bare", "images/s")
        report.row(f"{workers} threads, share of bare", share, "", ">= 0.95", common.middle(share) >= 0.95)
        cpu = common.ratios(results, "bare", "pipeline", "cpu")
        report.row(f"{workers} threads, share of bare by CPU time", cpu, "", ">= 0.95", common.middle(cpu) >= 0.95)
    report.end(options.json)


if __name__ == "__main__":
    main()
