"""Two threads on a pure-Python map: the pipeline's speed-up against that of a bare loop on the same machine, same run.

A map of about 100 microseconds of Python arithmetic a record. The speed-up of two threads over one that a bare loop
gets is what interpreter and machine allow; with the GIL it is 1.

On a machine that others use too, the second core comes and goes, and medians measure the neighbours. So runs are
short and many, and the speed-up is also given from the best run of each side (the moments when both cores were free),
and as CPU time: what two threads pay for one another shows there whoever else runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import common

LANES, BATCH = 8, 32


def calibrated(microseconds: float) -> int:
    """Rounds of `spin` that take so long on this machine."""
    rounds = 1000
    best = 1.0
    for _ in range(20):
        clock = common.Clock()
        spin(rounds)
        best = min(best, clock.read()[0])
    return max(1, round(rounds * microseconds * 1e-6 / best))


def spin(rounds: int) -> int:
    """Arithmetic that touches no object another thread touches."""
    x = 1
    for i in range(rounds):
        x = (x * 31 + i) & 1023
    return x


def pipeline_rate(rows: list[dict[str, Any]], rounds: int, workers: int, records: int) -> dict[str, float]:
    """Records per second of the running stream."""
    from zephon_ft import Dataset, Pipeline, StaticMixtureWorkSource

    def work(fields: dict[str, Any]) -> dict[str, Any]:
        fields["x"] = spin(rounds)
        return fields

    source = StaticMixtureWorkSource([Dataset.from_rows("rows", rows)], seed=1)
    stream = iter(
        Pipeline(source, lanes=LANES).map(work, version="1").batch(BATCH).options(workers=workers, runner="thread")
    )
    for _ in range(4 * LANES):
        next(stream)
    clock = common.Clock()
    for _ in range(records // BATCH):
        next(stream)
    wall, cpu = clock.read()
    stream.close()
    return {"rate": records / wall, "cpu": cpu / records * 1e6}


def bare_rate(rounds: int, threads: int, records: int) -> dict[str, float]:
    """Records per second of threads that call the function and nothing else."""
    ready = threading.Barrier(threads + 1)

    def loop() -> None:
        ready.wait()
        for _ in range(records // threads):
            fields = {"n": 1}
            fields["x"] = spin(rounds)

    pool = [threading.Thread(target=loop) for _ in range(threads)]
    for thread in pool:
        thread.start()
    ready.wait()
    clock = common.Clock()
    for thread in pool:
        thread.join()
    wall, cpu = clock.read()
    return {"rate": records / wall, "cpu": cpu / records * 1e6}


def main() -> None:
    """Command line."""
    parser = common.parser(__doc__)
    parser.add_argument("--microseconds", type=float, default=100.0, help="of the map, for one record")
    parser.add_argument("--records", type=int, default=3200, help="timed in each run")
    parser.set_defaults(repeats=20)
    options = parser.parse_args()
    rounds, records = calibrated(options.microseconds), options.records
    rows = [{"n": n} for n in range(10_000)]
    sides: dict[str, Callable[[], dict[str, float]]] = {
        "pipeline 1": lambda: pipeline_rate(rows, rounds, 1, records),
        "bare 1": lambda: bare_rate(rounds, 1, records),
        "pipeline 2": lambda: pipeline_rate(rows, rounds, 2, records),
        "bare 2": lambda: bare_rate(rounds, 2, records),
    }
    report = common.Report("scaling")
    report.fact("map", f"{options.microseconds:g} us of Python a record, {records} records a run, batch {BATCH}")
    report.begin()
    results = common.interleave(sides, options.repeats)
    for side, runs in results.items():
        report.row(f"{side} thread(s)", [run["rate"] for run in runs], "records/s")
        report.row(f"{side} thread(s), CPU", [run["cpu"] for run in runs], "us/record")
    ours = common.ratios(results, "pipeline 2", "pipeline 1", "rate")
    bare = common.ratios(results, "bare 2", "bare 1", "rate")
    report.row("speed-up of two threads, pipeline", ours)
    report.row("speed-up of two threads, bare", bare)
    share = [a / b for a, b in zip(ours, bare, strict=True)]
    report.row("pipeline's speed-up over the bare one's", share, "", ">= 0.95", common.middle(share) >= 0.95)
    best = {side: max(run["rate"] for run in runs) for side, runs in results.items()}
    ours_best, bare_best = best["pipeline 2"] / best["pipeline 1"], best["bare 2"] / best["bare 1"]
    report.row("best runs: speed-up of two threads, pipeline", [ours_best])
    report.row("best runs: speed-up of two threads, bare", [bare_best])
    share_best = ours_best / bare_best
    report.row("best runs: pipeline's over the bare one's", [share_best], "", ">= 0.95", share_best >= 0.95)
    for side in ("pipeline", "bare"):
        more = common.ratios(results, f"{side} 2", f"{side} 1", "cpu")
        report.row(f"CPU of a record at two threads over one, {side}", more)
    for threads in (1, 2):
        share = common.ratios(results, f"pipeline {threads}", f"bare {threads}", "rate")
        report.row(f"{threads} thread(s), share of bare", share)
    report.end(options.json)


if __name__ == "__main__":
    main()
