"""Which data-parallel rank this process is, and the little that ranks of a finite run tell each other.

An endless run never communicates. A finite one agrees once per step, with one byte per rank, on a gloo group of its
own: every rank delivers the same number of steps.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from zephon_ft.engine.checkpoint import Position
from zephon_ft.engine.options import Options
from zephon_ft.engine.recipe import differences
from zephon_ft.errors import ConfigError

logger = logging.getLogger("zephon_ft")
_logged = False


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among the data-parallel ranks.

    Attributes:
        rank, world: its rank, and how many there are.
        members: global ranks of the data-parallel group, where torch.distributed knows them.
    """

    rank: int
    world: int
    members: tuple[int, ...] | None = None


def find_ranks(options: Options) -> Ranks:
    """The rank that the options name, or that torch.distributed knows.

    Raises:
        ConfigError: a launcher started several processes, and nothing says which rank this one is.
    """
    global _logged
    dist = _initialised()
    if options.rank is not None and options.world_size is not None:
        same = dist is not None and dist.get_world_size() == options.world_size
        return Ranks(options.rank, options.world_size, tuple(range(options.world_size)) if same else None)
    if options.mesh is not None:
        return _from_mesh(options.mesh)
    if dist is not None:
        world = dist.get_world_size()
        if not _logged and world > 1:
            _logged = True
            logger.info(
                "torch.distributed is initialised: all %d ranks are taken as data-parallel. With tensor, pipeline or "
                "context parallelism give options(mesh=device_mesh['dp'])",
                world,
            )
        return Ranks(dist.get_rank(), world, tuple(range(world)))
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            f"WORLD_SIZE={os.environ['WORLD_SIZE']} is set, but torch.distributed is not initialised: every process "
            "would get the same data. Initialise it before iterating, or give options(rank=..., world_size=...)"
        )
    return Ranks(0, 1)


def make_agree(options: Options, ranks: Ranks, any_rank: bool) -> Callable[[bool], bool]:
    """How the ranks of a finite run agree on one step more.

    Args:
        any_rank: True: one rank that can go on is enough (``remainder="pad"``). False: all must.
    """
    if options.agree is not None:
        return options.agree
    if ranks.world == 1:
        return lambda possible: possible
    dist = _initialised()
    if dist is None or ranks.members is None:
        raise ConfigError(
            f"a finite source on {ranks.world} ranks needs all of them to agree on the last step: initialise "
            "torch.distributed, or give options(agree=fn), where fn(possible) tells whether all ranks said True"
        )
    import torch

    group = _gloo_group(ranks.members)
    operation = dist.ReduceOp.MAX if any_rank else dist.ReduceOp.MIN

    def agree(possible: bool) -> bool:
        flag = torch.tensor([int(possible)], dtype=torch.uint8)
        dist.all_reduce(flag, op=operation, group=group)
        return bool(flag.item())

    return agree


def check_agreement(ranks: Ranks, lanes: Sequence[int], total: int, recipe: str, position: Position) -> None:
    """Compare over all processes who delivers what, from which recipe and from where on.

    Each lane must belong to exactly one data-parallel rank, each rank to equally many processes; all processes must
    have one recipe and stand at one step, and those of a rank (its TP, PP and CP peers) at one place.

    Args:
        ranks, lanes: this process's rank, and the lanes that it delivers.
        total: lanes of the run.
        recipe: as canonical JSON text.
        position: where this process starts.

    Raises:
        ConfigError: on every process, naming the processes that do not fit.
    """
    dist = _initialised()
    if dist is None:
        return
    place = sorted((lane, repr(stamp)) for lane, stamp in position.stamps.items())
    mine = _Process(
        ranks.rank,
        ranks.world,
        tuple(lanes),
        _sha(recipe),
        f"step {position.step}" + (f" and {position.delivered} lane batches" if position.delivered else ""),
        _sha(repr((place, position.iteration))),
    )
    processes: list[_Process] = gather([mine])
    _check_lanes(processes, total)
    if len({process.recipe for process in processes}) > 1:
        texts = dict(zip((process.recipe for process in processes), gather([recipe])))
        first, other = (json.loads(text) for text in list(texts.values())[:2])
        found = [f"{path}: {a!r} and {b!r}" for path, a, b in differences(first, other)]
        raise ConfigError(
            f"processes have different recipes ({_groups_of(processes, 'recipe')}), so their data would not belong "
            f"together: {'; '.join(found[:5])}"
        )
    if len({process.step for process in processes}) > 1:
        raise ConfigError(
            f"processes start at different steps ({_groups_of(processes, 'step')}): load a checkpoint that all of them "
            "saved at the same step"
        )
    for rank in range(ranks.world):
        peers = {i: process.place for i, process in enumerate(processes) if process.rank == rank}
        if len(set(peers.values())) > 1:
            raise ConfigError(
                f"processes {list(peers)} deliver the same lanes, as rank {rank}, but start at different places: load "
                "the same state on all of them"
            )


