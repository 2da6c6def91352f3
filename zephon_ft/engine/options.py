"""Options: what tunes a run and never changes its data."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from zephon_ft.cgroup import cgroup_limits
from zephon_ft.errors import ConfigError
from zephon_ft.runners.choice import RUNNERS

_COUNTS = (
    "workers",
    "io_concurrency",
    "prefetch",
    "lanes_per_batch",
    "memory_budget",
    "task_rows",
    "world_size",
    "grad_accumulation",
)
_TOKENS_AHEAD = 1 << 16  # 150 MB of patches; so many small batches that some are laid out together


@dataclass(frozen=True, slots=True)
class Options:
    """Performance and run-time options of one pipeline. None of them changes the data.

    Attributes:
        runner: ``thread``, ``process`` (worker processes), ``inline`` (the consumer's own thread), or ``auto``: threads
            where they run in parallel (free-threaded Python), processes where there is a GIL.
        workers: worker threads or processes of this pipeline at most; None = the cores this process may use.
        io_concurrency: storage requests in flight at most, for remote data.
        prefetch: batches of this rank that are made ahead, in delivery order; None = 32 without images; with them 4, or
            as many as hold 32 records, and four for each worker, where a batch is a number of records; or as many as
            hold 65,536 tokens of packed rows, 32 at most.
        lanes_per_batch: lane batches of this rank that are joined into one delivered batch.
        memory_budget: bytes that the pipeline may hold; None = a quarter of the memory this process may use, 4 GiB at
            most. Any budget, even one byte, gives the same stream.
        task_rows: source rows per task; None adapts it to 10 ms of work (80 in worker processes).
        cost_index: plan and replay from the index that `zephon-ft index` made, where there is one: nothing is read for
            records that are only counted.
        close_timeout: seconds that closing waits for user functions to return.
        rank, world_size: this data-parallel rank and their number. None: from `mesh`, else from torch.distributed where
            it is initialised (all its ranks are then data-parallel), else one rank.
        mesh: the data-parallel dimension of a `DeviceMesh`: ``mesh["dp"]``, or ``(mesh, "dp")``.
        grad_accumulation: delivered batches per optimizer step, only compared with what follows from lanes, ranks,
            `batches_per_step` and `lanes_per_batch`.
        agree: for finite sources on several ranks without torch.distributed: ``agree(possible) -> bool`` tells whether
            all ranks said True.
        strict: compare over all processes at start who delivers which lanes, from which recipe and from which place on
            (torch.distributed): finds peers that were given other data by mistake.
    """

    runner: str = "auto"
    workers: int | None = None
    io_concurrency: int = 32
    prefetch: int | None = None
    lanes_per_batch: int = 1
    memory_budget: int | None = None
    task_rows: int | None = None
    cost_index: bool = True
    close_timeout: float = 10.0
    rank: int | None = None
    world_size: int | None = None
    mesh: Any = None
    grad_accumulation: int | None = None
    agree: Callable[[bool], bool] | None = None
    strict: bool = False

    def updated(self, changes: dict[str, Any]) -> Options:
        """These options with some changed.

        Raises:
            ConfigError: an unknown option (suggests the right one) or a value out of range.
        """
        known = [f.name for f in fields(self)]
        for name in changes:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
                hint = f"did you mean {near[0]!r}? " if near else ""
                raise ConfigError(f"options: there is no option {name!r}; {hint}The options are {', '.join(known)}")
        new = replace(self, **changes)
        if new.runner not in ("auto", *RUNNERS):
            raise ConfigError(f"options: runner must be one of {', '.join(('auto', *RUNNERS))}, got {new.runner!r}")
        for name in _COUNTS:
            value = getattr(new, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise ConfigError(f"options: {name} must be a whole number >= 1, got {value!r}")
        if (new.rank is None) != (new.world_size is None):
            raise ConfigError("options: rank and world_size go together; give both or neither")
        if new.rank is not None and new.mesh is not None:
            raise ConfigError("options: give rank and world_size, or mesh, not both")
        if not isinstance(new.close_timeout, (int, float)) or not new.close_timeout >= 0:
            raise ConfigError(f"options: close_timeout must be >= 0 seconds, got {new.close_timeout!r}")
        return new

    def resolved_workers(self) -> int:
        """Workers in figures."""
        return self.workers or available_cores()

    def resolved_prefetch(self, media: bool, records: int | None, tokens: int | None = None) -> int:
        """Batches made ahead, in figures. Of a batch: `records` where that is their number, `tokens` of packed rows."""
        if self.prefetch is not None or not media:
            return self.prefetch or 32
        if records:
            return max(4, -(-max(32, 4 * self.resolved_workers()) // records))
        return min(32, max(4, _TOKENS_AHEAD // tokens)) if tokens else 4

    def resolved_budget(self) -> int:
        """Memory budget in bytes."""
        return self.memory_budget or min(4 << 30, available_memory() // 4)


def available_cores() -> int:
    """Cores that this process may use: its affinity and its control group's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_limits().cpus
    return cores if quota is None else min(cores, max(1, round(quota)))


def available_memory() -> int:
    """Bytes of memory that this process may use: the machine's, or its control group's limit."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        total = 8 << 30
    limit = cgroup_limits().memory
    return total if limit is None else min(total, limit)
