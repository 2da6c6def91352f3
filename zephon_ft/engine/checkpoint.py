"""Checkpoint: the position of a rank's lanes, as plain values under one key per lane.

Per lane about 100 bytes and 16 per dataset, whatever has been read, packed or prefetched. Keys are the same whoever
saved them, so the states of W ranks load on W' ranks with no gather and no barrier. The recipe travels as one string.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zephon_ft.engine.plan import Plan
from zephon_ft.engine.stamp import ITERATION_BITS, Mark, Stamp
from zephon_ft.errors import CheckpointError

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Position:
    """Where a rank stands: behind the last batch that it handed out.

    Attributes:
        stamps: of that batch, for every lane of the rank.
        iteration: which iteration over a finite source.
        began: steps completed when that iteration began.
        world: number of ranks.
        delivered: lane batches handed out in the current step; 0 at a step boundary.
        step: optimizer steps completed.
    """

    stamps: dict[int, Stamp]
    iteration: int
    began: int
    world: int
    delivered: int
    step: int


def start_of_iteration(plan: Plan, lanes: Sequence[int], iteration: int, step: int, world: int) -> Position:
    """Where an iteration over the source begins; `step` steps were completed before it."""
    source = plan.lane_source()
    stamps = {}
    for lane in lanes:
        mark = Mark(iteration << ITERATION_BITS, tuple(source.cursor(lane, iteration).state()), 0)
        stamps[lane] = Stamp(mark, 0, 0, step * plan.batches_per_step)
    return Position(stamps, iteration, step, world, 0, step)


def lane_key(lane: int) -> str:
    """The state's key of one lane."""
    return f"lane.{lane:05d}"


def to_state(position: Position, recipe: str) -> dict[str, Any]:
    """A position as str, int, float, list and dict only."""
    state: dict[str, Any] = {
        "version": FORMAT_VERSION,
        "recipe": recipe,
        "step": position.step,
        "inside_step": [position.delivered, position.world],
        "iteration": [position.iteration, position.began],
    }
    for lane, stamp in position.stamps.items():
        mark = stamp.mark
        values = [mark.flush, mark.rows, stamp.units, stamp.children, stamp.batches, *mark.anchor]
        state[lane_key(lane)] = [*values, _check(lane, values)]
    return state


