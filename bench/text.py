"""Small text records: what the engine itself costs, and how soon the first batch comes.

Three parts. ``cost``: JSONL through map, filter (keeps 9 of 10) and batch(32), microseconds a delivered record, at 8
and 256 lanes; against the thread runner of Zephon 0.2.0 on the same interpreter where ``--zephon PYTHON`` names one
that has it. ``lanes``: 256 lanes against 8. ``first``: time to the first batch and to the first full step with
tokenize, pack(2048), shuffle(1024) and batch(8) at 1, 32 and 256 lanes, from `iter()` on, index built, imports done.

Every measurement is a process of its own, and sides alternate. Zephon gets what was fastest for it when tried: as many
files as helps its lanes (16; with one file it needs 165 us a record instead of 45), a parallelism of 2 per operator, no
`decode_text` (its JSONL rows are mappings already). Its filter is a `map_transform` that returns None.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import common

FILES, BATCH = 16, 32
SECONDS = 1.5  # timed in each measurement of the cost
LANES = (1, 32, 256)


def double(fields: dict[str, Any]) -> dict[str, Any]:
    """The map."""
    fields["m"] = fields["n"] * 2
    return fields


def wanted(fields: dict[str, Any]) -> bool:
    """The filter."""
    return fields["n"] % 10 != 0


def make(folder: Path, rows: int) -> None:
    """Write the records, about 70 bytes each, into 16 files."""
    each = rows // FILES
    for number in range(FILES):
        lines = (
            json.dumps({"text": f"row {i} with a bit of text in it", "n": i})
            for i in range(number * each, (number + 1) * each)
        )
        (folder / f"{number:02}.jsonl").write_text("\n".join(lines) + "\n")


def ours(folder: str, lanes: int, workers: int, runner: str = "thread") -> Iterator[Any]:
    """A started stream of this package."""
    from zephon_ft import Dataset, Pipeline, StaticMixtureWorkSource

    source = StaticMixtureWorkSource([Dataset.from_path("rows", folder)], seed=1)
    pipeline = Pipeline(source, lanes=lanes).map(double).filter(wanted).batch(BATCH)
    return iter(pipeline.options(workers=workers, runner=runner))


def zephons(folder: str, lanes: int, workers: int, runner: str = "threads") -> Iterator[Any]:
    """The same of Zephon 0.2.0."""
    from zephon import Dataset, Pipeline
    from zephon.work import MixtureSpec, StaticMixtureWorkSource

    source = StaticMixtureWorkSource(
        datasets=[Dataset.from_path("rows", folder)], mixture=MixtureSpec({"rows": 1.0}), seed=1
    )
    pipeline = (
        Pipeline(source)
        .fetch(parallelism=workers)
        .map_transform(double, parallelism=workers)
        .map_transform(lambda fields: fields if wanted(fields) else None, parallelism=workers)
        .batch(microbatch_size=BATCH)
    )
    return iter(pipeline.options(runner=runner, canonical_replicas=lanes))


def cost(stream: Iterator[Any], lanes: int) -> dict[str, float]:
    """Microseconds by the wall and of CPU for one delivered record, once the stream runs."""
    for _ in range(2 * lanes + 200):
        next(stream)
    clock, records = common.Clock(), 0
    wall = 0.0
    while wall < SECONDS:
        for _ in range(50):
            records += len(next(stream))
        wall, cpu = clock.read()
    stream.close()  # type: ignore[attr-defined]
    return {"us": wall / records * 1e6, "cpu": cpu / records * 1e6, "records": records}


def first(folder: str, lanes: int, workers: int, repeats: int) -> dict[str, float]:
    """Milliseconds to the first batch and to the first full step: medians of some tries, after one not timed."""
    from photos import default_tokenizer

    from zephon_ft import Dataset, Pipeline, StaticMixtureWorkSource

    dataset = Dataset.from_path("rows", folder)
    batches, steps = [], []
    for _ in range(repeats + 1):
        source = StaticMixtureWorkSource([dataset], seed=1)
        pipeline = Pipeline(source, lanes=lanes).tokenize(default_tokenizer(), "text").pack(2048).shuffle(1024).batch(8)
        pipeline = pipeline.options(workers=workers, runner="thread")
        pipeline.plan()
        start = time.perf_counter()
        stream = iter(pipeline)
        next(stream)
        batches.append((time.perf_counter() - start) * 1e3)
        for _ in range(lanes - 1):
            next(stream)
        steps.append((time.perf_counter() - start) * 1e3)
        stream.close()
    return {"batch": common.middle(batches[1:]), "full step": common.middle(steps[1:])}


def measure(options: Any) -> None:
    """One measurement, in this process; prints its figures as JSON."""
    if options.measure == "first":
        figures = first(options.folder, options.lanes, options.workers, 3)
    else:
        made = ours if options.measure == "ours" else zephons
        figures = cost(made(options.folder, options.lanes, options.workers), options.lanes)
    print(json.dumps(figures))


class Runs:
    """Measurements in processes of their own."""

    def __init__(self, options: Any, folder: str) -> None:
        self.options, self.folder = options, folder
        self.report = common.Report("text")
        size = sum(path.stat().st_size for path in Path(folder).glob("*.jsonl")) / options.rows
        self.report.fact("records", f"{options.rows} in {FILES} files, {size:.0f} bytes each")
        self.report.fact("workers", options.workers)
        if options.zephon:
            self.report.fact("zephon", "0.2.0, thread runner, 8 lanes")

    def child(self, what: str, lanes: int) -> dict[str, float]:
        """One measurement."""
        python = self.options.zephon if what == "zephon" else sys.executable
        arguments = ("--measure", what, "--lanes", str(lanes), "--workers", str(self.options.workers))
        return common.child(python, "text.py", self.folder, *arguments)

    def costs(self) -> None:
        """What a record costs, ours and Zephon's."""
        report, zephon = self.report, self.options.zephon
        sides = {"ours, 8 lanes": lambda: self.child("ours", 8), "ours, 256 lanes": lambda: self.child("ours", 256)}
        if zephon:
            sides["zephon, 8 lanes"] = lambda: self.child("zephon", 8)
        costs = common.interleave(sides, self.options.repeats)
        for side, runs in costs.items():
            values = [figures["us"] for figures in runs]
            aimed = side == "ours, 8 lanes" and not common.gil_enabled()
            aim = ("< 5", common.middle(values) < 5) if aimed else ("", None)
            report.row(f"{side}: cost of a record", values, "us", *aim)
            report.row(f"{side}: CPU of a record", [figures["cpu"] for figures in runs], "us")
        if zephon:
            times = common.ratios(costs, "zephon, 8 lanes", "ours, 8 lanes", "us")
            report.row("rate, times Zephon's", times, "", ">= 10", common.middle(times) >= 10)
            report.row("CPU, Zephon's times ours", common.ratios(costs, "zephon, 8 lanes", "ours, 8 lanes", "cpu"))
        more = common.ratios(costs, "ours, 256 lanes", "ours, 8 lanes", "us")
        report.row("cost at 256 lanes over 8 lanes", more, "", "<= 1.5", common.middle(more) <= 1.5)
        report.row("CPU at 256 lanes over 8 lanes", common.ratios(costs, "ours, 256 lanes", "ours, 8 lanes", "cpu"))

    def firsts(self) -> None:
        """How soon the first batch and the first step come."""
        sides = {str(lanes): lambda lanes=lanes: self.child("first", lanes) for lanes in LANES}  # type: ignore[misc]
        firsts = common.interleave(sides, self.options.repeats)
        for lanes, runs in firsts.items():
            for figure in runs[0]:
                self.report.row(f"{lanes} lanes: first {figure}", [figures[figure] for figures in runs], "ms")
        soon = common.ratios(firsts, "32", "1", "batch")
        self.report.row("first batch at 32 lanes over 1 lane", soon, "", "<= 1.5", common.middle(soon) <= 1.5)


def run(options: Any, folder: str) -> None:
    """All measurements, interleaved."""
    runs = Runs(options, folder)
    runs.child("ours", 8)  # builds the index
    runs.report.begin()
    if options.only != "first":
        runs.costs()
    if options.only != "cost":
        runs.firsts()
    runs.report.end(options.json)


def main() -> None:
    """Command line."""
    parser = common.parser(__doc__)
    parser.add_argument("folder", nargs="?", help="where the records are, or are made; default a temporary folder")
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lanes", type=int, default=8, help=argparse.SUPPRESS)
    parser.add_argument("--zephon", metavar="PYTHON", help="an interpreter that has zephon 0.2.0 installed")
    parser.add_argument("--only", choices=("cost", "first"))
    parser.add_argument("--measure", choices=("ours", "zephon", "first"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options)
        return
    with contextlib.ExitStack() as stack:
        folder = options.folder or stack.enter_context(tempfile.TemporaryDirectory())
        Path(folder).mkdir(parents=True, exist_ok=True)
        if not any(Path(folder).glob("*.jsonl")):
            make(Path(folder), options.rows)
        run(options, folder)


if __name__ == "__main__":
    main()
