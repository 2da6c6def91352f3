"""The work functions of a job by themselves: what the pipeline runs on one row, bound for one worker, no engine.

The bare loop and the adapters of other loaders ("identical functions") call these; so a difference in speed is one
between loaders. Make one `Functions` per thread or process. Needs PIL, and tokenizers in the modes with text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from zephon_ft.ab.job import Job
from zephon_ft.ab.recipe import operators
from zephon_ft.ops.base import WorkContext
from zephon_ft.ops.images import Images
from zephon_ft.random import Keyed
from zephon_ft.record import Media, Record
from zephon_ft.vision.kind import Fill, ImageKind

Lap = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sample:
    """One row of the full job.

    Attributes:
        input_ids, labels: int32 (n,); -100 does not count.
        images: of each image its patches, uint8 (rows, 588), and its grid (1, height, width) in patches.
    """

    input_ids: np.ndarray
    labels: np.ndarray
    images: list[tuple[np.ndarray, tuple[int, int, int]]]


class Functions:
    """The functions of one worker.

    Args:
        job: decides mode, geometry, tokenizer and scaled decoding.
        read_file: ``read_file(record, path)`` for rows that name files; None where they hold bytes.
        whole_texts: see `recipe.operators`.
    """

    def __init__(
        self, job: Job, read_file: Callable[[Record, str], bytes] | None = None, *, whole_texts: bool = False
    ) -> None:
        self._works: list[tuple[str, Any]] = []
        self._kind: ImageKind | None = None
        for position, operator in enumerate(operators(job, whole_texts=whole_texts)):
            context = WorkContext(job.seed, position, Keyed(job.seed, operator.name, position), _uncounted, read_file)
            self._works.append((operator.name, operator.bind(context)))
            if isinstance(operator, Images):
                self._kind = operator.kind()
        self._fill: Fill | None = None

    def fetch(self, row: Mapping[str, Any]) -> np.ndarray:
        """The first image of a row: (size, size, 3) uint8, RGB."""
        media = self.record(row).media[0]
        return self.pixels(media)[0]

    def full(self, row: Mapping[str, Any]) -> Sample:
        """Tokens, label mask and patches of a row."""
        record = self.record(row)
        images = [(self.pixels(media), self._grid(media)) for media in record.media]
        return Sample(record.fields["input_ids"], record.fields["labels"], images)

    def text(self, row: Mapping[str, Any]) -> np.ndarray:
        """Tokens of a row's text, int32 (n,)."""
        return self.record(row).fields["input_ids"]

    def record(self, row: Mapping[str, Any], number: int = 0, lap: Lap | None = None) -> Record:
        """Everything but decoding: headers, sizes, tokens.

        Args:
            row: the row's fields, as the job's data have them.
            number: of the row, for errors.
            lap: called with the name of each operator when it has run.
        """
        record = Record((0, 0, number, 0), number, dict(row))
        for name, work in self._works:
            record = work(record)
            if lap is not None:
                lap(name)
        return record

    def pixels(self, media: Media, out: np.ndarray | None = None) -> np.ndarray:
        """Decode and resize an image of a record into (rows, *row_shape) uint8: `out`'s first rows, or a new array."""
        assert self._kind is not None and media.data is not None
        if self._fill is None:  # only now: a side that decodes by itself needs none of what our decoder imports
            self._fill = self._kind.bind()
        where = np.empty((media.rows, *self._kind.row_shape), np.uint8) if out is None else out[: media.rows]
        self._fill(media, media.data, where)
        return where

    def _grid(self, media: Media) -> tuple[int, int, int]:
        assert self._kind is not None
        return self._kind.plan(media).grid


class Laps:
    """Sums of the time between laps, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def __call__(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now


def _uncounted(name: str, n: int = 1) -> None:
    """Statistics go nowhere: there is no engine."""
