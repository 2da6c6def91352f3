"""Stop-and-resume chains: a pipeline run in several legs, each on fresh objects, against the straight run.

The ranks of a leg run one after another in this process. Of a finite source they have to agree on every step: each is
told what the straight run did, and what they said is compared with it afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from math import gcd, inf
from typing import Any

from hypothesis import strategies as st

from zephon_ft import Pipeline
from zephon_ft.engine.ownership import divisors

Build = Callable[..., Pipeline]  # build(**options): the pipeline, from fresh objects
Entry = tuple[int, int, int, str]  # step, lane, number within the lane, digest


@dataclass(frozen=True)
class Leg:
    """One stretch between two stops.

    Attributes:
        world: ranks.
        joined: lane batches in each delivered batch.
        workers: workers of the runner; 0 is the inline runner.
        prefetch: as in `Options`.
        batches: delivered batches of each rank.
        see_end: where the last batch ends an epoch, also take the end of the iteration before saving.
        runner: where there are workers.
    """

    world: int
    joined: int
    workers: int
    prefetch: int
    batches: int
    see_end: bool = False
    runner: str = "thread"


@dataclass(frozen=True)
class Straight:
    """The run without a stop: every lane batch in order, and the step before which each iteration ended."""

    lanes: int
    rounds: int
    entries: list[Entry]
    ends: list[int]

    @property
    def steps(self) -> int:
        return len(self.entries) // (self.lanes * self.rounds)


def straight_run(build: Build, steps: int, iterations: int = 1) -> Straight:
    """One rank, inline: `steps` steps, over up to so many iterations of a finite source."""
    pipe = build(runner="inline")
    lanes, rounds = pipe.plan().lanes, pipe.plan().batches_per_step
    straight = Straight(lanes, rounds, [], [])
    for _ in range(iterations):
        with iter(pipe) as stream:
            for batch in stream:
                straight.entries.append((batch.step, batch.lane, batch.index, batch.digest()))
                if straight.steps == steps:
                    return straight
        straight.ends.append(straight.steps)
    return straight


@st.composite
def chains(draw: Any, lanes: int, rounds: int, steps: int, most: int = 5) -> list[Leg]:
    """1 to `most` stops at random batch boundaries, and a last leg; another world only at step boundaries."""
    legs: list[Leg] = []
    step = inside = world = 0
    for last in [False] * draw(st.integers(1, most)) + [True]:
        if not inside:
            worlds = divisors(lanes)
            world = draw(st.sampled_from([w for w in worlds if w <= 2] * 3 + [w for w in worlds if w <= 8]))
        per_step = lanes // world * rounds  # lane batches of a rank
        joined = draw(st.sampled_from(divisors(gcd(per_step, inside or per_step))))
        left = ((steps - step) * per_step - inside) // joined
        if last:
            batches = left
        elif draw(st.booleans()) and step < steps:  # stop at a step boundary
            batches = (draw(st.integers(step + 1, steps)) - step) * per_step // joined - inside // joined
        else:
            batches = draw(st.integers(0, left))
        workers, prefetch = draw(st.sampled_from([(0, 1), (0, 1), (0, 4), (1, 4), (3, 2)]))
        legs.append(Leg(world, joined, workers, prefetch, batches, draw(st.booleans())))
        more, inside = divmod(inside + batches * joined, per_step)
        step += more
    return legs


def run_chain(build: Build, legs: list[Leg], straight: Straight) -> None:
    """Run the legs one after another and compare every lane batch, in its order, with the straight run."""
    state: str | None = None
    iteration = 0
    taken = dict.fromkeys(range(straight.lanes), 0)  # lane batches so far
    for leg in legs:
        begun = max(-(-count // straight.rounds) for count in taken.values())  # steps that were agreed before
        votes = Votes(straight, iteration, begun)
        merged: dict[str, Any] = {}
        for rank in range(leg.world):
            pipe = build(
                rank=rank,
                world_size=leg.world,
                lanes_per_batch=leg.joined,
                agree=votes.of_rank(),
                workers=leg.workers or 1,
                prefetch=leg.prefetch,
                runner=leg.runner if leg.workers else "inline",
            )
            if state is not None:
                pipe.load_state_dict(json.loads(state))
            expected = [entry for entry in straight.entries if entry[1] in pipe.lanes and entry[2] >= taken[entry[1]]]
            found, ends = deliver(pipe, leg, straight)
            assert found == expected[: leg.batches * leg.joined], f"rank {rank} of {leg}"
            for _, lane, number, _ in found:
                assert number == taken[lane]
                taken[lane] += 1
            merged.update(pipe.state_dict())
        iteration += ends
        votes.check(leg.world, pipe.plan().remainder)
        state = json.dumps(merged)
    assert sum(taken.values()) == len(straight.entries)


def deliver(pipe: Pipeline, leg: Leg, straight: Straight) -> tuple[list[Entry], int]:
    """What one rank delivers in a leg, and how many iterations ended on the way."""
    found: list[Entry] = []
    ends = 0
    stream = iter(pipe)
    try:
        for _ in range(leg.batches):
            batch = next(stream, None)
            if batch is None:
                ends += 1
                stream = iter(pipe)
                batch = next(stream)
            found += [(part.step, part.lane, part.index, part.digest()) for part in batch.parts or (batch,)]
        state = pipe.state_dict()
        at_end = state["step"] in straight.ends[state["iteration"][0] :][:1] and not state["inside_step"][0]
        if leg.see_end and at_end:
            assert next(stream, None) is None
            ends += 1
    finally:
        stream.close()
    return found, ends


@dataclass
class Votes:
    """What the ranks of a leg said about each next step, and what the straight run did."""

    straight: Straight
    iteration: int
    step: int
    said: dict[tuple[int, int], list[bool]] = field(default_factory=dict)

    def of_rank(self) -> Callable[[bool], bool]:
        """`agree` of one rank."""
        iteration, step = self.iteration, self.step

        def agree(possible: bool) -> bool:
            nonlocal iteration, step
            self.said.setdefault((iteration, step), []).append(possible)
            if self.went_on(iteration, step):
                step += 1
                return True
            iteration += 1
            return False

        return agree

    def went_on(self, iteration: int, step: int) -> bool:
        """Whether the straight run delivered this step."""
        ends = self.straight.ends
        return step < (ends[iteration] if iteration < len(ends) else inf)

    def check(self, world: int, remainder: str) -> None:
        """All ranks were asked the same, and together they said what the straight run did."""
        together = any if remainder == "pad" else all
        for place, said in self.said.items():
            assert len(said) == world
            assert together(said) == self.went_on(*place), f"iteration, step {place}: {said}"
