"""Memory, threads, files and pauses of a running pipeline; each measurement in a process of its own.

``slow``: one record whose map sleeps 5 s: bytes held meanwhile, whether other lanes go on, how fast they deliver after.
``epochs``: resident memory over 10 epochs of an image job. ``drops``: threads and open files over 100 iterators dropped
half-way. ``gc``: the longest garbage collection of a running image job at 32 lanes with pack and shuffle(1024); each
one stops the trainer too. ``gaps``: a thread that does 0.1 ms of Python work again and again beside the loader, as a
trainer would: how long the slowest took. ``budget``: peak memory at a budget of 1 GB on photographs of 120 KB and more
(made by photos.py), 32 lanes with pack and shuffle(1024), which want to hold far more than that.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import common
import numpy as np
from photos import default_tokenizer

MEGA = 1 << 20
SLOW_SECONDS = 5.0


def make_small(path: Path, rows: int = 1000) -> None:
    """Rows with 0 to 2 small noisy JPEG files and a short conversation."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    rng = np.random.default_rng(0)
    made = []
    for number in range(rows):
        files = []
        for _ in range(rng.integers(0, 3)):
            file, shape = BytesIO(), (*rng.integers(56, 200, 2), 3)
            Image.fromarray(rng.integers(0, 255, shape, np.uint8)).save(file, "JPEG")
            files.append({"bytes": file.getvalue(), "path": None})
        answer = f"I see {number} things " * int(rng.integers(1, 8))
        made.append({"images": files, "texts": [{"user": f"how many in {number}?", "assistant": answer}]})
    pq.write_table(pa.Table.from_pylist(made), path, row_group_size=100)


def image_job(data: str, lanes: int, max_length: int, shuffle: int, epochs: int | None = None, **options: Any) -> Any:
    """images, tokenize_chat, pack, shuffle, batch(2)."""
    from zephon_ft import Dataset, Pipeline, StaticMixtureWorkSource
    from zephon_ft.vision.qwen2_5_vl import Qwen2_5_VL

    source = StaticMixtureWorkSource([Dataset.from_path("images", data)], seed=1, epochs=epochs)
    pipeline = Pipeline(source, lanes=lanes).images(Qwen2_5_VL(), "images").tokenize_chat(default_tokenizer())
    return pipeline.pack(max_length).shuffle(shuffle).batch(2).options(runner="thread", **options)


def slow(options: Any) -> dict[str, float]:
    """One record that sleeps."""
    from zephon_ft import Dataset, Pipeline, StaticMixtureWorkSource

    budget, lanes = 64 * MEGA, 8
    calls, asleep, woken = [0], threading.Event(), [0.0]
    during: list[int] = []

    def work(fields: dict[str, Any]) -> dict[str, Any]:
        calls[0] += 1
        if fields["n"] == 5000:
            before = calls[0]
            asleep.set()
            time.sleep(SLOW_SECONDS)
            during.append(calls[0] - before)
            woken[0] = time.perf_counter()
        fields["payload"] = bytes(20_000)
        return fields

    source = StaticMixtureWorkSource([Dataset.from_rows("rows", [{"n": n} for n in range(20_000)])], seed=1)
    pipeline = Pipeline(source, lanes=lanes).map(work, version="1").batch(32)
    stream = iter(pipeline.options(workers=2, runner="thread", memory_budget=budget))
    delivered = 0
    while not woken[0]:
        next(stream)
        delivered += 1
    for _ in range(lanes):
        next(stream)
    held = stream.stats()["peak_held_bytes"]
    stream.close()
    return {
        "peak held of budget": held / budget,
        "records of other lanes meanwhile": float(during[0]),
        "ms to the next step after": (time.perf_counter() - woken[0]) * 1e3,
        "peak RSS MB": common.status("VmHWM") / MEGA,
    }


def epochs(options: Any) -> dict[str, float]:
    """Resident memory after each epoch."""
    pipeline = image_job(options.small, 8, 1024, 64, epochs=1, workers=2)
    sizes = []
    for _ in range(10):
        for _ in pipeline:
            pass
        sizes.append(common.status("VmRSS") / MEGA)
    return {
        "MB after epoch 1": sizes[0],
        "MB after epoch 2": sizes[1],
        "MB after epoch 10": sizes[-1],
        "growth from 1 to 10": sizes[-1] / sizes[0],
        "growth from 2 to 10": sizes[-1] / sizes[1],
    }


def drops(options: Any) -> dict[str, float]:
    """Threads and files while iterators are dropped half-way."""
    pipeline = image_job(options.small, 4, 512, 16, workers=2)
    counts = []
    for number in range(100):
        stream = iter(pipeline)
        for _ in range(1 + number % 5):
            next(stream)
        del stream
        time.sleep(0.005)  # threads that end take a moment
        counts.append((common.status("Threads"), len(os.listdir("/proc/self/fd")), common.status("VmRSS") / MEGA))
    return {
        "threads after 10": counts[9][0],
        "threads after 100": counts[99][0],
        "files after 10": counts[9][1],
        "files after 100": counts[99][1],
        "MB after 10": counts[9][2],
        "MB after 100": counts[99][2],
    }


