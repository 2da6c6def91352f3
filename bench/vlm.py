"""Where the time of the vision-language job goes: the cost of each of its steps, or a profile of all of it.

The steps are those of the bare loop (`zephon_ft.ab.bare`), on one thread: the work functions that the pipeline runs,
and nothing else. The pipeline's share of that loop, on threads and on processes, is measured by
``ab.py --share-of-bare``. Make the data with photos.py first.
"""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import common
from photos import default_tokenizer, describe

from zephon_ft.ab.bare import BareWork, chunks
from zephon_ft.ab.functions import Laps
from zephon_ft.ab.job import Job
from zephon_ft.ab.recipe import dataset, pipeline


def step_costs(job: Job, repeats: int, images: int) -> dict[str, list[float]]:
    """Milliseconds per image of each step of the bare loop, on one thread, by repetition."""
    rows = dataset(job)
    work = BareWork(job, rows)
    order = chunks(job, rows, range(job.lanes))
    for chunk in islice(order, 4):  # what is made on first use is not timed
        work.run(chunk)
    costs: dict[str, list[float]] = {}
    for _ in range(repeats):
        laps, done = Laps(), 0
        while done < images:
            done += work.run(next(order), laps)[1]
        for name, seconds in laps.seconds.items():
            costs.setdefault(name, []).append(seconds / done * 1e3)
    return costs


def profile(job: Job, batches: int, lines: int = 40) -> None:
    """Print where the time of the inline runner goes (cProfile sees one thread only)."""
    import cProfile
    import pstats

    stream = iter(pipeline(job).options(runner="inline"))
    for _ in range(3 * job.lanes):  # planning ahead must settle
        next(stream)
    profiler, images = cProfile.Profile(), 0
    profiler.enable()
    for _ in range(batches):
        images += len(next(stream).arrays["image_grid_thw"])
    profiler.disable()
    stream.close()
    print(f"{images} images")
    pstats.Stats(profiler, stream=sys.stdout).sort_stats("tottime").print_stats(lines)


def main() -> None:
    """Command line."""
    parser = common.parser(__doc__)
    parser.add_argument("data", type=Path, help="Parquet made by photos.py")
    parser.add_argument("--tokenizer", help="a tokenizer.json; default the one that the package ships")
    parser.add_argument("--images", type=int, default=200, help="in each repetition")
    parser.add_argument("--lanes", type=int, default=8)
    parser.add_argument("--max-length", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--decoder", default="torch", help="torch (default) or pillow")
    parser.add_argument("--full-decode", action="store_true", help="no scaled decoding")
    parser.add_argument("--profile", action="store_true", help="print a profile of the inline runner instead")
    options = parser.parse_args()
    job = Job(
        mode="full",
        data=str(options.data),
        tokenizer=options.tokenizer or default_tokenizer(),
        lanes=options.lanes,
        pack_length=options.max_length,
        batch=options.batch,
        decoder=options.decoder,
        scaled_decode=not options.full_decode,
    )
    if options.profile:
        profile(job, 4 * job.lanes)
        return
    report = common.Report("vlm")
    for name, value in describe(options.data, job.tokenizer).items():
        report.fact(name, value)
    report.begin()
    for name, costs in step_costs(job, options.repeats, options.images).items():
        report.row(f"step {name}", costs, "ms/image")
    report.end(options.json)


if __name__ == "__main__":
    main()
