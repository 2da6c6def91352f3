"""Packages are looked at from outside: whatever their import does, a line comes back."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from zephon_ft.doctor import packages
from zephon_ft.doctor.packages import OPTIONAL, PIL_PROVIDERS, REQUIRED, pil_providers, probe

PROJECT = Path(__file__).parents[2] / "pyproject.toml"

IMPORTS = {
    "it_crashes": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "its import crashed: SIGSEGV"),
    "it_raises": ("raise ImportError('libgone.so: no such file')", "ImportError: libgone.so: no such file"),
    "it_exits": ("import os; os._exit(3)", "its import ended the process (3)"),
    "it_hangs": ("import time; time.sleep(60)", "its import took more than 1 s"),
}


@pytest.mark.parametrize("name", IMPORTS)
def test_an_import_that_fails_is_told_in_words(name, tmp_path, monkeypatch):
    code, error = IMPORTS[name]
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    assert probe(name, timeout=1.0 if name == "it_hangs" else 60.0) == {"version": None, "error": error}


def test_an_import_that_prints_is_a_good_import(tmp_path, monkeypatch):
    (tmp_path / "it_prints.py").write_text("print('hello', end=''); import atexit; atexit.register(print, 'bye')")
    monkeypatch.syspath_prepend(tmp_path)
    assert probe("it_prints") == {"version": None, "gil_turned_on_by": None}
    assert "it_prints" not in sys.modules


def test_a_package_that_is_not_installed_is_none():
    assert probe("there_is_no_such_package") is None


def test_every_package_is_looked_at_once_and_pil_when_all_others_are_done(monkeypatch):
    looked: list[str] = []
    monkeypatch.setattr(packages, "probe", lambda name: looked.append(name) or {"version": name})
    found = packages.packages(["mine", "torch", "PIL"])
    assert list(found) == [*REQUIRED, *OPTIONAL, "mine"]
    assert all(facts == {"version": name} for name, facts in found.items())
    assert sorted(looked) == sorted(found)
    assert looked[-1] == "PIL"


def test_both_providers_of_pil_are_seen(monkeypatch):
    monkeypatch.setattr(packages, "version", lambda name: "12.0")
    assert pil_providers() == ["pillow", "pillow-simd"]

    def only_simd(name: str) -> str:
        if name != "pillow-simd":
            raise PackageNotFoundError(name)
        return "12.1.1.post0"

    monkeypatch.setattr(packages, "version", only_simd)
    assert pil_providers() == ["pillow-simd"]


def test_pil_is_timed_and_its_build_is_told():
    pytest.importorskip("PIL")
    facts = probe("PIL")
    assert facts is not None
    assert facts["providers"] == pil_providers()
    assert facts["simd"] in ("AVX2", "SSE4", "none", None)
    assert facts["resize_megapixels_per_s"] > 1


def test_every_decoder_is_timed_or_says_why_not():
    pytest.importorskip("PIL")
    from zephon_ft.vision.decode import DECODERS

    found = packages.decoders()
    assert tuple(found) == DECODERS
    assert all("error" in facts or facts["decode_and_resize_megapixels_per_s"] > 1 for facts in found.values())


def test_decoders_that_cannot_be_looked_at_are_one_line(monkeypatch):
    monkeypatch.setattr(packages, "probe", lambda name: {"version": None, "error": "ImportError: no PIL"})
    assert packages.decoders() == {"all": {"error": "ImportError: no PIL"}}


def test_least_versions_are_those_of_the_project():
    project = tomllib.loads(PROJECT.read_text())["project"]

    def least(requirements: list[str]) -> dict[str, tuple[int, ...]]:
        found = [re.fullmatch(r"([\w-]+)>=([\d.]+)", requirement) for requirement in requirements]
        return {match[1]: tuple(map(int, match[2].split("."))) for match in found if match}

    extras = project["optional-dependencies"]
    assert least(project["dependencies"]) == REQUIRED
    assert least([*extras["pillow"], *extras["simd"]]) == PIL_PROVIDERS
