"""Progress: one line that is rewritten on a terminal, some plain lines elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from zephon_ft.batch import Batch

_EVERY = 0.1  # seconds between two updates on a terminal
_LINES = 10  # plain lines in all
_BAR = 24  # characters


@dataclass(slots=True)
class Totals:
    """What has been streamed.

    Attributes:
        batches, samples, images, tokens: counts; padding is no token.
        places: rows * row length of all batches.
        seconds: since the first batch was asked for.
        first: seconds to the first batch.
    """

    batches: int = 0
    samples: int = 0
    images: int = 0
    tokens: int = 0
    places: int = 0
    seconds: float = 0.0
    first: float = 0.0

    def rates(self) -> str:
        """In words, e.g. ``812 samples/s, 790 images/s, 60,120 tokens/s, fill 98.7 %``."""
        seconds = max(self.seconds, 1e-9)
        rates = [f"{n / seconds:,.0f} {what}/s" for n, what in ((self.samples, "samples"), (self.images, "images"))]
        fill = self.tokens / max(1, self.places)
        return ", ".join([*rates, f"{self.tokens / seconds:,.0f} tokens/s", f"fill {fill:.1%}"])


class Progress:
    """Counts batches and shows how far it is.

    Args:
        steps: batches in all.
        stream: where to; a terminal gets a bar.
    """

    def __init__(self, steps: int, stream: TextIO | None = None) -> None:
        self.totals = Totals()
        self._steps = steps
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._start = time.perf_counter()
        self._shown = self._start
        self._width = 0

    def add(self, batch: Batch, note: str = "") -> None:
        """Count a batch; `note` is shown behind the figures."""
        totals = self.totals
        now = time.perf_counter()
        totals.seconds = now - self._start
        totals.first = totals.first or totals.seconds
        totals.batches += 1
        totals.samples += sum(map(len, batch.keys))
        totals.images += sum(len(batch.arrays[name]) for name in ("image_grid_thw",) if name in batch.arrays)
        totals.tokens += batch.num_tokens
        totals.places += batch.arrays["input_ids"].size
        done = totals.batches == self._steps
        if self._terminal:
            if done or now - self._shown >= _EVERY:
                self._shown = now
                self._line(note)
        elif done or totals.batches * _LINES // self._steps > (totals.batches - 1) * _LINES // self._steps:
            print(f"batch {totals.batches} of {self._steps}: {_with(totals.rates(), note)}", file=self._stream)

    def close(self) -> None:
        """End the line."""
        if self._width:
            print(file=self._stream)
            self._width = 0

    def _line(self, note: str) -> None:
        done = self.totals.batches * _BAR // self._steps
        bar = "=" * done + "." * (_BAR - done)
        text = f"[{bar}] {self.totals.batches}/{self._steps}  {_with(self.totals.rates(), note)}"
        text = text[: shutil.get_terminal_size().columns - 1]
        self._stream.write(f"\r{text:<{self._width}}")
        self._stream.flush()
        self._width = len(text)


def _with(text: str, note: str) -> str:
    return f"{text}, {note}" if note else text
