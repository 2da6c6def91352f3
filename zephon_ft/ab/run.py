"""What `zephon-ft bench` does: make the data, compare in each mode, print, write JSON and a picture."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import zephon_ft.ab.documents
import zephon_ft.ab.photographs
from zephon_ft.ab.compare import Plan, Report, compare
from zephon_ft.ab.documents import READING, Documents, documents
from zephon_ft.ab.job import CHECK_ROWS, MODES, PHOTOGRAPHS, Job
from zephon_ft.ab.photographs import PHONE, Photographs, photographs
from zephon_ft.ab.recipe import possible_modes
from zephon_ft.ab.sides import Side, distinct, external_side, our_sides
from zephon_ft.ab.table import table
from zephon_ft.engine.options import available_cores
from zephon_ft.errors import ConfigError
from zephon_ft.text.tokenizer import demo_tokenizer_path

_START = 3.0  # seconds that a process takes to start, about


def run(options: argparse.Namespace, peers: Sequence[Side] = ()) -> int:
    """Run the command.

    Args:
        options: see `options.add_options`.
        peers: further sides.

    Returns:
        exit status: 0, or 1 where sides delivered different data.

    Raises:
        ZephonError: options or data that cannot be used, or a side that failed.
    """
    workers = _counts(options.workers)
    tokenizer = options.tokenizer or str(demo_tokenizer_path())
    data = _given(options) if options.data is not None else _built_in(options, tokenizer)
    external = [*map(external_side, options.side), *peers]
    reports: list[Report] = []
    with tempfile.TemporaryDirectory() as folder:
        for mode, (path, facts, how) in data.items():
            first = _first_rows(path, Path(folder)) if external else ""
            ours = our_sides(_names(options.runners), _names(options.python), mode=mode, bare=options.share_of_bare)
            sides = distinct([*ours, *external])
            plan = Plan(
                job=_job(options, mode, path, tokenizer, how),
                sides=sides,
                workers=workers,
                rounds=options.rounds,
                warmup=options.warmup,
                seconds=options.seconds,
                baseline=_baseline(options.baseline, sides),
                check_data=first,
            )
            _say(f"{mode}: {', '.join(side.name for side in sides)}; about {_minutes(plan)}")
            reports.append(replace(compare(plan, _say), data=facts))
            _say("")
            print(table(reports[-1]), end="\n\n", flush=True)
    _write(options, reports)
    return int(any(report.differences for report in reports))


_Data = dict[str, tuple[str, dict[str, Any], dict[str, Any]]]  # by mode: path, facts, and how it is read


def _built_in(options: argparse.Namespace, tokenizer: str) -> _Data:
    """Photographs, and documents for the text job."""
    modes = _modes(options.mode, "", MODES)
    data: _Data = {}
    if modes != ["text"]:
        what = replace(PHONE, rows=min(options.rows, PHONE.rows)) if options.phone else Photographs(rows=options.rows)
        _say("making the photographs, unless they are there")
        made = photographs(what, tokenizer, options.out)
        told = {"data": made.name, **zephon_ft.ab.photographs.describe(made, tokenizer)}
        data = {mode: (str(made), told, PHOTOGRAPHS) for mode in modes if mode != "text"}
    if "text" in modes:
        _say("making the documents, unless they are there")
        made = documents(Documents(), tokenizer, options.out)
        told = {"data": made.name, **zephon_ft.ab.documents.describe(made, tokenizer)}
        data["text"] = (str(made), told, READING)
    return {mode: data[mode] for mode in modes}


def _given(options: argparse.Namespace) -> _Data:
    """The user's own data, in every mode that they have something for."""
    from zephon_ft.demo.reading import understand
    from zephon_ft.io.dataset import Dataset

    dataset = Dataset.from_path("data", options.data)
    found = understand(dataset)
    facts = {"data": f"{options.data}: {dataset.rows:,} rows of {dataset.format}", "reading": found.describe()}
    how = asdict(found)
    return dict.fromkeys(_modes(options.mode, options.data, possible_modes(how)), (options.data, facts, how))


def _job(options: argparse.Namespace, mode: str, path: str, tokenizer: str, how: dict[str, Any]) -> Job:
    return Job(
        mode=mode,
        data=str(Path(path).resolve()) if Path(path).exists() else path,
        tokenizer=str(Path(tokenizer).resolve()),
        size=options.size,
        max_pixels=options.max_pixels,
        scaled_decode=options.scaled_decode,
        decoder=options.decoder,
        lanes=options.lanes,
        pack_length=options.max_length,
        batch=options.batch,
        seed=options.seed,
        reading=how,
    )


def _first_rows(path: str, folder: Path) -> str:
    """A file with the rows of the check pass alone, for sides that have no way to stop there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.endswith(".parquet") or not Path(path).is_file():
        raise ConfigError(f"{path}: sides that are not ours are given one Parquet file; this is none")
    with pq.ParquetFile(path) as file:
        rows = pa.Table.from_batches([next(file.iter_batches(batch_size=CHECK_ROWS))])
    pq.write_table(rows, folder / "first-rows.parquet", compression="none")
    return str(folder / "first-rows.parquet")


def _baseline(name: str, sides: Sequence[Side]) -> str:
    names = [side.name for side in sides]
    if not names:
        raise ConfigError("no side is left to measure; name --runners, --side or --peers")
    if name and name not in names:
        raise ConfigError(f"--baseline: there is no side {name!r}; the sides are {', '.join(names)}")
    return name or names[0]


def _write(options: argparse.Namespace, reports: Sequence[Report]) -> None:
    try:
        if options.json is not None:
            options.json.write_text(json.dumps([asdict(report) for report in reports], indent=1) + "\n")
        if options.plot is not None:
            from zephon_ft.ab.plot import draw

            draw(reports).save(options.plot)
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename}: {error.strerror or error}") from error


def _minutes(plan: Plan) -> str:
    runs = len(plan.sides) * len(plan.workers) * plan.rounds
    checks = sum(not side.bare for side in plan.sides)
    return f"{(runs * (plan.warmup + plan.seconds + _START) + checks * 2 * _START) / 60:.1f} minutes"


def _say(text: str) -> None:
    """Progress, on one line of a terminal; in a file only what is different is worth a line."""
    if sys.stderr.isatty():
        end = "\n" if text.startswith("DIFFERENT") else ""
        print(f"\r\033[K{text}", end=end, file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _modes(text: str | None, path: str, possible: Sequence[str]) -> list[str]:
    names = list(possible) if text is None else _names(text)
    for name in names:
        if name not in MODES:
            raise ConfigError(f"--mode: {name!r} is none of {', '.join(MODES)}")
        if name not in possible:
            raise ConfigError(f"--mode {name}: {path} has nothing for it; it has for {', '.join(possible)}")
    return names


def _counts(text: str) -> list[int]:
    try:
        counts = [int(part) for part in _names(text)] or [available_cores()]
    except ValueError:
        counts = [0]
    if min(counts) < 1:
        raise ConfigError(f"--workers {text}: write whole numbers above 0, e.g. 1,2")
    return counts
