"""Findings: what is broken, what is slow, and the command that fixes it. Decided from the facts alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from zephon_ft.doctor.packages import OPTIONAL, PIL_PROVIDERS, REQUIRED
from zephon_ft.runners.environment import TUNABLES

_WIDE = ("avx2", "avx512bw")  # of `cpu_simd`: those that our own resize and pillow-simd use


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of what is wrong, one line of what to do.

    Attributes:
        kind: ``broken`` (what is there does not work, or a requirement is not there), ``missing`` (an optional part) or
            ``slow``.
        problem: in words.
        command: for a shell, unless it is Python.
    """

    kind: Literal["broken", "missing", "slow"]
    problem: str
    command: str


def findings(facts: dict[str, Any]) -> list[Finding]:
    """All findings, what is broken first. `facts`: of `run.collect`; a section that failed yields none."""
    found: list[Finding] = []
    for look in (_interpreter, _packages, _pil, _decoders, _limits, _settings):
        found += look(facts)
    return sorted(found, key=lambda finding: finding.kind)


def _interpreter(facts: dict[str, Any]) -> Iterator[Finding]:
    python = facts["interpreter"]
    if not python.get("free_threaded_build", True):
        command = "uv run -p 3.14t COMMAND"
        if not python["uv"]:
            command = f"{python['executable']} -m pip install uv && {command}"
            if python["python3.14t"]:
                command = f"{python['python3.14t']} -m venv ENV && ENV/bin/pip install 'zephon-ft[pillow]'"
        yield Finding("slow", "this Python has a GIL, so workers are processes instead of threads", command)
    elif python.get("gil"):
        by = python["gil_turned_on_by"]
        command = "unset PYTHON_GIL  # and leave -X gil=1 away" if python["gil_setting"] else "export PYTHON_GIL=0"
        yield Finding("slow", f"the GIL is on, so threads take turns: turned on by {by}", command)
    if python.get("debug_build"):
        yield Finding("slow", "a debug build of Python runs several times slower", "uv run -p 3.14t COMMAND")


def _packages(facts: dict[str, Any]) -> Iterator[Finding]:
    install, found = _pip(facts, "install"), facts["packages"]
    lacking = [name for name in REQUIRED if name in found and found[name] is None]
    if lacking:
        problem = f"{', '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not installed"
        yield Finding("broken", problem, f"{install} {' '.join(_wanted(name, REQUIRED[name]) for name in lacking)}")
    for name, package in found.items():
        least = REQUIRED.get(name)
        if package is None:
            if name not in (*REQUIRED, *OPTIONAL):
                yield Finding("broken", f"there is no module {name}", _pip(facts, "list"))
        elif least and package["version"] and _numbers(package["version"]) < least:
            crashes = name == "torch" and facts["interpreter"].get("free_threaded_build")
            problem = f"{name} {package['version']} is older than {_dots(least)}"
            problem += ", and crashes on free-threaded Python" if crashes else ", the oldest that works"
            yield Finding("broken", problem, f"{install} {_wanted(name, least)}")
        elif "error" in package:
            brings = (facts["pil_providers"] or ["pillow"])[0] if name == "PIL" else name
            yield Finding(
                "broken",
                f"{name} cannot be imported: {package['error']}",
                f"{install} --force-reinstall --no-deps {brings}",
            )
        elif package["gil_turned_on_by"]:
            when = " (torch.compile imports it in the middle of a run)" if name == "triton" else ""
            problem = f"import {name}{when} turns the GIL on for the rest of the process: {package['gil_turned_on_by']}"
            yield Finding("slow", problem, "export PYTHON_GIL=0")


def _pil(facts: dict[str, Any]) -> Iterator[Finding]:
    pil = facts["packages"].get("PIL")
    install, remove = _pip(facts, "install"), _pip(facts, "uninstall")
    providers = facts["pil_providers"]
    if len(providers) > 1:
        yield Finding(
            "broken",
            f"{' and '.join(providers)} are both installed and overwrite each other's files",
            f"{remove} {' '.join(providers)} && {install} {providers[0]}",
        )
        return
    if pil is None:
        yield Finding("missing", "PIL is not installed: images cannot be read, text can", f"{install} pillow")
    if pil is None or "error" in pil:
        return
    least = PIL_PROVIDERS.get(providers[0]) if providers else None
    if least and _numbers(pil["version"]) < least:
        problem = f"{providers[0]} {pil['version']} is older than {_dots(least)}, the oldest that works"
        yield Finding("broken", problem, f"{install} {_wanted(providers[0], least)}")
    if pil["libjpeg"] and "turbo" not in pil["libjpeg"]:
        problem = f"PIL decodes JPEG with libjpeg {pil['libjpeg']} instead of libjpeg-turbo"
        yield Finding("slow", problem, f"{install} --only-binary pillow --force-reinstall pillow")