def from_state(state: Mapping[str, Any], lanes: int, owned: Sequence[int], world: int, rounds: int) -> Position:
    """The position that a state holds, for the lanes of this rank.

    Args:
        lanes: lanes of the run.
        owned: lanes of this rank.
        world: number of ranks now.
        rounds: batches of a lane in a step.

    Raises:
        CheckpointError: not a state, a newer format, missing or damaged lanes, lanes saved at different moments, a
            state from inside a step at another number of ranks.
    """
    if not isinstance(state, Mapping) or "version" not in state:
        raise CheckpointError(
            "this is not a state of zephon_ft: it has no 'version'. Pass what state_dict() returned, whole"
        )
    version = state["version"]
    if not isinstance(version, int) or version < 1:
        raise CheckpointError(f"the state's version is {version!r}; a whole number >= 1 is expected: it is damaged")
    if version > FORMAT_VERSION:
        raise CheckpointError(
            f"the state has format version {version}, this zephon_ft reads up to {FORMAT_VERSION}: update zephon_ft"
        )
    if damaged := [key for key in ("recipe", "step", "inside_step", "iteration") if key not in state]:
        raise CheckpointError(f"the state has no {damaged}: it is cut short or edited")
    saved_rounds = _saved_rounds(state, lanes)
    step, delivered, saved_world, iteration, began = _numbers(state, lanes)
    missing = [lane for lane in owned if lane_key(lane) not in state]
    if missing:
        raise CheckpointError(
            f"the state lacks {_some(missing)} of this rank; it holds {_some(lanes_in(state))}. States of several "
            "ranks belong together: merge their dicts, or load them with torch.distributed.checkpoint"
        )
    if delivered and saved_world != world:
        raise CheckpointError(
            f"the state was taken inside step {step} ({delivered} lane batches into it) by {saved_world} ranks; it "
            f"loads at {saved_world} ranks only, and this run has {world}. Save at a step boundary to change that"
        )
    # Also the lanes of other ranks, where the state holds them: then every rank finds what is wrong.
    stamps = {lane: _stamp(lane, state[lane_key(lane)]) for lane in lanes_in(state)}
    share = lanes // saved_world
    expected = {lane: step * saved_rounds + (delivered + share - 1 - lane % share) // share for lane in stamps}
    torn = [lane for lane in stamps if stamps[lane].batches != expected[lane]]
    if torn:
        lane = torn[0]
        raise CheckpointError(
            f"lane {lane} stands at batch {stamps[lane].batches}, but step {step} of the state means batch "
            f"{expected[lane]}: ranks saved at different moments (lanes that differ: {_some(torn)}). Save on all ranks "
            "at the same step"
        )
    stamps = {lane: stamps[lane] for lane in owned}
    if other := [lane for lane, stamp in stamps.items() if stamp.mark.flush >> ITERATION_BITS != iteration]:
        raise CheckpointError(f"the state is of iteration {iteration}, but {_some(other)} of it is not: it is damaged")
    if saved_rounds != rounds:  # another recipe, which only strict=False accepts: the same place in steps of now
        share = len(owned)
        began = began * saved_rounds // rounds
        step, delivered = divmod(step * saved_rounds * share + delivered, rounds * share)
    return Position(stamps, iteration, began, world, delivered, step)


def lanes_in(state: Mapping[str, Any]) -> list[int]:
    """The lanes that a state holds, ascending."""
    return sorted(int(key[5:]) for key in state if key.startswith("lane.") and key[5:].isdigit())


def _numbers(state: Mapping[str, Any], lanes: int) -> tuple[int, int, int, int, int]:
    """Step, lane batches handed out in it, ranks that saved it, iteration, step at which that began."""
    inside, iteration = state["inside_step"], state["iteration"]
    pairs = [pair if isinstance(pair, (list, tuple)) else [None] for pair in (inside, iteration)]
    numbers = [state["step"], *pairs[0], *pairs[1]]
    if [len(pair) for pair in pairs] != [2, 2] or not all(isinstance(n, int) and n >= 0 for n in numbers):
        raise CheckpointError(
            f"the state's step {state['step']!r}, inside_step {inside!r} and iteration {iteration!r} are not what "
            "state_dict() returns: it is damaged"
        )
    step, delivered, world, number, began = numbers
    if not world or lanes % world:
        raise CheckpointError(f"the state was saved by {world} ranks, which do not divide {lanes} lanes: it is damaged")
    return step, delivered, world, number, began


def _saved_rounds(state: Mapping[str, Any], lanes: int) -> int:
    """Batches of a lane in a step of the run that was saved; its number of lanes is compared."""
    try:
        recipe = json.loads(state["recipe"])
        saved, rounds = recipe["lanes"], recipe["stream"]["batches_per_step"]
    except (TypeError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"the recipe in the state cannot be read ({error!r}): the state is cut short or edited"
        ) from error
    if saved != lanes:
        raise CheckpointError(
            f"the state has {saved} lanes, this pipeline has {lanes}. Lanes are fixed for the life of a run: use "
            f"lanes={saved}"
        )
    return rounds


def _stamp(lane: int, values: Any) -> Stamp:
    if (
        not isinstance(values, (list, tuple))
        or len(values) < 8
        or not all(isinstance(v, int) for v in values)
        or values[-1] != _check(lane, values[:-1])
    ):
        raise CheckpointError(f"{lane_key(lane)} of the state is cut short or edited: {values!r}")
    flush, rows, units, children, batches, *anchor = values[:-1]
    return Stamp(Mark(flush, tuple(anchor), rows), units, children, batches)


def _check(lane: int, values: Sequence[int]) -> int:
    """A checksum that finds an edited or swapped entry."""
    return zlib.crc32(json.dumps([lane, *values]).encode())


def _some(lanes: Iterable[int]) -> str:
    """Lane numbers in few words."""
    listed = list(lanes)
    if not listed:
        return "no lanes"
    shown = ", ".join(map(str, listed[:8])) + (f" and {len(listed) - 8} more" if len(listed) > 8 else "")
    return f"lane{'s' if len(listed) > 1 else ''} {shown}"
