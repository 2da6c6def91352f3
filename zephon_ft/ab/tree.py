"""A process and its live descendants, as /proc tells them: CPU seconds, page faults, memory. Standard library only."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process tree has used since its processes began, children that have ended included.

    Attributes:
        cpu: seconds, user and system.
        faults: minor page faults.
    """

    cpu: float
    faults: int

    def __sub__(self, other: Usage) -> Usage:
        return Usage(self.cpu - other.cpu, self.faults - other.faults)


def processes(root: int) -> dict[int, list[str]]:
    """The fields of /proc/PID/stat behind the name, of `root` and its live descendants."""
    stats: dict[int, list[str]] = {}
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = Path("/proc", entry, "stat").read_text()
            except OSError:  # it ended
                continue
            stats[int(entry)] = fields = text.rsplit(")", 1)[1].split()  # the name may hold anything
            children.setdefault(int(fields[1]), []).append(int(entry))
    found, waiting = {}, [root]
    while waiting:
        pid = waiting.pop()
        if pid in stats:
            found[pid] = stats[pid]
            waiting += children.get(pid, [])
    return found


def usage(root: int | None = None) -> Usage:
    """What the tree of a process (default: this one) has used."""
    cpu = faults = 0
    for fields in processes(root or os.getpid()).values():
        faults += int(fields[7]) + int(fields[8])  # minor faults: own, and of children waited for
        cpu += sum(map(int, fields[11:15]))  # user and system time: own, and of children waited for
    return Usage(cpu / TICKS, faults)


def memory(root: int) -> int:
    """Proportional set size of the tree in bytes: shared pages are divided among the processes that map them."""
    total = 0
    for pid in processes(root):
        try:
            text = Path("/proc", str(pid), "smaps_rollup").read_text()
        except OSError:
            continue
        total += next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0)
    return total
