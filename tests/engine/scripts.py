"""Small programs that are run in an interpreter of their own, to see how it ends."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]

HEAD = """
import os, signal, sys, threading, time
from zephon_ft import Dataset, Pipeline, StaticMixtureWorkSource

def nap(row):
    time.sleep(row["sleep"])
    return row

def stream(sleep=0.0, runner="thread", **options):
    rows = [{"n": n, "sleep": sleep} for n in range(200)]
    source = StaticMixtureWorkSource([Dataset.from_rows("d", rows)])
    pipe = Pipeline(source, 2, flush_every=9).map(nap).shuffle(5).batch(2)
    return iter(pipe.options(runner=runner, workers=2, **options))

def until_busy():
    time.sleep(0.2)
"""


def start(body: str) -> subprocess.Popen[str]:
    """A program on its way; its output is captured."""
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + body],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def run(body: str, timeout: float = 30) -> tuple[int, str, str, float]:
    """Exit status, stdout, stderr and the seconds between the line ``leaving`` and the end."""
    program = start(body)
    try:
        assert program.stdout is not None
        lines = []
        for line in program.stdout:
            lines.append(line)
            if line.strip() == "leaving":
                break
        left = time.monotonic()
        out, err = program.communicate(timeout=timeout)
        return program.returncode, "".join(lines) + out, err, time.monotonic() - left
    finally:
        program.kill()
        program.wait()
