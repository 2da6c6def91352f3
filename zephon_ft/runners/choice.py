"""Which runner to use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zephon_ft.runners.gil import gil_enabled, watch_gil
from zephon_ft.runners.inline import InlineRunner
from zephon_ft.runners.thread import ThreadRunner

if TYPE_CHECKING:
    from zephon_ft.runners.base import Runner


def default_runner() -> str:
    """What ``auto`` is: threads where they run in parallel, else processes."""
    return "process" if gil_enabled() else "thread"


def choose_runner(name: str) -> Runner:
    """The runner for an option's value. A free-threaded interpreter whose GIL is on is reported (see `gil`)."""
    if name == "auto":
        name = default_runner()
    if name == "inline":
        return InlineRunner()
    watch_gil()
    if name == "process":
        from zephon_ft.runners.process import ProcessRunner

        return ProcessRunner()
    return ThreadRunner()
