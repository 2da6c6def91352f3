"""What every side of a comparison is asked to do: one job, and one request to check or to time it.

Both travel as JSON to the process of a side, ours or another package's. Standard library only.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

MODES = ("fetch", "full", "text")
CHAT_TOKENS = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|image_pad|>", "<|vision_end|>")
PHOTOGRAPHS: dict[str, Any] = {"images": ["images"], "kind": "chat", "text": ["texts"], "layout": "FineVision"}
CHECK_ROWS = 64  # rows of the pass that checks a side


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The work, the same for all sides.

    Attributes:
        mode: ``"fetch"``: read, decode and resize to `size` x `size` RGB (uint8, bicubic, aspect ratio not kept), one
            sample at a time; ``"full"``: Qwen2.5-VL's geometry, chat tokens with a label mask, packed rows, batches
            with the patches of their images; ``"text"``: the text of the same rows tokenized and packed.
        data: data files. The built-in photographs are one Parquet file with ``images: list<struct<bytes, path>>`` (one
            image a row) and ``texts: list<struct<user, assistant>>``.
        tokenizer: path of a ``tokenizer.json``; tokens of `CHAT_TOKENS` that it lacks are added.
        size: side of the square of ``"fetch"``, in pixels.
        min_pixels, max_pixels: area after the resize of ``"full"``.
        scaled_decode: decode large JPEGs at a smaller scale where the target allows it.
        decoder: of our functions, see `zephon_ft.vision.decode.Decoder`.
        workers: threads or processes.
        lanes: logical streams (ours only).
        pack_length: tokens of a packed row.
        batch: packed rows of a batch (``"full"`` and ``"text"``).
        seed: of the order.
        reading: how rows are read, as the fields of `zephon_ft.demo.reading.Reading`; default: as the photographs are.
        rows: only the first rows of the data; None for all.
        passes: passes over the data; None is endless.
    """

    mode: str
    data: str
    tokenizer: str = ""
    size: int = 384
    min_pixels: int = 56 * 56
    max_pixels: int = 28 * 28 * 1280
    scaled_decode: bool = True
    decoder: str = "torch"
    workers: int = 1
    lanes: int = 8
    pack_length: int = 4096
    batch: int = 2
    seed: int = 1
    reading: dict[str, Any] = field(default_factory=lambda: dict(PHOTOGRAPHS))
    rows: int | None = None
    passes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What one process of a side is started for.

    Attributes:
        job: the work.
        side: the side's name, for the report.
        runner: ``"thread"``, ``"process"`` or ``"inline"``: for sides that have more than one.
        decode: ``"ours"``: the functions of `functions.Functions`; ``"own"``: those of the side's documentation.
        phase: ``"time"``: stream for `warmup` and then `seconds` seconds; ``"check"``: one pass over the first rows
            (`Job.rows` and `Job.passes` say so), and tell what came out.
        warmup, seconds: before and in the measured window.
    """

    job: Job
    side: str = ""
    runner: str = "thread"
    decode: str = "ours"
    phase: str = "time"
    warmup: float = 2.0
    seconds: float = 6.0

    def to_json(self) -> str:
        """As the one argument behind ``--job``."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Request:
        """The inverse of `to_json`."""
        values = json.loads(text)
        return cls(**{**values, "job": Job(**values["job"])})

    def check(self) -> Request:
        """The same for one pass over the first rows."""
        return replace(self, phase="check", job=replace(self.job, rows=CHECK_ROWS, passes=1))
