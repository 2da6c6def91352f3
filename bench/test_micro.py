"""Micro-benchmarks of the hot path, for comparing a change: ``pytest bench/test_micro.py --benchmark-autosave``.

Each takes one step of a record on its way: order, submit and reorder, accumulate, lay out, fill.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from zephon_ft import Dataset, Pipeline, StaticMixtureWorkSource
from zephon_ft.engine.checkpoint import start_of_iteration
from zephon_ft.engine.events import Bundle
from zephon_ft.engine.lane import Lane
from zephon_ft.ops.base import AccumulatorContext
from zephon_ft.ops.batch import BatchOp
from zephon_ft.ops.pack import Pack
from zephon_ft.ops.shuffle import Shuffle
from zephon_ft.record import Record

RECORDS = 1000


def records() -> list[Record]:
    lengths = np.random.default_rng(0).integers(20, 400, RECORDS)
    return [
        Record((0, 0, n, 0), n, {"input_ids": np.zeros(size, np.int32)}, (), size) for n, size in enumerate(lengths)
    ]


def interval(operator: Any) -> Any:
    accumulator = operator.accumulator()
    accumulator.open(AccumulatorContext(0, 0, 0, 0, lambda unit, reason: None))
    return accumulator


def test_take_rows_of_a_lane(benchmark):
    source = StaticMixtureWorkSource(
        [
            Dataset.from_rows("a", [{"n": n} for n in range(5000)]),
            Dataset.from_rows("b", [{"n": n} for n in range(900)]),
        ],
        {"a": 0.7, "b": 0.3},
    )
    cursor = source.lanes(4).cursor(1)
    benchmark(lambda: cursor.take(RECORDS))


@pytest.mark.parametrize("operator", [Pack(4096), Shuffle(256)], ids=["pack", "shuffle"])
def test_accumulate(benchmark, operator):
    units = records()

    def run() -> None:
        accumulator = interval(operator)
        for unit in units:
            accumulator.push(unit)
        accumulator.finish()

    benchmark(run)


def test_submit_and_reorder(benchmark):
    source = StaticMixtureWorkSource([Dataset.from_rows("a", [{"n": n} for n in range(5000)])])
    plan = Pipeline(source, 1).batch(32).plan()
    stamp = start_of_iteration(plan, [0], 0, 0, 1).stamps[0]
    anchor = stamp.mark.anchor

    def run() -> None:
        lane = Lane(0, plan, stamp)
        parts = [records()[start : start + 50] for start in range(0, RECORDS, 50)]
        events = [(0, seq, Bundle(part, part[-1].position + 1, anchor)) for seq, part in enumerate(parts)]
        for event in reversed(events):
            lane.advance([event])

    benchmark(run)


def test_assemble_and_lay_out(benchmark):
    pack = Pack(4096)
    accumulator = interval(pack)
    groups = [group for unit in records() for group in accumulator.push(unit)] + list(accumulator.finish())
    work = pack.bind(None)  # type: ignore[arg-type]
    batch = BatchOp(8).after(pack)
    benchmark(lambda: batch.layout([work(group) for group in groups[:8]]))


def test_fill_one_photograph(benchmark):
    image = pytest.importorskip("PIL.Image")
    from zephon_ft.vision import Qwen2_5_VL
    from zephon_ft.vision.header import read_header
    from zephon_ft.vision.kind import ImageKind

    out = io.BytesIO()
    pixels = np.add.outer(np.arange(480), np.arange(640)).astype(np.uint8)
    image.fromarray(pixels).convert("RGB").save(out, "JPEG", quality=90)
    kind, data = ImageKind(Qwen2_5_VL()), out.getvalue()
    media = kind.media(read_header(data), data)
    rows = np.empty((media.rows, *kind.row_shape), np.uint8)
    fill = kind.bind()
    benchmark(lambda: fill(media, data, rows))
