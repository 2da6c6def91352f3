"""How long the locks are held that all workers share, and what that means for more threads than this machine has.

Two locks are taken for every task, the crew's and the engine's; all else belongs to a lane, a worker or a buffer.
Their times are taken while a job runs on real threads. A closed queueing network then tells the rate of T threads: each
works (its own time), then waits for the lock and holds it. Mean value analysis gives its exact solution for random
times (Reiser and Lavenberg 1980), which is the worse case: regular ones collide less. Memory bandwidth, clock rates and
the trainer's own demand are not in it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import common

from zephon_ft.ab import side
from zephon_ft.ab.job import Job, Request

THREADS = (2, 8, 16, 32, 64)


class TimedLock:
    """A lock that adds up how often it was taken, how long it was held and waited for. Its own cost is in that."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.taken, self.held, self.waited, self._since = 0, 0.0, 0.0, 0.0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As `threading.Lock`."""
        asked = time.perf_counter()
        if not self._lock.acquire(blocking, timeout):
            return False
        self._since = time.perf_counter()
        self.waited += self._since - asked
        self.taken += 1
        return True

    def release(self) -> None:
        """As `threading.Lock`."""
        self.held += time.perf_counter() - self._since
        self._lock.release()

    def locked(self) -> bool:
        """As `threading.Lock`."""
        return self._lock.locked()

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()


def throughput(work: float, holds: Sequence[float], threads: int) -> float:
    """Rounds a second of `threads` threads that each work for `work` seconds and then take locks for `holds`."""
    queues = [0.0] * len(holds)
    rate = 0.0
    for count in range(1, threads + 1):
        stays = [hold * (1 + queue) for hold, queue in zip(holds, queues, strict=True)]
        rate = count / (work + sum(stays))
        queues = [rate * stay for stay in stays]
    return rate


def install() -> dict[str, list[TimedLock]]:
    """Let engines and the crew of workers make timed locks from now on."""
    import zephon_ft.engine.engine as engine
    import zephon_ft.runners.thread as thread

    locks: dict[str, list[TimedLock]] = {"engine": [], "crew": []}

    def shim(name: str) -> Any:
        def make() -> TimedLock:
            locks[name].append(TimedLock())
            return locks[name][-1]

        return SimpleNamespace(**{**vars(threading), "Lock": make})

    engine.threading, thread.threading = shim("engine"), shim("crew")  # type: ignore[attr-defined]
    return locks


def measured(request: Request, locks: dict[str, list[TimedLock]], seconds: float) -> dict[str, float]:
    """Per sample: microseconds of CPU, and of holding and waiting for each lock."""
    stream = side.stream(request)
    until, samples = time.perf_counter() + 2.0, 0
    while time.perf_counter() < until:
        next(stream)
    before = {name: _sums(made) for name, made in locks.items()}
    cpu, until = time.process_time(), time.perf_counter() + seconds
    while time.perf_counter() < until:
        samples += side.count(next(stream))[0]
    used = time.process_time() - cpu
    after = {name: _sums(made) for name, made in locks.items()}
    stream.close()  # type: ignore[attr-defined]
    figures = {"cpu": used / samples * 1e6}
    for name in locks:
        taken, held, waited = (b - a for a, b in zip(before[name], after[name], strict=True))
        figures |= {f"{name} taken": taken / samples}
        figures |= {f"{name} held": held / samples * 1e6, f"{name} waited": waited / samples * 1e6}
    return figures


def _sums(locks: Sequence[TimedLock]) -> tuple[float, float, float]:
    return sum(x.taken for x in locks), sum(x.held for x in locks), sum(x.waited for x in locks)


def main() -> None:
    """Command line."""
    parser = common.parser(__doc__)
    parser.add_argument("photos", help="a file of bench/photos.py")
    parser.add_argument("--tokenizer", default="", help="a tokenizer.json; default the one that is shipped")
    parser.add_argument("--mode", choices=("fetch", "full"), default="full")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    report = common.Report("locks")
    report.fact("job", f"{options.mode}, {options.workers} worker threads")
    report.begin()
    request = Request(job=Job(mode=options.mode, data=options.photos, tokenizer=options.tokenizer))
    request = replace(request, job=replace(request.job, workers=options.workers))
    locks = install()
    runs = [measured(request, locks, options.seconds) for _ in range(options.repeats)]
    for name in runs[0]:
        report.row(f"a sample: {name}", [run[name] for run in runs], "" if name.endswith("taken") else "us")
    holds = [[run["engine held"] * 1e-6, run["crew held"] * 1e-6] for run in runs]
    works = [run["cpu"] * 1e-6 - sum(hold) for run, hold in zip(runs, holds, strict=True)]
    for threads in THREADS:
        speeds = [
            throughput(work, hold, threads) / throughput(work, hold, 1) for work, hold in zip(works, holds, strict=True)
        ]
        report.row(f"by the model: speed-up of {threads} threads over one", speeds)
    report.end(options.json)


if __name__ == "__main__":
    main()
