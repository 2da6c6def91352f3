"""Which runner an option's value stands for."""

from __future__ import annotations

import importlib

import pytest

from zephon_ft.runners import choice
from zephon_ft.runners.inline import InlineRunner
from zephon_ft.runners.process import ProcessRunner
from zephon_ft.runners.thread import ThreadRunner


@pytest.mark.parametrize(("gil", "expected"), [(False, ThreadRunner), (True, ProcessRunner)])
def test_auto_is_threads_without_a_gil_and_processes_with_one(gil, expected, monkeypatch):
    real = importlib.util.find_spec("zephon_ft.runners.choice")
    assert real is not None
    assert real.loader is not None
    fresh = importlib.util.module_from_spec(real)  # the suite has another default
    real.loader.exec_module(fresh)
    monkeypatch.setattr(fresh, "gil_enabled", lambda: gil)
    assert type(fresh.choose_runner("auto")) is expected


def test_a_named_runner_is_that_runner():
    named = {"inline": InlineRunner, "thread": ThreadRunner, "process": ProcessRunner}
    assert {name: type(choice.choose_runner(name)) for name in named} == named
