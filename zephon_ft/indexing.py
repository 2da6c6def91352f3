"""index: write the lengths of all rows beside the data, so that planning and replay read no payload."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from zephon_ft.engine.costs import Part, build
from zephon_ft.engine.events import Bundle
from zephon_ft.engine.work import WorkerState, run_rows
from zephon_ft.pipeline import Pipeline


def index(pipeline: Pipeline, progress: Callable[[int], None] = lambda rows: None) -> int:
    """Index the data files of a pipeline that have no index for its operators yet.

    Args:
        pipeline: its operators up to the first stateful one are run on every row, on its `workers` threads.
        progress: called with the number of rows done since the last call.

    Returns:
        how many files were indexed.

    Raises:
        ConfigError: lengths alone do not decide this pipeline's plan (a random function, a user's accumulator, ...).
        PipelineError: a bad row, where `on_error` is "raise".
    """
    plan, own = pipeline.plan(), threading.local()

    def run_part(part: Part) -> Bundle:
        if not hasattr(own, "state"):
            own.state = WorkerState(plan)
        return run_rows(own.state, *part)

    with ThreadPoolExecutor(pipeline.resolved_options.resolved_workers()) as pool:

        def run(parts: Iterable[Part]) -> Iterator[Bundle]:
            return pool.map(run_part, parts)

        return build(plan, run, progress)