def collections(options: Any) -> dict[str, float]:
    """Pauses of the garbage collector once the stream runs."""
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401  (a trainer has it loaded)
    pauses: list[tuple[float, float]] = []  # ms by the wall, ms of the collecting thread's CPU
    begun = [0.0, 0.0]

    def watch(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            begun[:] = time.perf_counter(), time.thread_time()
        else:
            pauses.append(((time.perf_counter() - begun[0]) * 1e3, (time.thread_time() - begun[1]) * 1e3))

    gc.callbacks.append(watch)
    stream = iter(image_job(options.small, 32, 1024, 1024, workers=2))
    next(stream)
    first = max((pause for pause, _ in pauses), default=0.0)
    pauses.clear()
    until = time.perf_counter() + options.seconds
    batches = 0
    while time.perf_counter() < until:
        next(stream)
        batches += 1
    stream.close()
    return {
        "ms, longest": max((pause for pause, _ in pauses), default=0.0),
        "ms of CPU, longest": max((cpu for _, cpu in pauses), default=0.0),
        "ms, longest before the first batch": first,
        "collections a second": len(pauses) / options.seconds,
        "ms paused a second": sum(pause for pause, _ in pauses) / options.seconds,
        "batches a second": batches / options.seconds,
    }


def gaps(options: Any) -> dict[str, float]:
    """Durations of equal pieces of Python work beside the loader, and without it."""
    from scaling import calibrated, spin

    rounds = calibrated(100.0)

    def durations(seconds: float) -> np.ndarray:
        found, until = [], time.perf_counter() + seconds
        last = time.perf_counter()
        while last < until:
            spin(rounds)
            now = time.perf_counter()
            found.append(now - last)
            last = now
        return np.array(found) * 1e3

    alone = durations(options.seconds / 2)
    stream = iter(image_job(options.small, 32, 1024, 1024, workers=1))
    stop = threading.Event()

    def consume() -> None:
        for _ in stream:
            if stop.is_set():
                return

    consumer = threading.Thread(target=consume, daemon=True)
    next(stream)
    consumer.start()
    beside = durations(options.seconds)
    stop.set()
    consumer.join()
    stream.close()
    return {
        "ms, median alone": float(np.median(alone)),
        "ms, p99.9 alone": float(np.quantile(alone, 0.999)),
        "ms, median beside": float(np.median(beside)),
        "ms, p99.9 beside": float(np.quantile(beside, 0.999)),
        "ms, longest beside": float(beside.max()),
    }


def budget(options: Any) -> dict[str, float]:
    """Peak memory of the process at a budget of 1 GB."""
    limit = 1 << 30
    stream = iter(image_job(options.photos, 32, 4096, 1024, workers=2, memory_budget=limit))
    until, images = time.perf_counter() + 3 * options.seconds, 0
    while time.perf_counter() < until:
        images += len(next(stream).arrays["image_grid_thw"])
    stats = stream.stats()
    stream.close()
    return {
        "MB, peak of the process": common.status("VmHWM") / MEGA,
        "MB over the budget": (common.status("VmHWM") - limit) / MEGA,
        "MB, peak held": stats["peak_held_bytes"] / MEGA,
        "images fetched again": float(stats["counts"].get("media fetched again", 0)),
        "images": float(images),
    }


MEASURES: dict[str, Callable[[Any], dict[str, float]]] = {
    "slow": slow,
    "epochs": epochs,
    "drops": drops,
    "gc": collections,
    "gaps": gaps,
    "budget": budget,
}

# (measure, figure) -> (target in words, test); figures with the unit as their first word are printed as they are.
TARGETS: dict[tuple[str, str], tuple[str, Callable[[float], bool]]] = {
    ("slow", "peak held of budget"): ("<= 1", lambda x: x <= 1),
    # The batches of the other lanes are there by then: only a busy machine makes this more than some milliseconds.
    ("slow", "ms to the next step after"): ("< 1000", lambda x: x < 1000),
    ("epochs", "growth from 2 to 10"): ("<= 1.05", lambda x: x <= 1.05),
    ("gc", "ms, longest"): ("< 20", lambda x: x < 20),
    ("budget", "MB over the budget"): ("< 300", lambda x: x < 300),
}


def run(options: Any, names: Iterator[str]) -> None:
    """The chosen measurements, each in processes of their own."""
    report = common.Report("memory")
    report.begin()
    for name in names:
        if name == "budget" and not options.photos:
            print("  budget: needs --photos, made by photos.py")
            continue
        arguments = ["--measure", name, "--small", options.small, "--seconds", str(options.seconds)]
        if options.photos:
            arguments += ["--photos", options.photos]
        runs = [common.child(sys.executable, "memory.py", *arguments) for _ in range(options.repeats)]
        for figure in runs[0]:
            values = [figures[figure] for figures in runs]
            target, test = TARGETS.get((name, figure), ("", None))
            report.row(f"{name}: {figure}", values, "", target, test(max(values)) if test else None)
        if name == "drops":
            for what in ("threads", "files"):
                more = [figures[f"{what} after 100"] - figures[f"{what} after 10"] for figures in runs]
                report.row(f"drops: {what} more", more, "", "0", max(more) <= 0)
    report.end(options.json)


def main() -> None:
    """Command line."""
    parser = common.parser(__doc__)
    parser.set_defaults(repeats=1)
    parser.add_argument("--only", help=f"some of {', '.join(MEASURES)}")
    parser.add_argument("--photos", help="Parquet made by photos.py, for budget")
    parser.add_argument("--seconds", type=float, default=10.0, help="of gc and gaps; three times that for budget")
    parser.add_argument("--small", default="", help=argparse.SUPPRESS)
    parser.add_argument("--measure", choices=tuple(MEASURES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(MEASURES[options.measure](options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        options.small = str(Path(folder) / "small.parquet")
        make_small(Path(options.small))
        run(options, iter(options.only.split(",") if options.only else MEASURES))


if __name__ == "__main__":
    main()
