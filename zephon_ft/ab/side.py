"""One side of ours in a process of its own: ``python -m zephon_ft.ab.side --job REQUEST``. See `measure`.

Everything that the job uses is imported before the clock starts, as it is at the head of other loaders' scripts.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from zephon_ft.ab.facts import Facts
from zephon_ft.ab.job import Request
from zephon_ft.ab.measure import Counts, answer, import_decoder, measure

BATCHES = 8  # whose digests are compared


def main() -> None:
    """Answer one request."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", required=True, help="a Request as JSON")
    request = Request.from_json(parser.parse_args().job)
    _import_all(request)
    from zephon_ft.ab import bare

    job = request.job
    if request.side in bare.SIDES:
        window = measure(lambda: bare.SIDES[request.side](job), lambda counts: counts, **_times(request))
        answer(request, **asdict(window))
    elif request.phase == "check":
        facts = Facts()
        check(request, facts)
        answer(request, check=facts.to_json(), batches=digests(request), note=decoder(request))
    else:
        answer(request, **asdict(measure(lambda: stream(request), count, **_times(request))))


def _import_all(request: Request) -> None:
    import cloudpickle  # noqa: F401

    import zephon_ft.ab.bare
    import zephon_ft.runners.process

    if not request.job.data.endswith(("jsonl", "tar")):
        import pyarrow.parquet  # noqa: F401
    import_decoder(request)
    if request.job.mode != "fetch":
        import tokenizers  # noqa: F401

        import zephon_ft.ops.tokenize_chat  # noqa: F401


def _times(request: Request) -> dict[str, float]:
    return {"warmup": request.warmup, "seconds": request.seconds}


def stream(request: Request) -> Iterator[Any]:
    """The running pipeline."""
    from zephon_ft.ab.recipe import pipeline

    job = request.job
    return iter(pipeline(job).options(runner=request.runner, workers=job.workers, cost_index=False))


def count(batch: Any) -> Counts:
    """Samples, images and tokens of a batch."""
    arrays = batch.arrays
    images = arrays.get("image_grid_thw", arrays.get("pixel_values", ()))
    return sum(map(len, batch.keys)), len(images), batch.num_tokens


def check(request: Request, facts: Facts) -> None:
    """One pass over the first rows: tell every document and image by the row that it came from."""
    from zephon_ft.ab.recipe import dataset, geometry, tokenizer
    from zephon_ft.vision.preview import reassemble

    # A lane that has no whole batch left drops its rest: with one lane and batches of 1 there is none.
    request = replace(request, job=replace(request.job, lanes=1)) if request.job.mode == "fetch" else request
    job, shape = request.job, geometry(request.job)
    placeholder = tokenizer(job).token_id(shape.image_token) if job.mode == "full" else -1
    starts = list(itertools.accumulate((shard.rows for shard in dataset(job).shards), initial=0))
    for batch in stream(request):
        pictures = iter(reassemble(batch, shape.buffer, shape) if shape.buffer in batch.arrays else ())
        for number, origins in enumerate(batch.records()):
            for origin in origins:
                row = starts[origin.shard] + origin.row
                left = 0
                if job.mode == "fetch":
                    facts.sample()
                    left = len(batch.arrays[shape.buffer])
                else:
                    part = slice(origin.start, origin.stop)
                    ids, labels = (batch.arrays[name][number, part] for name in ("input_ids", "labels"))
                    facts.document(ids, labels)
                    left = int((ids == placeholder).sum())
                index = 0
                while left > 0:
                    pixels, tokens = next(pictures)
                    facts.image(row, pixels, index)
                    left -= 1 if job.mode == "fetch" else tokens
                    index += 1


def digests(request: Request) -> list[str]:
    """Two digests of each of the first batches of the job as it is timed: without pixels, and of everything."""
    endless = replace(request, job=replace(request.job, rows=None, passes=None))
    running = stream(endless)
    try:
        return [f"{batch.digest(pixels=False)} {batch.digest()}" for batch in itertools.islice(running, BATCHES)]
    finally:
        running.close()  # type: ignore[attr-defined]


def decoder(request: Request) -> str:
    """Names and versions of what decodes: pixels are the same bytes only between equal ones."""
    from zephon_ft.ab.recipe import pipeline

    kinds = pipeline(request.job).plan().kinds.values()
    return "; ".join(", ".join(f"{name} {value}" for name, value in kind.recipe()["decoder"].items()) for kind in kinds)


if __name__ == "__main__":
    main()
