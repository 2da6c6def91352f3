"""Each thing that is broken or slow is one finding with its command; a healthy environment has none."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from zephon_ft.doctor.findings import Finding, findings
from zephon_ft.runners.environment import TUNABLES

PIL = {"version": "12.1.1.post0", "gil_turned_on_by": None, "libjpeg": "libjpeg-turbo 3.2.0", "simd": "AVX2"}
OWN = "zephon_ft's own, AVX2"
HEALTHY: dict[str, Any] = {
    "zephon_ft_source": "zephon-ft",
    "interpreter": {
        "version": "3.14.7",
        "executable": "ENV/bin/python",
        "free_threaded_build": True,
        "debug_build": False,
        "gil": False,
        "gil_setting": None,
        "gil_turned_on_by": None,
        "default_runner": "thread",
        "python3.14t": None,
        "uv": "uv",
    },
    "machine": {
        "c_compiler": "/bin/cc",
        "cpu_simd": "avx2",
        "cores_by_cgroup": None,
        "default_workers": 8,
        "libc": "glibc 2.36",
    },
    "processes": {"unix_sockets": True},
    "settings": {"TOKENIZERS_PARALLELISM": None, "GLIBC_TUNABLES": TUNABLES},
    "pil_providers": ["pillow-simd"],
    "packages": {
        "numpy": {"version": "2.1.0", "gil_turned_on_by": None},
        "torch": {"version": "2.10.0+cpu", "gil_turned_on_by": None},
        "PIL": {**PIL, "providers": ["pillow-simd"], "resize_megapixels_per_s": 1600.0},
        "leanjpeg_simple": None,
        "triton": None,
    },
    "decoders": {
        "torch": {"jpeg": "leanjpeg-simple 0.1.0", "resize": OWN, "decode_and_resize_megapixels_per_s": 350.0},
        "pillow": {"jpeg": "pillow", "resize": "pillow", "decode_and_resize_megapixels_per_s": 300.0},
    },
}


def changed(**changes: Any) -> list[Finding]:
    """Findings of a healthy environment with some facts changed: ``section__fact=value`` or ``section=value``."""
    facts = copy.deepcopy(HEALTHY)
    for place, value in changes.items():
        section, _, fact = place.partition("__")
        if not fact:
            facts[section] = value
        elif section == "PIL":
            facts["packages"]["PIL"][fact] = value
        else:
            facts[section][fact] = value
    return findings(facts)


def only(**changes: Any) -> Finding:
    found = changed(**changes)
    assert len(found) == 1, found
    return found[0]


def test_a_healthy_environment_has_no_findings():
    assert changed() == []


def test_two_providers_of_pil_are_broken_and_both_are_removed():
    finding = only(pil_providers=["pillow", "pillow-simd"])
    assert finding.kind == "broken"
    assert finding.command == (
        "uv pip uninstall -p ENV/bin/python pillow pillow-simd && uv pip install -p ENV/bin/python pillow"
    )


NO_TORCH = {"torch": {"error": "no torch"}, "pillow": HEALTHY["decoders"]["pillow"]}


@pytest.mark.parametrize(("simd", "cpu"), [("none", "avx2"), ("none", "avx512bw"), ("SSE4", "avx2")])
def test_pil_below_the_vector_level_of_the_cpu_is_slow_where_it_decodes(simd, cpu):
    finding = only(PIL__simd=simd, machine__cpu_simd=cpu, decoders=NO_TORCH)
    assert finding.kind == "slow"
    assert 'CC="cc -mavx2" uv pip install' in finding.command
    assert "--no-binary pillow-simd" in finding.command
    assert changed(PIL__simd=simd, machine__cpu_simd=cpu) == []


@pytest.mark.parametrize(("simd", "cpu"), [("SSE4", "sse4_2"), ("AVX2", "avx512bw"), (None, "avx2"), ("none", None)])
def test_pil_at_the_vector_level_of_the_cpu_is_fine(simd, cpu):
    assert changed(PIL__simd=simd, machine__cpu_simd=cpu, decoders=NO_TORCH) == []


def test_a_cpu_without_avx2_gets_no_build_that_it_cannot_run():
    assert "mavx2" not in only(PIL__simd="none", machine__cpu_simd="sse4_2", decoders=NO_TORCH).command


def test_a_default_decoder_that_another_one_beats_is_slow():
    fast = {"jpeg": "pillow", "resize": "pillow", "decode_and_resize_megapixels_per_s": 500.0}
    assert only(decoders__pillow=fast).command == "pipeline.images(..., decoder='pillow')"


@pytest.mark.parametrize(("python", "slow"), [("3.14.7", True), ("3.12.1", False)])
def test_jpeg_by_pillow_is_slow_where_there_is_a_faster_decoder_for_this_python(python, slow):
    torch = {"jpeg": "pillow", "resize": OWN, "decode_and_resize_megapixels_per_s": 320.0}
    found = changed(decoders__torch=torch, interpreter__version=python)
    assert [finding.command for finding in found] == ["uv pip install -p ENV/bin/python 'leanjpeg-simple>=0.1'"] * slow


@pytest.mark.parametrize(("cpu", "slow"), [("avx2", True), ("avx512bw", True), ("sse4_2", False), (None, False)])
def test_an_installation_without_the_compiled_resize_is_slow_where_the_cpu_could_run_it(cpu, slow):
    torch = {**HEALTHY["decoders"]["torch"], "resize": "torch"}
    found = changed(decoders__torch=torch, machine__cpu_simd=cpu)
    again = "uv pip install -p ENV/bin/python --force-reinstall --no-deps --no-binary zephon-ft zephon-ft"
    assert [finding.command for finding in found] == [f"CC=/bin/cc {again}"] * slow
    found = changed(decoders__torch=torch, machine__cpu_simd=cpu, machine__c_compiler=None)
    assert [finding.command for finding in found] == [f"apt-get install -y gcc && CC=gcc {again}"] * slow


def test_decoders_that_all_fail_yield_nothing():
    assert changed(decoders={"all": {"error": "ImportError: no PIL"}}) == []


def test_a_libjpeg_that_is_not_turbo_is_slow():
    assert "instead of libjpeg-turbo" in only(PIL__libjpeg="9.5").problem


def test_pil_that_is_missing_is_neither_broken_nor_slow():
    assert only(packages__PIL=None, pil_providers=[]).kind == "missing"


def test_requirements_that_are_missing_are_one_command():
    finding = only(packages__numpy=None, packages__torch=None)
    assert finding.kind == "broken"
    assert finding.command == "uv pip install -p ENV/bin/python 'numpy>=2.1' 'torch>=2.10'"


@pytest.mark.parametrize(("version", "old"), [("2.9.1", True), ("2.10.0+cu130", False), ("2.11.0a1", False)])
def test_a_version_that_is_too_old_is_broken(version, old):
    found = changed(packages__torch={"version": version, "gil_turned_on_by": None})
    assert [finding.kind for finding in found] == ["broken"] * old
    assert all("crashes on free-threaded Python" in finding.problem for finding in found)


def test_a_package_that_cannot_be_imported_is_broken():
    finding = only(packages__torch={"version": "2.10.0", "error": "its import crashed: SIGSEGV"})
    assert (finding.kind, finding.problem) == ("broken", "torch cannot be imported: its import crashed: SIGSEGV")


def test_pil_that_cannot_be_imported_is_broken_and_its_provider_installed_again():
    finding = only(packages__PIL={"version": None, "error": "ImportError: no libjpeg"})
    assert finding.command == "uv pip install -p ENV/bin/python --force-reinstall --no-deps pillow-simd"


def test_a_module_asked_for_that_is_not_there_is_broken():
    assert only(packages__mine=None).kind == "broken"


def test_a_package_that_turns_the_gil_on_is_slow():
    finding = only(packages__triton={"version": "3.9.0", "gil_turned_on_by": "'triton._C.libtriton'"})
    assert (finding.kind, finding.command) == ("slow", "export PYTHON_GIL=0")
    assert "'triton._C.libtriton'" in finding.problem


@pytest.mark.parametrize(("setting", "command"), [(None, "export PYTHON_GIL=0"), (1, "unset PYTHON_GIL ")])
def test_a_gil_that_is_on_where_it_need_not_be_is_slow(setting, command):
    interpreter = {**HEALTHY["interpreter"], "gil": True, "gil_setting": setting, "gil_turned_on_by": "somebody"}
    finding = only(interpreter=interpreter)
    assert finding.kind == "slow"
    assert finding.command.startswith(command)


def test_an_interpreter_with_a_gil_is_slow_and_not_told_twice():
    interpreter = {**HEALTHY["interpreter"], "free_threaded_build": False, "gil": True}
    assert only(interpreter=interpreter).command == "uv run -p 3.14t COMMAND"
    neither = {**interpreter, "uv": None}
    assert only(interpreter=neither).command == "ENV/bin/python -m pip install uv && uv run -p 3.14t COMMAND"
    no_uv = {**interpreter, "uv": None, "python3.14t": "bin/python3.14t"}
    assert only(interpreter=no_uv).command.startswith("bin/python3.14t -m venv")


@pytest.mark.parametrize(("quota", "workers", "slow"), [(1.5, 8, True), (8.0, 8, False), (7.6, 8, False)])
def test_more_workers_than_the_cgroup_allows_are_slow(quota, workers, slow):
    found = changed(machine__cores_by_cgroup=quota, machine__default_workers=workers)
    assert [finding.command for finding in found] == ["pipeline.options(workers=2)"] * slow


def test_thread_pools_inside_workers_are_slow():
    assert only(settings__TOKENIZERS_PARALLELISM="true").command == "export TOKENIZERS_PARALLELISM=false"


def test_processes_that_cannot_be_started_are_broken_where_they_are_the_default():
    assert changed(processes__unix_sockets=False) == []
    interpreter = {**HEALTHY["interpreter"], "default_runner": "process"}
    assert only(interpreter=interpreter, processes__unix_sockets=False).kind == "broken"


def test_what_is_broken_comes_first():
    found = changed(PIL__libjpeg="9.5", packages__torch=None, settings__TOKENIZERS_PARALLELISM="1")
    assert [finding.kind for finding in found] == ["broken", "slow", "slow"]


def test_sections_that_failed_yield_nothing():
    failed = {"error": "OSError: no /proc"}
    assert changed(interpreter=failed, machine=failed, processes=failed) == []


def test_glibcs_allocator_is_slow_where_threads_tokenize_and_nothing_was_set():
    finding = only(settings__GLIBC_TUNABLES=None)
    assert (finding.kind, finding.command) == ("slow", f"export GLIBC_TUNABLES={TUNABLES}")
    assert only(settings__GLIBC_TUNABLES="glibc.pthread.rseq=0").command.endswith(f"=glibc.pthread.rseq=0:{TUNABLES}")
    assert changed(settings={"LD_PRELOAD": "libjemalloc.so.2"}) == []
    assert changed(settings__GLIBC_TUNABLES=None, machine__libc="musl 1.2") == []
