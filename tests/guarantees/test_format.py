"""Checkpoints of every published format still load, and what follows them is what followed them then.

A file is never written again once its format is published. For a new format:
``python -m tests.guarantees.test_format > tests/data/checkpoint-vN.json``.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.guarantees.random_pipelines import GEOMETRY, tokenizer
from zephon_ft import Dataset, Pipeline, StaticMixtureWorkSource
from zephon_ft.demo.png import encode_png
from zephon_ft.engine.checkpoint import FORMAT_VERSION

FILES = sorted((Path(__file__).parents[1] / "data").glob("checkpoint-v*.json"))
STEPS = 4  # that follow
KINDS = ("endless", "finite")


def conversation(n: int) -> dict[str, Any]:
    pixels = np.arange((20 + n) * 40, dtype=np.uint32).reshape(20 + n, 40) % 3
    pictures = [encode_png(pixels.astype(np.uint8), [(n, 0, 0), (0, 200, 0), (9, 9, 90)])] * (n % 3)
    asked = [{"type": "image"} for _ in pictures] + [{"type": "text", "text": f"question {n}, " * (1 + n % 4)}]
    answered = {"role": "assistant", "content": f"answer {n * n}"}
    return {"n": n, "images": pictures, "messages": [{"role": "user", "content": asked}, answered]}


def keep(row: dict) -> bool:
    return row["n"] % 7 != 2


def twice(row: dict) -> list[dict]:
    return [row] * (1 + row["n"] % 2)


def pipeline(kind: str, **options: Any) -> Pipeline:
    """What the checkpoints are of; it must not change."""
    datasets = [
        Dataset.from_rows(name, [conversation(n) for n in range(size)]) for name, size in (("a", 50), ("b", 21))
    ]
    finite = {"epochs": 1, "exhausted": "repeat"} if kind == "finite" else {}
    source = StaticMixtureWorkSource(datasets, {"a": 2, "b": 1}, seed=3, window_rows=20, **finite)
    pipe = Pipeline(
        source, 4, seed=5, flush_every=64, batches_per_step=2, remainder="pad" if kind == "finite" else "drop"
    )
    pipe = pipe.filter(keep, version="1").flat_map(twice, version="1").images(GEOMETRY)
    pipe = pipe.tokenize_chat(tokenizer(), "messages").pack(128, open_bins=3).shuffle(3).batch(2)
    return pipe.options(runner="inline", **options)


def make() -> dict[str, Any]:
    """A new file: states, and the digests (without pixels) of what follows them."""
    made: dict[str, Any] = {}
    for kind, world, steps in (("endless", 2, 9), ("finite", 1, 3)):  # step 3 lies in the second epoch
        state: dict[str, Any] = {}
        for rank in range(world):
            pipe = pipeline(kind, rank=rank, world_size=world)
            batches = itertools.chain.from_iterable(itertools.repeat(pipe))  # over ends of epochs
            for _ in range(steps * 8 // world):
                next(batches)
            state.update(pipe.state_dict())
        made[kind] = {"state": state, "follows": following(pipeline(kind), state)}
    return made


def following(pipe: Pipeline, state: dict[str, Any]) -> list[tuple[int, int, int, str]]:
    """(step, lane, number, digest) of the lane batches of the next `STEPS` steps, over ends of epochs."""
    pipe.load_state_dict(state, strict="stream")  # decoders differ between machines
    batches = itertools.islice(itertools.chain.from_iterable(itertools.repeat(pipe)), STEPS * 8)
    return [(batch.step, batch.lane, batch.index, batch.digest(pixels=False)) for batch in batches]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_checkpoint_of_every_format_loads_and_goes_on_as_it_did(file: Path, kind: str):
    golden = json.loads(file.read_text())[kind]
    assert [list(entry) for entry in following(pipeline(kind), golden["state"])] == golden["follows"]


def test_the_format_of_now_is_among_them():
    assert [file.stem for file in FILES] == [f"checkpoint-v{n}" for n in range(1, FORMAT_VERSION + 1)]


if __name__ == "__main__":
    print(json.dumps(make(), indent=1))
