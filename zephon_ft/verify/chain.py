"""Runs: straight, and stopped and resumed at other world sizes and thread counts.

The ranks of a run work one after another in this process, each on a pipeline of its own that was built anew; a state
goes through JSON, as a checkpoint does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from zephon_ft.errors import ZephonError
from zephon_ft.pipeline import Pipeline
from zephon_ft.verify.source import Make
from zephon_ft.verify.summary import Summary, summarize

Place = tuple[int, int]  # lane, number of the batch within it
NEUTRAL: dict[str, Any] = {"mesh": None, "grad_accumulation": None, "lanes_per_batch": 1, "strict": False}


@dataclass(frozen=True, slots=True)
class Leg:
    """A stretch of whole steps at one world size and thread count."""

    world: int
    threads: int
    begin: int
    end: int


def straight_run(make: Make, steps: int) -> list[Summary]:
    """The lane batches of the first `steps` steps, in order, by one rank on one thread without a stop.

    A finite source may end before.
    """
    pipe = _on_rank(make(), 0, 1, 1)
    return list(_take(pipe, steps))


def legs_of(chain: int, worlds: list[int], threads: list[int], cuts: list[int], steps: int) -> list[Leg]:
    """Chain number `chain`: it begins at world number `chain` and goes on with the next one at every cut.

    So the chains of all worlds together run every step at every world size.
    """
    edges = [0, *cuts, steps]
    return [
        Leg(worlds[(chain + i) % len(worlds)], threads[(chain + i) % len(threads)], edges[i], edges[i + 1])
        for i in range(len(edges) - 1)
    ]


def chain_run(make: Make, legs: list[Leg]) -> tuple[dict[Place, Summary], str]:
    """The lane batches of a chain of stops, and the error that ended it early ('' for none)."""
    taken: dict[Place, Summary] = {}
    state: str | None = None
    for leg in legs:
        merged: dict[str, Any] = {}
        for rank in range(leg.world):
            try:
                pipe = _on_rank(make(), rank, leg.world, leg.threads)
                if state is not None:
                    pipe.load_state_dict(json.loads(state))
                for summary in _take(pipe, leg.end - leg.begin):
                    taken[summary.lane, summary.index] = summary
                merged.update(pipe.state_dict())
            except ZephonError as error:
                return taken, f"rank {rank} of {leg.world}: {type(error).__name__}: {error}"
        state = json.dumps(merged)
    return taken, ""


def image_token_id(pipe: Pipeline) -> int | None:
    """What stands in `input_ids` for an image, where the pipeline has any."""
    for operator in (step.operator for segment in pipe.plan().segments for step in segment.steps):
        tokens = getattr(operator, "image_tokens", None)
        if tokens is not None:
            return int(operator.tokenizer.token_id(tokens[1]))  # type: ignore[attr-defined]
    return None


def _on_rank(pipe: Pipeline, rank: int, world: int, threads: int) -> Pipeline:
    # Of a finite source no rank is asked for more steps than all of them can deliver.
    pads = pipe.plan().remainder == "pad"
    agree = (lambda possible: True) if pads and world > 1 else (lambda possible: possible)
    return pipe.options(**NEUTRAL, rank=rank, world_size=world, runner="thread", workers=threads, agree=agree)


def _take(pipe: Pipeline, steps: int) -> Iterator[Summary]:
    count, token = steps * pipe.grad_accumulation, image_token_id(pipe)
    with iter(pipe) as stream:
        for _ in range(count):
            batch = next(stream, None)
            if batch is None:
                return
            yield summarize(batch, token)
