"""Which runner to use, and which there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zephon_ft.runners.gil import gil_enabled, watch_gil
from zephon_ft.runners.inline import InlineRunner
from zephon_ft.runners.thread import ThreadRunner

if TYPE_CHECKING:
    from zephon_ft.runners.base import Runner


def _process_runner() -> Runner:
    from zephon_ft.runners.process import ProcessRunner

    return ProcessRunner()


# By the name that `options(runner=...)` takes. Add your own here; see `base`.
RUNNERS: dict[str, Callable[[], Runner]] = {
    "inline": InlineRunner,
    "thread": ThreadRunner,
    "process": _process_runner,
}


def default_runner() -> str:
    """What ``auto`` is: threads where they run in parallel, else processes."""
    return "process" if gil_enabled() else "thread"


def choose_runner(name: str) -> Runner:
    """A new runner for an option's value. A free-threaded interpreter whose GIL is on is reported (see `gil`)."""
    if name == "auto":
        name = default_runner()
    if name != "inline":
        watch_gil()
    return RUNNERS[name]()
