"""What Linux control groups (versions 1 and 2) allow this process: a container has fewer cores than its machine shows.

Limits are inherited, so the smallest on the way from this process's group up to the root counts. A group's own folder
may be out of sight (a container sees its group as the root); then what is visible counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_UNLIMITED = 1 << 60  # bytes; version 1 writes "no limit" as the largest whole number of pages


@dataclass(frozen=True, slots=True)
class Limits:
    """What the group may use; None is no limit.

    Attributes:
        cpus: CPU seconds per second.
        memory: bytes.
    """

    cpus: float | None
    memory: int | None


def cgroup_limits(root: Path = Path("/")) -> Limits:
    """The limits of this process. Never raises: what is missing or unreadable limits nothing.

    Args:
        root: the folder that holds ``proc`` and ``sys``.
    """
    cpus: list[float] = []
    memory: list[int] = []
    mount = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        names = controllers.split(",")
        if not controllers:  # version 2; beside version 1 it is mounted at `unified`
            for group in (*_levels(mount, path), *_levels(mount / "unified", path)):
                quota, period = _numbers(group / "cpu.max", 2)
                cpus += [quota / period] if quota > 0 and period > 0 else []
                memory += [limit for limit in _numbers(group / "memory.max", 1) if limit > 0]
        if "cpu" in names:
            for group in (*_levels(mount / controllers, path), *_levels(mount / "cpu", path)):
                quota, period = _numbers(group / "cpu.cfs_quota_us", 1)[0], _numbers(group / "cpu.cfs_period_us", 1)[0]
                cpus += [quota / period] if quota > 0 and period > 0 else []
        if "memory" in names:
            for group in _levels(mount / controllers, path):
                memory += [n for n in _numbers(group / "memory.limit_in_bytes", 1) if 0 < n < _UNLIMITED]
    return Limits(min(cpus, default=None), min(memory, default=None))


def _levels(mount: Path, path: str) -> Iterator[Path]:
    """The root of a hierarchy and every group down to the one at `path`."""
    yield mount
    for part in path.split("/"):
        if part and part != "..":  # above what this process may see
            mount = mount / part
            yield mount


def _numbers(file: Path, count: int) -> list[int]:
    """The first numbers of a file; -1 for what is missing or not a number (``max``)."""
    words = [*_read(file).split(), *[""] * count][:count]
    return [int(word) if word.isdecimal() else -1 for word in words]


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
