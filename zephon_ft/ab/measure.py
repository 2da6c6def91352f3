"""Measuring one side in a process of its own: time to the first item, then what arrives in a window of the stream.

The contract for every side, ours or another package's (standard library and numpy only). A side's script is ::

    from zephon_ft.ab.measure import serve

    if __name__ == "__main__":
        serve(stream, count, check, packages=("grain",))

with ``stream(request)``, an endless iterator, ``count(item)`` -> (samples, images, tokens), and ``check(request,
facts)``. It is started as ``SCRIPT --job REQUEST`` (see `job.Request`) and prints one JSON object as its last line.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

from zephon_ft.ab.facts import Facts
from zephon_ft.ab.job import Request
from zephon_ft.ab.tree import usage

T = TypeVar("T")
Counts = tuple[int, int, int]  # samples, images, tokens
PACKAGES = ("zephon-ft", "numpy", "pillow", "pillow-simd", "pyarrow", "tokenizers", "torch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one process of a side tells.

    Attributes:
        side, mode, runner, workers: which side it was, and how it ran.
        samples, images, tokens: that reached the consumer in the window; padding does not count.
        wall_s: length of the window in seconds.
        cpu_s: user and system time in the window, of this process and of all its descendants.
        first_s: from the call of `measure` (imports done) to the first item in the consumer's hands.
        minor_faults: in the window, of all processes.
        drift: the rate in the second half of the window over that in the first; far from 1, it had not settled.
        gil: whether the GIL was on at the end (an import may turn it on).
        python, versions: of the interpreter and of what it uses.
        decode: ``"ours"``: our functions; ``"own"``: what the side's documentation would have one write.
        check: of a check pass, what `Facts.to_json` returns; else None.
        batches: of a check pass of our own sides, two digests of each of the first batches in order: without pixels,
            and of everything.
        note: what a reader should know, e.g. features that the script had to add.
    """

    side: str
    mode: str
    runner: str
    workers: int
    samples: int = 0
    images: int = 0
    tokens: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    first_s: float = 0.0
    minor_faults: int = 0
    drift: float = 1.0
    gil: bool = True
    python: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    decode: str = "ours"
    check: dict[str, Any] | None = None
    batches: list[str] = field(default_factory=list)
    note: str = ""

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Result:
        """The inverse of `to_json`.

        Raises:
            ValueError: no JSON, or not a result.
        """
        try:
            return cls(**json.loads(text))
        except TypeError as error:
            raise ValueError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Window:
    """The figures of one measured window; see `Result`."""

    samples: int
    images: int
    tokens: int
    wall_s: float
    cpu_s: float
    first_s: float
    minor_faults: int
    drift: float


def measure(
    make_iterator: Callable[[], Iterator[T]], count: Callable[[T], Counts], *, warmup: float, seconds: float
) -> Window:
    """Start a stream, let it run for `warmup` seconds, and count what arrives in the next `seconds`.

    A stream that was slow to start is given twice the time of its first item, up to three times `warmup`: whatever it
    fills before it delivers evenly (open rows, prefetch) must not be counted.

    The window opens and closes with an item's arrival, so whole items are counted over the time that they took. The
    stream is closed if it has a `close`.

    Args:
        make_iterator: starts the stream; its time belongs to the first item's.
        count: (samples, images, tokens) of an item; must look at nothing but sizes.

    Raises:
        ValueError: the stream ended too soon.
    """
    began = time.perf_counter()
    stream = make_iterator()
    item = next(stream, None)
    if item is None:
        raise ValueError("the stream was empty")
    first = time.perf_counter() - began
    try:
        opens = time.perf_counter() + max(warmup, min(2 * first, 3 * warmup))
        while time.perf_counter() < opens:
            _next(stream)
        samples = images = tokens = 0
        before, start = usage(), time.perf_counter()
        now, closes, half = start, start + seconds, (0, 0.0)
        while now < closes:
            counts = count(_next(stream))
            samples, images, tokens = samples + counts[0], images + counts[1], tokens + counts[2]
            now = time.perf_counter()
            if not half[0] and now - start >= seconds / 2:
                half = (samples, now - start)
        used = usage() - before
    finally:
        close = getattr(stream, "close", None)
        if close is not None:
            close()
    wall = now - start
    later = (samples - half[0]) / (wall - half[1]) if wall > half[1] else 0.0
    drift = later / (half[0] / half[1]) if half[0] else 1.0
    return Window(samples, images, tokens, wall, used.cpu, first, used.faults, drift)


def _next(stream: Iterator[T]) -> T:
    try:
        return next(stream)
    except StopIteration:
        raise ValueError("the stream ended before its window; a side must repeat the data endlessly") from None


def serve(
    stream: Callable[[Request], Iterator[T]],
    count: Callable[[T], Counts],
    check: Callable[[Request, Facts], None],
    *,
    packages: Sequence[str] = (),
    note: str = "",
) -> None:
    """The `main` of a side: reads ``--job``, checks or measures, prints the `Result` as the last line.

    Args:
        stream: starts the stream of ``request.job`` with ``request.runner`` and ``request.decode``.
        count: see `measure`.
        check: consumes one pass of the job and tells `Facts` everything that it delivered.
        packages: distributions whose versions the report names, beside the common ones.
        note: see `Result`.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", required=True, help="a Request as JSON")
    request = Request.from_json(parser.parse_args().job)
    import_decoder(request)
    if request.phase == "check":
        facts = Facts()
        check(request, facts)
        answer(request, packages, note=note, check=facts.to_json())
    else:
        window = measure(lambda: stream(request), count, warmup=request.warmup, seconds=request.seconds)
        answer(request, packages, note=note, **asdict(window))


def import_decoder(request: Request) -> None:
    """Import what our functions decode with, if they do: imports belong to no side's time to the first item."""
    if request.decode == "ours" and request.job.mode != "text":
        from zephon_ft.vision.decode import Decoder

        Decoder(decoder=request.job.decoder)


def answer(request: Request, packages: Sequence[str] = (), **values: Any) -> None:
    """Print the `Result` of a request: its own values, and what the interpreter tells of itself."""
    facts = interpreter(packages)
    if request.decode == "ours" and request.job.mode != "text" and request.job.decoder == "torch":
        from zephon_ft.vision.fused_resize import vectors

        facts["versions"]["fused resize"] = vectors() or "none"
    result = Result(
        side=request.side,
        mode=request.job.mode,
        runner=request.runner,
        workers=request.job.workers,
        decode=request.decode,
        **facts,
        **values,
    )
    print(result.to_json(), flush=True)


def interpreter(packages: Sequence[str] = ()) -> dict[str, Any]:
    """`gil`, `python` and `versions` of this process."""
    versions = {}
    for name in dict.fromkeys((*packages, *PACKAGES)):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    return {"gil": gil, "python": platform.python_version(), "versions": versions}
