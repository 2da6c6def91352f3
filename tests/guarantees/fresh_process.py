"""The same run in two processes: ``first`` stops each case in the middle, ``second`` goes on with it at another size.

Run by test_resume: ``python -m tests.guarantees.fresh_process first|second FOLDER``. Each writes, per case, the lane
batches that it delivered, and ``first`` the state.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.guarantees.random_pipelines import Spec, build

STEPS = 6  # of each case
STOP = 3
_SHAPES: list[tuple[Any, ...]] = [
    ("rows", ("flat_map", "random_filter"), "", 0, ()),
    ("rows", ("random_map",), "", 7, ("flat_map", "filter")),
    ("text", ("map",), "best_fit", 5, ()),
    ("text", ("filter",), "flat", 3, ()),
    ("images", ("random_filter",), "first_fit", 4, ()),
]
CASES = [
    Spec(kind, (37, 9 + number), (3, 1), lanes, flush, rounds, before, pack, shuffle, after, 2, number)
    for number, (kind, before, pack, shuffle, after) in enumerate(_SHAPES)
    for lanes, flush, rounds in ((2, 5, 1), (4, 12, 2), (4, 1000, 1), (8, 30, 1))
]


def main(part: str, folder: Path) -> None:
    for number, spec in enumerate(CASES):
        world = 2 if part == "first" else spec.lanes
        before = json.loads((folder / f"first-{number}.json").read_text())["state"] if part == "second" else None
        steps = STOP if before is None else STEPS - STOP
        entries: list[tuple[int, int, int, str]] = []
        state: dict[str, Any] = {}
        for rank in range(world):
            runner = "thread" if (rank + number) % 4 == 0 else "inline"
            pipe = build(spec, rank=rank, world_size=world, runner=runner, workers=2)
            if before is not None:
                pipe.load_state_dict(before)
            with iter(pipe) as stream:
                for _ in range(steps * spec.lanes // world * spec.batches_per_step):
                    batch = next(stream)
                    entries.append((batch.step, batch.lane, batch.index, batch.digest()))
            state.update(pipe.state_dict())
        (folder / f"{part}-{number}.json").write_text(json.dumps({"entries": entries, "state": state}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
