"""Shipment: the plan on its way to the workers. Pickled once; its arrays lie in shared memory, where all use them."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import cloudpickle

from zephon_ft.engine.plan import Plan
from zephon_ft.errors import ConfigError
from zephon_ft.runners.shared import Arena, Region, Window
from zephon_ft.runners.unpicklable import explain
from zephon_ft.runners.unshared import refuse_unshared

_ALIGN = 64  # bytes


@dataclass(frozen=True, slots=True)
class Shipment:
    """A pickled plan in shared memory.

    Attributes:
        region: where all of it lies.
        length: of the pickle, which comes first.
        buffers: (first byte, length, read-only) of its arrays, which workers use where they lie.
        cache_limit: bytes that each dataset's reader may keep in each worker.
    """

    region: Region
    length: int
    buffers: tuple[tuple[int, int, bool], ...]
    cache_limit: int

    def unpack(self, window: Window) -> Plan:
        """The plan. What this process writes into its arrays, no other sees."""
        memory = memoryview(window.map_private(self.region))
        views = [memory[first : first + length] for first, length, _ in self.buffers]
        frozen = [read_only for _, _, read_only in self.buffers]
        buffers = [view.toreadonly() if fixed else view for view, fixed in zip(views, frozen, strict=True)]
        return pickle.loads(memory[: self.length], buffers=buffers)


def ship(plan: Plan, arena: Arena, cache_limit: int) -> Shipment:
    """Pack a plan.

    Raises:
        ConfigError: it cannot be pickled (names the operator and the object), is only in this process's memory, or has
            state that workers would not share.
    """
    for dataset in plan.source.datasets:
        if any(shard.path.startswith("memory:") for shard in dataset.shards):
            raise ConfigError(
                f"dataset {dataset.name!r} lies in this process's memory (memory://), which worker processes cannot "
                'read; use options(runner="thread"), or Dataset.from_rows'
            )
    refuse_unshared(plan)
    found: list[pickle.PickleBuffer] = []
    try:
        content = cloudpickle.dumps(plan, 5, buffer_callback=found.append)
    except Exception as error:
        raise explain(plan, error) from error
    places, end = [], len(content)
    for buffer in found:
        first = -(-end // _ALIGN) * _ALIGN
        end = first + len(buffer.raw())
        places.append((first, end - first, buffer.raw().readonly))
    memory = arena.map(end)
    memory[: len(content)] = content
    for (first, length, _), buffer in zip(places, found, strict=True):
        memory[first : first + length] = buffer.raw()
    return Shipment(arena.region(memory), len(content), tuple(places), cache_limit)
