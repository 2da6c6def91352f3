"""What a figure depends on beside the code: the machine and how busy it is. Standard library only."""

from __future__ import annotations

import os
import platform


def machine() -> str:
    """System, processor and cores in words."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{platform.system()} {platform.machine()}, {_processor()}, {cores} cores"


def load() -> float:
    """Load average of the last minute; nan where the system tells none."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "?")
    except OSError:
        return platform.processor() or "?"
