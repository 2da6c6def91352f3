"""Which rank delivers which lanes, and what fits: lanes, ranks, accumulation.

Only data-parallel ranks count: TP, PP and CP peers of a rank see that rank's batches. Lanes are fixed for the life of a
run, ranks are not.
"""

from __future__ import annotations

from zephon_ft.errors import ConfigError

GOOD_LANES = "48, 96 or 240"  # many divisors


def owned(lane: int, round_: int, lanes: int, world: int) -> int:
    """The rank that delivers batch `round_` of `lane`: today the same in every round, in contiguous shares."""
    return lane * world // lanes


def owned_lanes(lanes: int, rank: int, world: int) -> range:
    """The lanes of a rank, ascending.

    Raises:
        ConfigError: `world` does not divide `lanes` (lists what does), or the rank is out of range.
    """
    if not 0 <= rank < world:
        raise ConfigError(f"rank {rank} is out of range for world_size {world}: it must be 0 .. {world - 1}")
    if lanes % world:
        raise ConfigError(
            f"{lanes} lanes cannot be shared by {world} ranks: the number of ranks must be one of "
            f"{', '.join(map(str, divisors(lanes)))}. A new run may choose other lanes: {GOOD_LANES} suit many sizes"
        )
    mine = [lane for lane in range(lanes) if owned(lane, 0, lanes, world) == rank]
    return range(mine[0], mine[-1] + 1)


def accumulation(lanes: int, world: int, batches_per_step: int, lanes_per_batch: int, given: int | None) -> int:
    """Delivered batches of a rank in one optimizer step; `given` is only compared.

    Raises:
        ConfigError: `given` differs, or `lanes_per_batch` does not divide a rank's lane batches of a step.
    """
    lane_batches = lanes // world * batches_per_step
    if lane_batches % lanes_per_batch:
        raise ConfigError(
            f"lanes_per_batch={lanes_per_batch} does not divide the {lane_batches} lane batches of a rank in a step; "
            f"use one of {', '.join(map(str, divisors(lane_batches)))}"
        )
    derived = lane_batches // lanes_per_batch
    if given is not None and given != derived:
        raise ConfigError(
            f"grad_accumulation={given}, but {lanes} lanes x {batches_per_step} batches per step over {world} ranks, "
            f"{lanes_per_batch} lane batches in each, make {derived}; at {world} ranks these are possible: "
            f"{', '.join(map(str, divisors(lane_batches)))} (by lanes_per_batch="
            f"{', '.join(str(lane_batches // d) for d in divisors(lane_batches))})"
        )
    return derived


def divisors(n: int) -> list[int]:
    """All divisors, ascending."""
    return [d for d in range(1, n + 1) if n % d == 0]
