"""What every adapter shares, so that each shows only how its own loader is used: work functions, and `main`.

Beside it: `rows`, `decoding`, `packing`. Shared code is as quick as we can make it: what differs between peers is the
loader. Importing this first puts the checkout on the path and keeps inner thread pools at one thread.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the checkout's zephon_ft, not installed here
for pool in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ.setdefault(pool, "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from decoding import Decode, Size, channels_last, pil_decode, torch_decode  # noqa: E402
from packing import (  # noqa: E402
    OPEN_BINS,
    Batch,
    BestFitPacker,
    Sample,
    collate,
    count,
    packed_batches,
    tell,
)
from rows import ROW, Rows, columns, order  # noqa: E402

from zephon_ft.ab.facts import Facts  # noqa: E402
from zephon_ft.ab.functions import Functions  # noqa: E402
from zephon_ft.ab.job import Job, Request  # noqa: E402
from zephon_ft.ab.measure import serve  # noqa: E402
from zephon_ft.ab.recipe import geometry, reading  # noqa: E402
from zephon_ft.vision.kind import ImageKind  # noqa: E402

__all__ = [
    "OPEN_BINS",
    "Batch",
    "BestFitPacker",
    "Decode",
    "Job",
    "ReadAndTransform",
    "Request",
    "Rows",
    "Sample",
    "Size",
    "Transform",
    "collate",
    "columns",
    "main",
    "order",
    "packed_batches",
    "pil_decode",
    "torch_decode",
]


class Work:
    """The work functions of one worker: a row in, a sample out.

    Args:
        job: the job.
        decode: the peer's own decoding, see `Decode`, with text encoded by the tokenizers library alone; None takes
            zephon_ft's functions.
    """

    def __init__(self, job: Job, decode: Decode | None) -> None:
        self._functions, self._decode = Functions(job, whole_texts=decode is not None), decode
        self._kind = ImageKind(geometry(job))
        self.run: Callable[[int, dict[str, Any]], Sample] = getattr(self, f"_{job.mode}")

    def _fetch(self, row: int, fields: dict[str, Any]) -> Sample:
        if self._decode is None:
            return {"row": row, "pixels": self._functions.fetch(fields)}
        media = self._functions.record(fields).media[0]
        return {"row": row, "pixels": self._decode(media.data, self._size(media))}

    def _full(self, row: int, fields: dict[str, Any]) -> Sample:
        if self._decode is None:
            sample = self._functions.full(fields)
            ids, labels, images = sample.input_ids, sample.labels, sample.images
        else:
            record = self._functions.record(fields)
            ids, labels = record.fields["input_ids"], record.fields["labels"]
            images = [self._patches(media) for media in record.media]
        patches = [part for part, _ in images]
        return {
            "row": row,
            "input_ids": ids,
            "labels": labels,
            "patches": patches[0] if len(patches) == 1 else np.concatenate(patches),
            "grid": np.array([grid for _, grid in images], np.int64),
        }

    def _text(self, row: int, fields: dict[str, Any]) -> Sample:
        ids = self._functions.text(fields)
        return {"row": row, "input_ids": ids, "labels": ids}

    def _size(self, media: Any) -> Size:
        plan = self._kind.plan(media)
        return plan.width, plan.height

    def _patches(self, media: Any) -> tuple[np.ndarray, tuple[int, int, int]]:
        assert self._decode is not None
        plan = self._kind.plan(media)
        out = np.empty((plan.rows, *self._kind.row_shape), np.uint8)
        self._kind.geometry.patchify(channels_last(self._decode(media.data, self._size(media))), plan, out)
        return out, plan.grid


class Transform:
    """``transform(fields) -> sample`` for any worker: each thread makes its `Work` on first use; can be pickled.

    Args:
        job: the job.
        decode: see `Work`; a module-level function or a partial of one.
    """

    def __init__(self, job: Job, decode: Decode | None) -> None:
        self._arguments = (job, decode)
        self.images = frozenset(reading(job).images)
        self._local = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:  # also of a copy: every worker makes its own functions
        return type(self), self._arguments

    def __call__(self, fields: dict[str, Any]) -> Sample:
        work = getattr(self._local, "work", None)
        if work is None:
            work = self._local.work = Work(*self._arguments)
        return work.run(fields.pop(ROW, -1), fields)


class ReadAndTransform:
    """``f(row number) -> sample``: reading included, for loaders whose workers do both. Also a map-style data set."""

    def __init__(self, job: Job, decode: Decode | None) -> None:
        self.rows, self.transform = Rows(job), Transform(job, decode)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> Sample:
        return self.transform(self.rows[row])

    __call__ = __getitem__


def main(
    stream: Callable[[Request, Decode | None], Iterator[Any]],
    *,
    own: Callable[[Job], Decode],
    packages: Sequence[str],
    note: str,
) -> None:
    """Run an adapter; see `zephon_ft.ab.measure.serve`.

    Args:
        stream: ``stream(request, decode)`` starts the job; `decode` is None where ours is wanted.
        own: the peer's own decoding; ``Job.scaled_decode`` lets it decode at a fraction of the size, where it can.
        packages: distributions to name.
        note: what the adapter had to add.
    """

    def decode(request: Request) -> Decode | None:
        return own(request.job) if request.decode == "own" else None

    def start(request: Request) -> Iterator[Any]:
        return stream(request, decode(request))

    def check(request: Request, facts: Facts) -> None:
        for item in start(request):
            tell(item, facts)

    asked = _asked()
    work = Work(asked.job, decode(asked))  # what is imported and made once is so before the clock starts, as for ours
    work.run(0, Rows(asked.job)[0])
    serve(start, count, check, packages=packages, note=note)


def _asked() -> Request:
    """What the command line asks for; `serve` reads it again and reports what is wrong with it."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--job")
    given = parser.parse_known_args()[0].job
    return (
        Request.from_json(given) if given else sys.exit("usage: SCRIPT --job REQUEST; see README.md beside this file")
    )
