"""Facts of the interpreter and of the machine, from the standard library and /proc. Missing files are missing facts."""

from __future__ import annotations

import multiprocessing
import os
import platform
import re
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from zephon_ft.cgroup import cgroup_limits
from zephon_ft.engine.options import available_cores
from zephon_ft.runners.choice import default_runner
from zephon_ft.runners.gil import FREE_THREADED, gil_enabled, turned_on_by

# Settings that decide how many threads libraries start, how Python runs, and how memory is taken and returned.
SETTINGS = (
    "PYTHON_GIL",
    "PYTHON_JIT",
    "TOKENIZERS_PARALLELISM",
    "RAYON_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MALLOC_ARENA_MAX",
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_MMAP_THRESHOLD_",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
    "PILLOW_BLOCK_SIZE",
    "PILLOW_BLOCKS_MAX",
)
_LEVELS = ("avx512bw", "avx2", "sse4_2")  # best first, as /proc/cpuinfo has them


def interpreter() -> dict[str, Any]:
    """The Python that runs this: its build, its GIL, and others at hand."""
    jit = getattr(sys, "_jit", None)
    return {
        "version": platform.python_version(),
        "executable": sys.executable,
        "free_threaded_build": FREE_THREADED,
        "debug_build": hasattr(sys, "gettotalrefcount"),
        "jit": bool(jit and jit.is_enabled()),
        "gil": gil_enabled(),
        "gil_setting": getattr(sys.flags, "gil", None),
        "gil_turned_on_by": turned_on_by(),
        "default_runner": default_runner(),
        "python3.14t": shutil.which("python3.14t"),
        "uv": shutil.which("uv"),
    }


def machine(root: Path = Path("/")) -> dict[str, Any]:
    """Cores, memory and their limits. `root`: the folder that holds ``proc`` and ``sys``."""
    limits, cpuinfo = cgroup_limits(root), _read(root / "proc/cpuinfo")
    model = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.M)
    flags = re.search(r"^flags\s*:(.+)$", cpuinfo, re.M)
    total = re.search(r"^MemTotal:\s+(\d+) kB$", _read(root / "proc/meminfo"), re.M)
    pages = re.search(r"\[(\w+)\]", _read(root / "sys/kernel/mm/transparent_hugepage/enabled"))
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": model[1] if model else platform.processor() or None,
        "c_compiler": shutil.which("cc") or shutil.which("gcc") or shutil.which("clang"),
        "cpu_simd": next((level for level in _LEVELS if flags and level in flags[1].split()), None),
        "cores": os.cpu_count(),
        "cores_by_affinity": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "cores_by_cgroup": limits.cpus,
        "default_workers": available_cores(),
        "memory_bytes": int(total[1]) * 1024 if total else None,
        "memory_by_cgroup_bytes": limits.memory,
        "transparent_huge_pages": pages[1] if pages else None,
        "libc": " ".join(platform.libc_ver()).strip() or None,
    }


def processes() -> dict[str, Any]:
    """What worker processes need: sockets and shared memory."""
    memfd = hasattr(os, "memfd_create")
    return {
        "unix_sockets": hasattr(socket, "AF_UNIX"),
        "shared_memory": "memfd" if memfd else f"a file in {tempfile.gettempdir()}",
        "room_bytes": None if memfd else shutil.disk_usage(tempfile.gettempdir()).free,  # else memory is the limit
        "dev_shm_bytes": shutil.disk_usage("/dev/shm").total if os.path.isdir("/dev/shm") else None,
        "started_by": "forks of a template process" if hasattr(os, "pidfd_open") else "a new interpreter each",
        "start_method_of_multiprocessing": multiprocessing.get_all_start_methods()[0],
    }


def settings() -> dict[str, Any]:
    """Environment variables that matter; None where not set."""
    return {name: os.environ.get(name) for name in SETTINGS}


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
