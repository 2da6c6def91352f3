"""Step digest: one hash over all lane batches of an optimizer step, whatever ranks delivered them.

SHA-256 over the digests of the lane batches in (lane, round) order. Ranks exchange digests, never data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from zephon_ft.batch import Batch
from zephon_ft.errors import ConfigError

Entry = tuple[int, int, str]  # lane, batch number within the lane, digest


def entries(batches: Iterable[Batch], pixels: bool = True) -> list[Entry]:
    """(lane, number, digest) of every lane batch."""
    lane_batches = [part for batch in batches for part in (batch.parts or (batch,))]
    return [(batch.lane, batch.index, batch.digest(pixels)) for batch in lane_batches]


def combine(found: Iterable[Entry]) -> str:
    """The digest of a step from the entries of all ranks, in any order.

    Raises:
        ConfigError: a lane batch that two ranks delivered.
    """
    ordered = sorted(found)
    places = [entry[:2] for entry in ordered]
    if len(set(places)) < len(places):
        twice = sorted({place for place in places if places.count(place) > 1})
        raise ConfigError(f"step_digest: (lane, number) {twice} were delivered by two ranks")
    return hashlib.sha256("".join(digest for _, _, digest in ordered).encode()).hexdigest()


def step_digest(batches: Iterable[Batch], pixels: bool = True, group: Any = None) -> str:
    """The digest of a step, equal on every rank and for every number of ranks.

    Args:
        batches: what this rank delivered for the step.
        pixels: False leaves media out: the same for every decoder build.
        group: process group of the data-parallel ranks (default: all); only used where torch.distributed is
            initialised, and every rank must then call it.
    """
    from zephon_ft.distributed import gather

    return combine(gather(entries(batches, pixels), group))
