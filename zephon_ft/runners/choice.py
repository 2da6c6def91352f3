"""Which runner to use, and whether the interpreter lets threads run in parallel."""

from __future__ import annotations

import logging
import sys
import sysconfig
from typing import TYPE_CHECKING

from zephon_ft.runners.inline import InlineRunner
from zephon_ft.runners.thread import ThreadRunner

if TYPE_CHECKING:
    from zephon_ft.runners.base import Runner

logger = logging.getLogger("zephon_ft")
_warned = False


def gil_enabled() -> bool:
    """Whether only one thread runs Python code at a time now."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()


def default_runner() -> str:
    """What ``auto`` is: threads where they run in parallel, else processes."""
    return "process" if gil_enabled() else "thread"


def choose_runner(name: str) -> Runner:
    """The runner for an option's value.

    A free-threaded interpreter whose GIL an extension has turned back on is reported once, with the remedy.
    """
    global _warned
    if name == "auto":
        name = default_runner()
    if name == "inline":
        return InlineRunner()
    if sysconfig.get_config_var("Py_GIL_DISABLED") and gil_enabled() and not _warned:
        _warned = True
        logger.warning(
            "this is a free-threaded Python, but an imported extension turned the GIL back on, so threads take turns. "
            "Run with PYTHON_GIL=0 to keep it off; python -W default names the module at its import."
        )
    if name == "process":
        from zephon_ft.runners.process import ProcessRunner

        return ProcessRunner()
    return ThreadRunner()
