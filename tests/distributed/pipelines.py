"""The pipelines that the ranks run, and their steps; the test's own process runs the same for comparison."""

from __future__ import annotations

from typing import Any

from tests.guarantees.random_pipelines import GEOMETRY, Spec, build, row, tokenizer
from zephon_ft import DataError, Dataset, Pipeline, StaticMixtureWorkSource
from zephon_ft.batch import Batch
from zephon_ft.step_digest import step_digest

LANES = 8
STEPS = 8  # of the straight run
SAVED = 3  # steps before its checkpoint
SIZES = (61, 5)  # rows of the finite data sets; 5 leave lanes without any


def endless(**options: Any) -> Pipeline:
    """Images and text of two data sets, several batches of a lane in a step, flushes on the way."""
    before = ("flat_map", "random_filter")
    spec = Spec("images", (60, 31), (2, 1), LANES, 9, 2, before, "best_fit", 16, (), 2, 1)
    return build(spec, **{"runner": "thread", **options})


def finite(rows: int, remainder: str, **options: Any) -> Pipeline:
    """One pass over a few rows, with images in some."""
    dataset = Dataset.from_rows("d", [row("images", 0, n) for n in range(rows)], shard_rows=17)
    source = StaticMixtureWorkSource([dataset], seed=4, window_rows=9, epochs=1)
    pipe = Pipeline(source, LANES, seed=4, flush_every=5, remainder=remainder).images(GEOMETRY)
    pipe = pipe.tokenize_chat(tokenizer(), "messages").pack(96, max_images=3)
    return pipe.batch(1, ensure_image=remainder == "pad").options(**{"runner": "thread", **options})


def steps(pipe: Pipeline, count: int, group: Any = None) -> list[str]:
    """The digests of the next steps."""
    with iter(pipe) as stream:
        return [step_digest(next_step(pipe, stream), group=group) for _ in range(count)]


def next_step(pipe: Pipeline, stream: Any) -> list[Batch]:
    """This rank's batches of the next step."""
    return [next(stream) for _ in range(pipe.grad_accumulation)]


def one_pass(pipe: Pipeline, group: Any = None) -> dict[str, Any]:
    """The digests of all steps of a finite pass, and how it ended."""
    found: dict[str, Any] = {"digests": [], "valid": [], "error": None}
    try:
        with iter(pipe) as stream:
            for batch in stream:
                batches = [batch, *(next(stream) for _ in range(pipe.grad_accumulation - 1))]
                found["digests"].append(step_digest(batches, group=group))
                found["valid"].append(sum(part.num_valid_tokens for part in batches))
    except DataError as error:
        found["error"] = str(error)
    return found
