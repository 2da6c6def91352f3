"""Every runner: a run that stops goes on in a fresh process, at another number of ranks, with the same bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.conformance.runners import known_runners
from tests.guarantees.random_pipelines import Spec, build

CASES = {
    "rows": Spec("rows", (37, 11), (3, 1), 4, 5, 2, ("flat_map", "random_filter"), "", 7, ("random_map",), 2, 1),
    "images": Spec("images", (37, 9), (3, 1), 4, 12, 1, ("random_filter",), "first_fit", 4, (), 2, 2),
}
STOP, STEPS = 3, 6


def leg(case: str, runner: str, world: int, steps: int, state: dict[str, Any] | None) -> dict[str, Any]:
    """Some steps of every rank: the lane batches by (step, lane, index), and the state behind them."""
    spec, digests, after = CASES[case], {}, {}
    for rank in range(world):
        pipe = build(spec, rank=rank, world_size=world, runner=runner, workers=2)
        if state is not None:
            pipe.load_state_dict(state)
        with iter(pipe) as stream:
            for _ in range(steps * spec.lanes // world * spec.batches_per_step):
                batch = next(stream)
                digests[f"{batch.step} {batch.lane} {batch.index}"] = batch.digest()
        after.update(pipe.state_dict())
    return {"digests": digests, "state": after}


def in_a_fresh_process(*arguments: Any) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.conformance.test_resume", json.dumps(arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout)


@pytest.mark.parametrize("case", CASES)
def test_a_stopped_run_goes_on_in_a_fresh_process_at_another_world_size(case, runner):
    whole = leg(case, "inline", 1, STEPS, None)["digests"]
    first = in_a_fresh_process(case, runner, 1, STOP, None)
    second = in_a_fresh_process(case, runner, 2, STEPS - STOP, first["state"])
    assert first["digests"] | second["digests"] == whole
    assert len(first["digests"]) == len(second["digests"]) > 0


if __name__ == "__main__":
    known_runners()
    print(json.dumps(leg(*json.loads(sys.argv[1]))))