def _decoders(facts: dict[str, Any]) -> Iterator[Finding]:
    """What would make the fastest decoder that works here faster, and whether the default is it."""
    rates = {
        name: decoder["decode_and_resize_megapixels_per_s"]
        for name, decoder in facts["decoders"].items()
        if "error" not in decoder
    }
    if not rates or len(facts["pil_providers"]) > 1:
        return
    default, best = next(iter(facts["decoders"])), max(rates, key=lambda name: rates[name])
    if default in rates and rates[best] > 1.2 * rates[default]:
        problem = f"the default image decoder makes {rates[default]:.0f} megapixels/s, {best!r} {rates[best]:.0f}"
        problem += " (its pixels differ a little, so it is part of the recipe)"
        yield Finding("slow", problem, f"pipeline.images(..., decoder={best!r})")
    elif best == "pillow":
        yield from _vectors(facts)
    else:
        yield from _parts(facts, facts["decoders"][best])


def _parts(facts: dict[str, Any], decoder: dict[str, Any]) -> Iterator[Finding]:
    """What the default decoder could do faster with what is not installed."""
    if decoder["resize"] == "torch" and facts["machine"].get("cpu_simd") in _WIDE:
        problem = "torch resizes images; zephon_ft's own resize takes half the time, to the same pixels, but is not"
        problem += " there: it is compiled when the package is installed, by $CC or cc"
        compiler = facts["machine"].get("c_compiler")
        get = f"CC={compiler}" if compiler else "apt-get install -y gcc && CC=gcc"
        fresh = f"{_pip(facts, 'install')} --force-reinstall --no-deps --no-binary zephon-ft"
        yield Finding("slow", problem, f"{get} {fresh} {facts['zephon_ft_source']}")
    if decoder["jpeg"] == "pillow" and _numbers(facts["interpreter"].get("version", "")) >= (3, 13):
        problem = "JPEG is decoded by Pillow and copied; leanjpeg-simple decodes into reused memory, to the same pixels"
        yield Finding("slow", problem, f"{_pip(facts, 'install')} 'leanjpeg-simple>=0.1'")


def _vectors(facts: dict[str, Any]) -> Iterator[Finding]:
    """Pillow decodes and resizes here: is it built for this CPU?"""
    vector, pil = facts["machine"].get("cpu_simd"), facts["packages"].get("PIL") or {}
    best = "AVX2" if vector in _WIDE else "SSE4" if vector else None
    if best is None or pil.get("simd") in (None, "AVX2", best):
        return
    install, remove = _pip(facts, "install"), _pip(facts, "uninstall")
    fresh = "--no-cache" if "uv pip" in install else "--no-cache-dir"
    compiler = 'CC="cc -mavx2" ' if best == "AVX2" else ""
    headers = "apt-get install -y gcc libjpeg62-turbo-dev zlib1g-dev"
    build = f"{compiler}{install} {fresh} --no-binary pillow-simd pillow-simd"
    provider = (facts["pil_providers"] or ["pillow"])[0]
    problem = (
        f"PIL resizes {pil['resize_megapixels_per_s']:.0f} megapixels/s, built with SIMD level {pil['simd']}; "
        f"this CPU has {best}, which pillow-simd uses"
    )
    yield Finding("slow", problem, f"{headers} && {remove} {provider} && {build}")


def _limits(facts: dict[str, Any]) -> Iterator[Finding]:
    machine = facts["machine"]
    quota, workers = machine.get("cores_by_cgroup"), machine.get("default_workers")
    if quota and workers and workers > quota + 0.5:
        problem = f"the cgroup allows {quota:g} CPUs, but {workers} workers start: all stop when the quota is used up"
        yield Finding("slow", problem, f"pipeline.options(workers={max(1, round(quota))})")
    if not facts["processes"].get("unix_sockets", True) and facts["interpreter"].get("default_runner") == "process":
        problem = "there are no Unix sockets here, which worker processes need"
        yield Finding("broken", problem, 'pipeline.options(runner="thread")')


def _settings(facts: dict[str, Any]) -> Iterator[Finding]:
    if (facts["settings"].get("TOKENIZERS_PARALLELISM") or "").lower() in ("1", "true", "on", "yes"):
        problem = "TOKENIZERS_PARALLELISM is on: each worker starts a pool of threads of its own"
        yield Finding("slow", problem, "export TOKENIZERS_PARALLELISM=false")
    threads = facts["interpreter"].get("default_runner") == "thread"  # worker processes are started with it
    glibc = (facts["machine"].get("libc") or "").startswith("glibc")
    given = facts["settings"].get("GLIBC_TUNABLES") or ""
    if threads and glibc and "tcache" not in given and not facts["settings"].get("LD_PRELOAD"):
        problem = "glibc's allocator takes up to a quarter of a tokenizing thread's time: it keeps too few freed pieces"
        yield Finding("slow", problem, f"export GLIBC_TUNABLES={':'.join(filter(None, (given, TUNABLES)))}")


def _pip(facts: dict[str, Any], verb: str) -> str:
    """The start of a command that changes this interpreter's packages."""
    python = facts["interpreter"]
    if python.get("uv"):
        return f"uv pip {verb} -p {python['executable']}"
    return f"{python.get('executable', 'python')} -m pip {verb}{' -y' if verb == 'uninstall' else ''}"


def _wanted(name: str, least: tuple[int, ...]) -> str:
    return f"'{name}>={_dots(least)}'"


def _dots(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: (2, 10, 1) of 2.10.1+cpu."""
    numbers = []
    for part in version.split("+")[0].split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)
