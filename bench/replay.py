"""Resume against delivery: photographs, packed; time from load to the first batch and to the first full step.

A run is stopped after so many batches of each lane and resumed in fresh objects, with and without the cost index.
Replay decides again what the stopped run had decided since its flush: it reads headers and tokenizes (or, with the
index, only looks up lengths), and decodes nothing that was delivered. It is compared with the time that delivering the
same records took, less what a fresh run's first step takes anyway. ``--plot FILE`` draws time against records since the
flush.
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
    fresh = [resume(options.photos, options.lanes, begin, with_index) for with_index in (False, True)]
    rows = []
    for batches in map(int, options.batches.split(",")):
        state, seconds, documents = deliver(options.photos, options.lanes, batches)
        plain, indexed = [resume(options.photos, options.lanes, state, with_index) for with_index in (False, True)]
        # What the first step costs anyway, decoded from the start of a fresh run, is no part of replay.
        replay = [max(1e-3, resumed[1] - new[1]) for resumed, new in zip((plain, indexed), fresh, strict=True)]
        rows.append({"records": documents, "deliver": seconds, "plain": plain[1], "indexed": indexed[1]})
        name = f"{documents} records: "
        report.row(name + "delivered in", [seconds], "s")
        for what, resumed, alone, target in (("resume", plain, replay[0], 5), ("with index", indexed, replay[1], 20)):
            report.row(name + f"{what}, first batch", [resumed[0]], "s")
            report.row(name + f"{what}, first full step", [resumed[1]], "s")
            ratio = seconds / alone
            report.row(name + f"{what}, delivery over replay", [ratio], "x", f">= {target}", ratio >= target)
            report.row(name + f"{what}, bytes read", [resumed[2] / 2**20], "MiB")
    if options.plot:
        plot(options.plot, rows)
    report.end(options.json)


if __name__ == "__main__":
    main()
