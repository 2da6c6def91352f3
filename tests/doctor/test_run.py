"""`zephon-ft doctor`: exit status, JSON, and a report whatever is missing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from zephon_ft.cli import main
from zephon_ft.doctor import machine, run


@pytest.fixture
def few_packages(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Only numpy is looked at, and is fine."""
    found: dict[str, Any] = {"numpy": {"version": "2.1.0", "gil_turned_on_by": None}}
    monkeypatch.setattr(run, "packages", lambda more: {**found, **dict.fromkeys(more)})
    monkeypatch.setattr(run, "decoders", lambda: {"torch": {"error": "ImportError: no PIL"}})
    monkeypatch.setattr(run, "pil_providers", lambda: [])
    return found


def test_json_holds_all_facts_and_findings(few_packages, capsys):
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {"facts", "findings"}
    assert report["facts"]["packages"] == few_packages
    assert report["facts"]["machine"]["cores"] >= 1
    assert all(set(finding) == {"kind", "problem", "command"} for finding in report["findings"])


def test_the_status_is_1_only_if_something_is_broken(few_packages, capsys):
    few_packages["triton"] = {"version": "3.9", "gil_turned_on_by": "'triton._C.libtriton'"}
    assert main(["doctor"]) == 0
    assert "slow: import triton" in capsys.readouterr().out
    few_packages["torch"] = {"version": "2.10.0", "error": "its import crashed: SIGSEGV"}
    assert main(["doctor"]) == 1
    assert "broken: torch cannot be imported: its import crashed: SIGSEGV" in capsys.readouterr().out


def test_a_module_of_the_user_is_looked_at_too(few_packages, capsys):
    assert main(["doctor", "--import", "my_module"]) == 1
    said = capsys.readouterr().out
    assert "  my_module " in said
    assert "broken: there is no module my_module" in said


@pytest.mark.parametrize("section", ["interpreter", "machine", "processes"])
def test_a_probe_that_fails_is_one_line(section, few_packages, monkeypatch, capsys):
    def fail() -> dict[str, Any]:
        raise OSError("no such thing here")

    monkeypatch.setattr(machine, section, fail)
    assert main(["doctor"]) == 0
    assert "OSError: no such thing here" in capsys.readouterr().out


def test_a_machine_without_proc_and_sys_has_fewer_facts(tmp_path):
    facts = machine.machine(tmp_path)
    assert facts["cores"] >= 1
    assert facts["memory_bytes"] is None
    assert facts["cpu_simd"] is None
    assert facts["transparent_huge_pages"] is None


def test_facts_of_the_machine_are_read_from_its_files(tmp_path):
    files = {
        "proc/cpuinfo": "model name\t: A CPU\nflags\t\t: fpu sse4_2 avx avx2\n",
        "proc/meminfo": "MemTotal:        1048576 kB\nMemFree: 1 kB\n",
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/cpu.max": "250000 100000\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    facts = machine.machine(tmp_path)
    assert (facts["cpu"], facts["cpu_simd"]) == ("A CPU", "avx2")
    assert (facts["memory_bytes"], facts["cores_by_cgroup"]) == (1 << 30, 2.5)
    assert facts["transparent_huge_pages"] == "madvise"


def test_the_settings_are_those_of_the_environment(monkeypatch):
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    facts = machine.settings()
    assert facts["MALLOC_ARENA_MAX"] == "2"
    assert facts["OMP_NUM_THREADS"] is None