class _Process(NamedTuple):
    """What one process tells the others at start."""

    rank: int
    world: int
    lanes: tuple[int, ...]
    recipe: str
    step: str
    place: str


def _check_lanes(processes: list[_Process], total: int) -> None:
    owners: dict[int, set[int]] = {}
    for process in processes:
        for lane in process.lanes:
            owners.setdefault(lane, set()).add(process.rank)
    shared = {lane: sorted(who) for lane, who in owners.items() if len(who) > 1}
    missing = sorted(set(range(total)) - owners.keys())
    shares = set(Counter(process.rank for process in processes).values())
    if len({process.world for process in processes}) > 1 or shared or missing or len(shares) > 1:
        table = "; ".join(
            f"process {i}: rank {p.rank} of {p.world}, lanes {_span(p.lanes)}" for i, p in enumerate(processes)
        )
        raise ConfigError(
            f"processes disagree on who delivers which lanes (missing: {missing or 'none'}; with two ranks: "
            f"{shared or 'none'}). Give the data-parallel dimension: options(mesh=device_mesh['dp']). {table}"
        )


def _groups_of(processes: list[_Process], field: str) -> str:
    """Which processes have which value, in words."""
    groups: dict[str, list[int]] = {}
    for i, process in enumerate(processes):
        groups.setdefault(getattr(process, field), []).append(i)
    named = field == "step"
    return "; ".join(f"processes {who}" + (f" at {value}" if named else "") for value, who in groups.items())


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def gather(items: list[Any], group: Any = None) -> list[Any]:
    """The items of all ranks of `group` (default: all ranks); just `items` without torch.distributed."""
    dist = _initialised()
    if dist is None:
        return items
    group = _gloo_group(None) if group is None else group
    everyone: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, items, group=group)
    return [item for part in everyone for item in part]


def _initialised() -> Any:
    """torch.distributed if it is initialised; torch is not imported for this."""
    dist = sys.modules.get("torch.distributed")
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None


_groups: dict[tuple[int, ...] | None, tuple[Any, Any]] = {}  # members -> (the world that it belongs to, our group)


def _gloo_group(members: tuple[int, ...] | None) -> Any:
    """A gloo group of our own over these ranks (None: all), so that nothing of the trainer's is waited for."""
    dist = _initialised()
    key = None if members is None or len(members) == dist.get_world_size() else members
    world, group = _groups.get(key, (None, None))
    if world is not dist.group.WORLD:  # the first one, or torch.distributed was initialised anew
        if key is None:
            group = dist.new_group(backend="gloo")
        else:
            group = dist.new_group(ranks=list(key), backend="gloo", use_local_synchronization=True)
        _groups[key] = dist.group.WORLD, group
    return group


def _from_mesh(mesh: Any) -> Ranks:
    import torch.distributed as dist

    name = None
    if isinstance(mesh, tuple):
        mesh, name = mesh
    if name is None and mesh.ndim != 1:
        raise ConfigError(
            f"options: mesh has the dimensions {mesh.mesh_dim_names}; name the data-parallel one: mesh['dp'] or "
            "(mesh, 'dp')"
        )
    group = mesh.get_group(name) if name is not None else mesh.get_group()
    members = tuple(dist.get_process_group_ranks(group))
    return Ranks(dist.get_rank(group), len(members), members)


def _span(lanes: Sequence[int]) -> str:
    return f"{lanes[0]}..{lanes[-1]}" if lanes else "none"
