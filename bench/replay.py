"""Resume against delivery: photographs, packed; time from load to the first batch and to the first full step.

A run is stopped after so many batches of each lane and resumed in fresh objects, with and without the cost index.
Replay decides again what the stopped run had decided since its flush: it reads headers and tokenizes (or, with the
index, only looks up lengths), and decodes nothing that was delivered. It is compared with the time that delivering the
same records took, with and without what a fresh run's first step takes. ``--plot FILE`` draws time against records
since the flush.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import common


def job(data: str, lanes: int, **options: Any) -> Any:
    """images, tokenize_chat, pack, batch(1); no flush within the run."""
    from zephon_ft import Dataset, Pipeline, StaticMixtureWorkSource
    from zephon_ft.text.tokenizer import demo_tokenizer_path
    from zephon_ft.vision import Qwen2_5_VL

    source = StaticMixtureWorkSource([Dataset.from_path("photos", data)], seed=1)
    pipeline = (
        Pipeline(source, lanes, flush_every=1 << 20).images(Qwen2_5_VL()).tokenize_chat(str(demo_tokenizer_path()))
    )
    return pipeline.pack(4096, open_bins=8).batch(1).options(runner="thread", **options)


def deliver(data: str, lanes: int, batches: int) -> tuple[dict[str, Any], float, int]:
    """Run to the stop: the state there, seconds, and documents delivered."""
    pipeline = job(data, lanes, cost_index=False)
    pipeline.plan()
    start = time.perf_counter()
    stream = iter(pipeline)
    documents = sum(sum(map(len, next(stream).keys)) for _ in range(batches * lanes))
    seconds = time.perf_counter() - start
    state = pipeline.state_dict()
    stream.close()
    return state, seconds, documents


def resume(data: str, lanes: int, state: dict[str, Any], index: bool) -> tuple[float, float, int]:
    """Seconds to the first batch and to the first full step, and bytes read until then."""
    pipeline = job(data, lanes, cost_index=index)
    pipeline.plan()
    start = time.perf_counter()
    pipeline.load_state_dict(state)
    stream = iter(pipeline)
    next(stream)
    first = time.perf_counter() - start
    for _ in range(lanes - 1):
        next(stream)
    step = time.perf_counter() - start
    read = pipeline.source.datasets[0].stats()["bytes_read"]
    stream.close()
    return first, step, read


def plot(path: Path, rows: list[dict[str, float]]) -> None:
    """Seconds to the first full step against records since the flush."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    records = [row["records"] for row in rows]
    for name, label in (
        ("deliver", "delivering them"),
        ("plain", "resume"),
        ("indexed", "resume, with the cost index"),
    ):
        axes.plot(records, [row[name] for row in rows], marker="o", label=label)
    axes.set_xlabel("records since the flush (all lanes)")
    axes.set_ylabel("seconds")
    axes.set_title("Photographs: replay decides again, it does not decode again")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def _measured(options: Any, state: dict[str, Any], index: bool) -> dict[str, float]:
    first, step, read = resume(options.photos, options.lanes, state, index)
    return {"first": first, "step": step, "read": read}


def main() -> None:
    """Measure, print, draw."""
    parser = common.parser(__doc__)
    parser.add_argument("photos", help="Parquet made by photos.py")
    parser.add_argument("--lanes", type=int, default=8)
    parser.add_argument("--batches", default="5,10,20,40", help="of each lane before the stops")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    from zephon_ft.indexing import index

    index(job(options.photos, options.lanes))
    report = common.Report("replay")
    report.begin()
    begin = job(options.photos, options.lanes).state_dict()
    rows = []
    for batches in map(int, options.batches.split(",")):
        state, seconds, documents = deliver(options.photos, options.lanes, batches)
        row = {"records": documents, "deliver": seconds}
        name = f"{documents} records: "
        report.row(name + "delivered in", [seconds], "s")
        for what, with_index, target in (("resume", False, 5), ("with index", True, 20)):
            # Fresh and resumed runs take turns: what a first step takes anyway is no part of replay.
            sides = {
                "fresh": lambda with_index=with_index: _measured(options, begin, with_index),
                "resumed": lambda with_index=with_index, state=state: _measured(options, state, with_index),
            }
            found = common.interleave(sides, options.repeats)
            steps = [run["step"] for run in found["resumed"]]
            extra = [step - run["step"] for step, run in zip(steps, found["fresh"], strict=True)]
            row["plain" if not with_index else "indexed"] = common.middle(steps)
            report.row(name + f"{what}, first batch", [run["first"] for run in found["resumed"]], "s")
            report.row(name + f"{what}, first full step", steps, "s")
            report.row(name + f"{what}, above a fresh run's first step", extra, "s")
            report.row(name + f"{what}, delivery over first full step", [seconds / step for step in steps], "x")
            # The slowest replay seen bounds the ratio from below; one that noise hides proves nothing.
            if max(extra) > 0:
                least = seconds / max(extra)
                report.row(
                    name + f"{what}, delivery over slowest replay", [least], "x", f">= {target}", least >= target
                )
            report.row(name + f"{what}, bytes read", [run["read"] for run in found["resumed"]], "bytes")
        rows.append(row)
    if options.plot:
        plot(options.plot, rows)
    report.end(options.json)


if __name__ == "__main__":
    main()
