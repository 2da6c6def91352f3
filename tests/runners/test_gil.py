"""The GIL of a free-threaded interpreter that comes on is reported once, with the module that turned it on."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import zephon_ft
from zephon_ft.runners import gil
from zephon_ft.runners.choice import choose_runner

free_threaded = pytest.mark.skipif(not gil.FREE_THREADED, reason="needs a free-threaded interpreter")

# Python's own test suite has a module that does not declare that it runs without the GIL.
UNDECLARED = "_testmultiphase_null_slots"
LOAD = f"""
import importlib.machinery, importlib.util, sys
def load():
    file = importlib.util.find_spec("_testmultiphase").origin
    loader = importlib.machinery.ExtensionFileLoader("{UNDECLARED}", file)
    spec = importlib.util.spec_from_file_location("{UNDECLARED}", file, loader=loader)
    sys.modules["{UNDECLARED}"] = importlib.util.module_from_spec(spec)
"""
RUN = """
import logging, time
logging.basicConfig(format="%(levelname)s %(message)s")
from zephon_ft import Dataset, Pipeline, StaticMixtureWorkSource
def run(middle=lambda: None):
    source = StaticMixtureWorkSource([Dataset.from_rows("d", [{"n": n} for n in range(100)])])
    pipeline = Pipeline(source, 2).map(lambda row: row).batch(4)
    with iter(pipeline.options(runner="thread", workers=2, prefetch=2)) as stream:
        for number, _ in enumerate(stream):
            if number == 5:
                middle()
            if number == 60:
                break
    time.sleep(0.5)  # a look in the middle of an import is repeated
"""
needs_undeclared = pytest.mark.skipif(
    not gil.FREE_THREADED or importlib.util.find_spec("_testmultiphase") is None,
    reason="needs a free-threaded interpreter with the modules of its test suite",
)


def python(script: str, *flags: str, **variables: str) -> str:
    """What a script logs and prints, under an interpreter without the settings of this one."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHON_GIL", "PYTHONWARNINGS")}
    root = str(Path(zephon_ft.__file__).parents[1])
    ran = subprocess.run(
        [sys.executable, *flags, "-c", script],
        env={**inherited, "PYTHONPATH": root, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr


@needs_undeclared
@pytest.mark.parametrize("warnings", ["default", "ignore", "always"])
def test_a_module_that_turns_the_gil_on_in_the_middle_of_a_run_is_named_once(warnings):
    said = python(f"{LOAD}{RUN}\nrun(load)\nsys.stderr.write('run again')\nrun()", "-W", warnings)
    assert said.count("WARNING") == 1
    assert f"it was turned on by '{UNDECLARED}'. Start Python with PYTHON_GIL=0" in said.split("run again")[0]


@needs_undeclared
def test_a_module_that_was_imported_before_is_named():
    assert f"it was turned on by '{UNDECLARED}'" in python(f"{LOAD}load()\n{RUN}\nrun()")


@pytest.mark.skipif(
    not gil.FREE_THREADED or importlib.util.find_spec("triton") is None, reason="needs triton, free-threaded"
)
def test_triton_is_named_if_it_turns_the_gil_on():
    said = python(f"{RUN}\nimport sys\ndef middle():\n    import triton\nrun(middle)\nprint(sys._is_gil_enabled())")
    assert ("it was turned on by 'triton._C.libtriton'" in said) == ("\nTrue" in f"\n{said}")


@needs_undeclared
@pytest.mark.parametrize(("setting", "who"), [("0", None), ("1", "PYTHON_GIL=1 or -X gil=1")])
def test_what_the_user_has_decided_is_not_reported(setting, who):
    script = f"{LOAD}{RUN}\nrun(load)\nfrom zephon_ft.runners import gil\nprint(gil.turned_on_by())"
    said = python(script, PYTHON_GIL=setting)
    assert "WARNING" not in said
    assert said.strip().endswith(str(who))


@pytest.mark.skipif(gil.FREE_THREADED, reason="needs an interpreter that always has the GIL")
def test_an_interpreter_that_always_has_the_gil_is_not_reported(caplog):
    gil.watch_gil()
    assert gil.turned_on_by() is None
    assert not caplog.records


@free_threaded
def test_declarations_of_this_interpreter_can_be_read():
    assert gil._undeclared(gil._extensions()) is not None


@pytest.fixture
def turned_on(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes this a free-threaded interpreter whose GIL is on, with such modules."""

    def make(undeclared: list[str] | None, on: Callable[[], bool] = lambda: True) -> None:
        changed = {"FREE_THREADED": True, "FORCED": False, "_enabled": on, "_warned_of": lambda: None}
        changed |= {"_undeclared": lambda extensions: undeclared, "_watched": threading.Lock(), "_PAUSE": 0.01}
        for name, value in changed.items():
            monkeypatch.setattr(gil, name, value)

    return make


@pytest.mark.parametrize(("runner", "reports"), [("thread", True), ("process", True), ("inline", False)])
def test_it_is_reported_at_the_start_where_more_than_one_worker_runs(runner, reports, turned_on, caplog):
    turned_on(["culprit", "found it on"])
    choose_runner(runner)
    assert ("turned on by 'culprit'." in caplog.text) == reports


def wait_for_the_looks() -> None:
    for thread in threading.enumerate():
        if thread.name == "zephon_ft gil":
            thread.join(10)


def test_an_import_that_turns_it_on_for_a_moment_is_not_reported_and_the_watch_goes_on(turned_on, caplog):
    looks = iter([True, True, False])
    turned_on([], on=lambda: next(looks, True))
    gil.watch_gil()
    wait_for_the_looks()
    assert not caplog.records
    assert not gil._watched.locked()
    turned_on(["culprit"])
    gil.watch_gil()
    assert "'culprit'" in caplog.text


def test_what_stays_on_without_a_name_is_reported_in_the_end(turned_on, monkeypatch, caplog):
    turned_on([])
    monkeypatch.setattr(gil, "_PATIENCE", 0.05)
    for _ in range(3):
        gil.watch_gil()
        wait_for_the_looks()
    assert len(caplog.records) == 1
    assert "turned on by an extension module that cannot be told any more" in caplog.text


def test_where_declarations_cannot_be_read_the_newest_modules_of_others_are_candidates(turned_on, monkeypatch):
    turned_on(None)
    monkeypatch.setattr(gil, "_extensions", lambda: dict.fromkeys(["_json", *"abcdef", "math"]))
    assert gil.turned_on_by() == "one of 'f', 'e', 'd', 'c', 'b', ..."
    monkeypatch.setattr(gil, "_extensions", lambda: dict.fromkeys(["a", "math"]))
    assert gil.turned_on_by() == "one of 'a'"


def test_extensions_are_found_without_touching_lazy_stand_ins(monkeypatch):
    class Lazy:
        def __getattribute__(self, name):
            raise AssertionError(f"asked for {name}")

    monkeypatch.setitem(sys.modules, "a_lazy_stand_in", Lazy())
    assert any(name.startswith("numpy.") for name in gil._extensions())
