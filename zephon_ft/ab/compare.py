"""Comparing: check every side, then run them in turn, round by round, and put the figures together.

One machine is never quiet. So every round runs each side once, in an order that rotates, and a ratio is the median of
the ratios within the rounds: neighbours in time, so that a busy minute hits both.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from zephon_ft.ab import child
from zephon_ft.ab.equality import differences
from zephon_ft.ab.job import Job, Request
from zephon_ft.ab.machine import load, machine
from zephon_ft.ab.measure import Result
from zephon_ft.ab.sides import Side

RATE = {"fetch": "samples/s", "full": "samples/s", "text": "tokens/s"}  # what ratios are taken of
CPU = "CPU s per 1,000 samples"
SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is compared.

    Attributes:
        job: the work; its `workers` are replaced by those of the sweep.
        sides: in the order of the first round.
        workers: numbers of workers.
        rounds: how often each side runs with each number of workers.
        warmup, seconds: of each run.
        baseline: name of the side that ratios are to.
        check_data: data of the check pass for sides that are not ours: a file with the first rows alone.
    """

    job: Job
    sides: Sequence[Side]
    workers: Sequence[int] = (1,)
    rounds: int = 5
    warmup: float = 2.0
    seconds: float = 6.0
    baseline: str = ""
    check_data: str = ""


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and most of the rounds."""

    median: float
    least: float
    most: float
    values: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        return cls(statistics.median(values), min(values), max(values), list(values))


@dataclass(frozen=True, slots=True)
class Line:
    """One side at one number of workers.

    Attributes:
        side, workers: which.
        figures: by name, see `figures`.
        ratio, cpu_ratio: of its rate to the baseline's, and of the baseline's CPU time for a sample to its own.
        shares, cpu_shares: the same two ratios to its bare loops, by name: how much of what the work allows it reaches.
    """

    side: str
    workers: int
    figures: dict[str, Spread]
    ratio: Spread
    cpu_ratio: Spread
    shares: dict[str, Spread]
    cpu_shares: dict[str, Spread]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a comparison found; `asdict` of it is the JSON.

    Attributes:
        schema: version of this layout.
        mode, job: what was done.
        machine, load: where, and its load average before and after.
        rounds, warmup, seconds, baseline: how.
        sides: by name: runner, decode, python, gil, versions, note.
        checked: sides that were checked.
        differences: what the check found; empty where all agree.
        identical: whether the pixels of all checked sides are the same bytes.
        lines: the figures.
        data: what `photographs.describe` says of the data; empty for a user's own.
    """

    schema: int
    mode: str
    job: dict[str, Any]
    machine: str
    load: tuple[float, float]
    rounds: int
    warmup: float
    seconds: float
    baseline: str
    sides: dict[str, dict[str, Any]]
    checked: list[str]
    differences: list[str]
    identical: bool
    lines: list[Line]
    data: dict[str, Any] = field(default_factory=dict)


def compare(plan: Plan, say: Callable[[str], None] = lambda text: None) -> Report:
    """Check, run, and report. Sides that differ are reported, and run nevertheless.

    Args:
        plan: what to compare.
        say: told what is being done.

    Raises:
        PipelineError: a side failed.
    """
    before = load()
    checks = check(plan, say)
    found = differences(checks, frozenset(side.name for side in plan.sides if side.ours))
    for text in found:
        say(f"DIFFERENT: {text}")
    runs = measure_all(plan, say)
    last = {name: result for (name, _), results in runs.items() for result, _ in results}
    return Report(
        schema=SCHEMA,
        mode=plan.job.mode,
        job=asdict(plan.job),
        machine=machine(),
        load=(before, load()),
        rounds=plan.rounds,
        warmup=plan.warmup,
        seconds=plan.seconds,
        baseline=plan.baseline,
        sides={side.name: _facts(side, last[side.name], checks) for side in plan.sides},
        checked=list(checks),
        differences=found,
        identical=len({(result.check or {}).get("pixel_digest") for result in checks.values()}) == 1,
        lines=_lines(plan, runs),
    )


def check(plan: Plan, say: Callable[[str], None] = lambda text: None) -> dict[str, Result]:
    """The check pass of every side that delivers anything, with the most workers of the sweep."""
    results = {}
    for side in plan.sides:
        if not side.bare:
            say(f"checking {side.name}")
            request = _request(plan, side, max(plan.workers)).check()
            if not side.ours and plan.check_data:
                request = replace(request, job=replace(request.job, data=plan.check_data))
            results[side.name] = child.run(side, request)[0]
    return results


Runs = dict[tuple[str, int], list[tuple[Result, int]]]


def measure_all(plan: Plan, say: Callable[[str], None] = lambda text: None) -> Runs:
    """(result, peak memory) of every round, by side and workers."""
    turns = [(side, workers) for workers in plan.workers for side in plan.sides]
    runs: Runs = {(side.name, workers): [] for side, workers in turns}
    for number in range(plan.rounds):
        first = number % len(turns)
        for side, workers in turns[first:] + turns[:first]:
            say(f"round {number + 1} of {plan.rounds}: {side.name}, {workers} workers")
            runs[side.name, workers].append(child.run(side, _request(plan, side, workers)))
    return runs


def figures(result: Result, peak: int) -> dict[str, float]:
    """One run's figures by name; rates are of the window."""
    return {
        "samples/s": result.samples / result.wall_s,
        "images/s": result.images / result.wall_s,
        "tokens/s": result.tokens / result.wall_s,
        CPU: result.cpu_s / result.samples * 1e3 if result.samples else 0.0,
        "peak memory MB": peak / 1e6,
        "first s": result.first_s,
        "faults per image": result.minor_faults / (result.images or result.samples or 1),
        "drift": result.drift,
    }


def _request(plan: Plan, side: Side, workers: int) -> Request:
    scaled = plan.job.scaled_decode if side.scaled_decode is None else side.scaled_decode
    return Request(
        job=replace(plan.job, workers=workers, scaled_decode=scaled),
        side=side.bare or side.name,
        runner=side.runner or "thread",
        decode=side.decode,
        warmup=plan.warmup,
        seconds=plan.seconds,
    )


def _lines(plan: Plan, runs: Runs) -> list[Line]:
    rate = RATE[plan.job.mode]
    told = {place: [figures(*run) for run in results] for place, results in runs.items()}
    lines = []
    for workers in plan.workers:
        base = told[plan.baseline, workers]
        for side in plan.sides:
            mine = told[side.name, workers]
            spreads = {name: Spread.of([run[name] for run in mine]) for name in mine[0]}
            loops = {name: told[name, workers] for name in side.against}
            lines.append(
                Line(
                    side=side.name,
                    workers=workers,
                    figures=spreads,
                    ratio=_ratio(mine, base, rate),
                    cpu_ratio=_ratio(base, mine, CPU),
                    shares={name: _ratio(mine, loop, rate) for name, loop in loops.items()},
                    cpu_shares={name: _ratio(loop, mine, CPU) for name, loop in loops.items()},
                )
            )
    return lines


def _ratio(over: Sequence[dict[str, float]], under: Sequence[dict[str, float]], name: str) -> Spread:
    return Spread.of([a[name] / b[name] if b[name] else float("nan") for a, b in zip(over, under, strict=True)])


def _facts(side: Side, result: Result, checks: dict[str, Result]) -> dict[str, Any]:
    note = result.note or (checks[side.name].note if side.name in checks else "")
    facts = {name: getattr(result, name) for name in ("runner", "decode", "python", "gil", "versions")}
    return {**facts, "note": note, "bare": bool(side.bare)}
