"""Facts of the packages: each is imported in a process of its own.

So a package that crashes at its import, or that turns the GIL on, is seen as the one that does, and the others are not
touched by it.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from zephon_ft.runners.gil import gil_enabled, turned_on_by

# What zephon-ft needs, by the name to import, with the least version that works; equal to pyproject.toml's.
REQUIRED = {
    "numpy": (2, 1),
    "torch": (2, 10),
    "tokenizers": (0, 23),
    "pyarrow": (20,),
    "fsspec": (2024, 6),
    "jinja2": (3, 1),
    "cloudpickle": (3, 1),
}
PIL_PROVIDERS = {"pillow": (11,), "pillow-simd": (12,)}
OPTIONAL = ("leanjpeg_simple", "PIL", "triton")
TIMEOUT = 120.0  # seconds for one import
_BOOTSTRAP = (
    "import os, sys, json; sys.path[:] = json.loads(sys.argv[1]); from zephon_ft.doctor.packages import describe; "
    "print('\\n' + json.dumps(describe(sys.argv[2])), flush=True); os._exit(0)"  # what packages do at exit is not asked
)


def packages(more: Sequence[str] = ()) -> dict[str, dict[str, Any] | None]:
    """Facts of each package by its import name, None where it is not installed.

    Each has ``version`` and ``gil_turned_on_by``, or ``error`` where it cannot be imported, and facts of its own.

    Args:
        more: further modules to look at, by import name.
    """
    names = list(dict.fromkeys((*REQUIRED, *OPTIONAL, *more)))
    at_once = [name for name in names if name != "PIL"]
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        found = dict(zip(at_once, pool.map(probe, at_once)))
    found["PIL"] = probe("PIL")  # alone, as it is timed
    return {name: found[name] for name in names}


def decoders() -> dict[str, dict[str, Any]]:
    """Facts of our own image decoders, by name; see `doctor.decoders`."""
    found = probe(_DECODERS) or {}
    return found.get("decoders", {"all": {"error": found.get("error", "not found")}})


def probe(name: str, timeout: float = TIMEOUT) -> dict[str, Any] | None:
    """Import a module in a new process and describe it; see `packages`."""
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    command = [sys.executable, *flags, "-c", _BOOTSTRAP, json.dumps(list(map(str, sys.path))), name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return {"version": _version(name), "error": f"its import took more than {timeout:.0f} s"}
    if done.returncode < 0:
        return {"version": _version(name), "error": f"its import crashed: {signal.Signals(-done.returncode).name}"}
    try:
        return json.loads(done.stdout.strip().rsplit("\n", 1)[-1])
    except ValueError:
        last = done.stderr.strip().rsplit("\n", 1)[-1]
        return {"version": _version(name), "error": last or f"its import ended the process ({done.returncode})"}


def describe(name: str) -> dict[str, Any] | None:
    """The facts of one package, imported here."""
    if find_spec(name.partition(".")[0]) is None:
        return None
    before = gil_enabled()
    try:
        importlib.import_module(name)
    except Exception as error:
        return {"version": _version(name), "error": f"{type(error).__name__}: {error}"}
    facts = {"version": _version(name), "gil_turned_on_by": None if before else turned_on_by()}
    return {**facts, **_DETAILS[name]()} if name in _DETAILS else facts


def pil_providers() -> list[str]:
    """The distributions that bring PIL: there must be one."""
    return [name for name in PIL_PROVIDERS if _version(name) is not None]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _torch() -> dict[str, Any]:
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    try:
        pinned = torch.empty(1).pin_memory().is_pinned()
    except RuntimeError:  # no device to pin it for
        pinned = False
    threads = torch.get_num_threads()
    return {"cuda": torch.version.cuda, "device": device, "pinned_memory": pinned, "threads": threads}


def _pyarrow() -> dict[str, Any]:
    import pyarrow

    return {"threads": pyarrow.cpu_count(), "memory_pool": pyarrow.default_memory_pool().backend_name}


def _pil() -> dict[str, Any]:
    from zephon_ft.doctor.pil import facts

    return facts()


def _our_decoders() -> dict[str, Any]:
    from zephon_ft.doctor.decoders import facts

    return {"decoders": facts()}


_DECODERS = "zephon_ft.vision.decode"
_DETAILS: dict[str, Callable[[], dict[str, Any]]] = {
    "torch": _torch,
    "pyarrow": _pyarrow,
    "PIL": _pil,
    _DECODERS: _our_decoders,
}
