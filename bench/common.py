"""What all benchmarks share: facts of the environment, interleaved repetitions, medians with their spread, output.

One machine is never quiet. So every comparison alternates its sides (A B A B ...), in one process or in processes of
their own, and reports the median of each side, the spread, and the median of the ratios of neighbouring runs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the checkout's own package, installed or not

from zephon_ft.ab.machine import machine  # noqa: E402

PACKAGES = (
    "zephon-ft",
    "zephon",
    "numpy",
    "torch",
    "pillow",
    "pillow-simd",
    "pyarrow",
    "tokenizers",
    "orjson",
    "leanjpeg-simple",
    "kornia-rs",
)


def parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that every script has: ``--json FILE`` and ``--repeats N``."""
    made = argparse.ArgumentParser(description=(description or "").split("\n\n")[0])
    made.add_argument("--json", metavar="FILE", help="write figures and environment there; - prints them")
    made.add_argument("--repeats", type=int, default=5, help="interleaved repetitions of each side (default 5)")
    return made


def environment() -> dict[str, Any]:
    """Interpreter, GIL state, cores, load and versions: what a figure depends on."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "python": platform.python_version() + ("t" if not gil_enabled() else ""),
        "gil": gil_enabled(),
        "machine": machine(),
        "load": load,
        "versions": versions,
    }


def gil_enabled() -> bool:
    """Whether only one thread runs Python code at a time now."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()


Figures = dict[str, float]


def interleave(sides: Mapping[str, Callable[[], Mapping[str, float]]], repeats: int) -> dict[str, list[Figures]]:
    """Run every side in turn, `repeats` times; the side that begins changes from round to round.

    Returns:
        the results of each side, in order of the rounds.
    """
    names = list(sides)
    results: dict[str, list[Figures]] = {name: [] for name in names}
    for number in range(repeats):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            results[name].append(dict(sides[name]()))
    return results


def middle(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


def spread(values: Sequence[float]) -> str:
    """``median (least to most)``."""
    return f"{_digits(middle(values))} ({_digits(min(values))} to {_digits(max(values))})"


def ratios(results: Mapping[str, Sequence[Mapping[str, float]]], over: str, under: str, key: str) -> list[float]:
    """`over` / `under` of one figure, round by round: neighbours in time, so that a busy minute hits both."""
    return [a[key] / b[key] for a, b in zip(results[over], results[under], strict=True) if b[key]]


class Clock:
    """Seconds by the wall and of the process's CPU since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        """(wall seconds, CPU seconds of all threads)."""
        return time.perf_counter() - self._wall, time.process_time() - self._cpu


def child(python: str, script: str, *arguments: str, timeout: float = 600) -> dict[str, Any]:
    """Run a script of this folder under another interpreter; it prints one JSON object as its last line.

    Raises:
        RuntimeError: it failed; with the end of what it wrote.
    """
    command = [python, "-W", "ignore", str(Path(__file__).parent / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().rsplit("\n", 1)[-1])


def status(name: str) -> int:
    """A figure of /proc/self/status: bytes for memory (``VmRSS``, ``VmHWM``), else a count (``Threads``)."""
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(name + ":"):
                words = line.split()
                return int(words[1]) * (1024 if words[-1] == "kB" else 1)
    raise KeyError(name)


class Report:
    """Figures against their targets: printed as a table, written as JSON."""

    def __init__(self, name: str) -> None:
        self.name, self.environment = name, environment()
        self.facts: dict[str, Any] = {}
        self.rows: list[dict[str, Any]] = []

    def fact(self, name: str, value: Any) -> None:
        """Something that describes the run."""
        self.facts[name] = value

    def row(
        self, figure: str, values: Sequence[float], unit: str = "", target: str = "", met: bool | None = None
    ) -> None:
        """One figure: its repetitions, its target in words, and whether the median meets it (None: only reported)."""
        row = {"figure": figure, "median": middle(values), "values": list(values), "unit": unit}
        self.rows.append({**row, "target": target, "met": met})
        mark = {True: "met", False: "MISSED", None: ""}[met]
        print(f"  {figure:<58} {spread(values):>34} {unit:<10} {target:<12} {mark}", flush=True)

    def begin(self) -> None:
        """Print what the figures depend on."""
        e = self.environment
        versions = ", ".join(f"{name} {number}" for name, number in e["versions"].items())
        gil = "on" if e["gil"] else "off"
        print(f"{self.name}: Python {e['python']}, GIL {gil}, {e['machine']}")
        print(f"  load {e['load']:.2f}; {versions}" if e["load"] is not None else f"  {versions}")
        for name, value in self.facts.items():
            print(f"  {name}: {value}")
        sys.stdout.flush()

    def end(self, path: str | None) -> None:
        """Write the JSON where `path` says."""
        self.environment["load_at_end"] = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        if path is None:
            return
        everything = {"name": self.name, "environment": self.environment, "facts": self.facts, "rows": self.rows}
        content = json.dumps(everything)
        if path == "-":
            print(content)
        else:
            Path(path).write_text(content + "\n")


def _digits(value: float) -> str:
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.1f}"
