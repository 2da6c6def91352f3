"""The demo's pipelines: packed vision-language batches, or packed text where there is nothing else."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zephon_ft.demo.reading import Reading, as_conversation
from zephon_ft.pipeline import Pipeline
from zephon_ft.vision.qwen2_5_vl import Qwen2_5_VL
from zephon_ft.work.mixture import StaticMixtureWorkSource

if TYPE_CHECKING:
    from zephon_ft.io.dataset import Dataset
    from zephon_ft.text.tokenizer import LoadedTokenizer

# The embedded data set, which needs no looking at.
EMBEDDED = Reading(images=("images",), kind="chat", text=("messages",), layout="OpenAI")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What decides the demo's batches.

    Attributes:
        lanes, seed: of the pipeline.
        batch: rows in a batch.
        max_length: tokens in a row.
        image_tokens: most tokens of an image; a larger one is scaled down.
        buffer_size: rows that are shuffled at a time.
        on_error: "raise", or "skip" for bad rows ("blank" for bad pixels), which are counted.
    """

    lanes: int = 8
    seed: int = 42
    batch: int = 4
    max_length: int = 1024
    image_tokens: int = 256
    buffer_size: int = 64
    on_error: str = "raise"


def demo_pipeline(
    dataset: Dataset, reading: Reading, tokenizer: LoadedTokenizer, recipe: Recipe, *, epochs: int | None = None
) -> Pipeline:
    """Rows to batches, as `reading` says.

    Args:
        dataset: the rows.
        reading: what they hold.
        tokenizer: needs ChatML's and Qwen's tokens, but for plain text.
        recipe: everything else.
        epochs: passes over the data; None is endless.

    Raises:
        ConfigError: options that do not go together, or a tokenizer without the tokens.
    """
    pipeline = Pipeline(
        StaticMixtureWorkSource([dataset], seed=recipe.seed, epochs=epochs),
        lanes=recipe.lanes,
        seed=recipe.seed,
        on_error=recipe.on_error,
        on_decode_error="raise" if recipe.on_error == "raise" else "blank",
    )
    if reading.kind == "text":
        ends = "none" if tokenizer.eos is None else "eos"
        pipeline = pipeline.tokenize(tokenizer, reading.text[0], special_tokens=ends).pack_flat(recipe.max_length)
        return pipeline.shuffle(recipe.buffer_size).batch(recipe.batch)
    field: str | None = reading.text[0]
    if reading.kind != "chat":
        convert = functools.partial(as_conversation, reading_kind=reading.kind, text=reading.text)
        pipeline, field = pipeline.map(convert, version="1"), "texts"
    if reading.images:
        geometry = Qwen2_5_VL(max_pixels=28 * 28 * recipe.image_tokens)
        pipeline = pipeline.images(geometry, reading.images)
        pipeline = pipeline.tokenize_chat(tokenizer, field, images="prepend")
    else:
        pipeline = pipeline.tokenize_chat(tokenizer, field, image_tokens=None)
    pipeline = pipeline.pack(recipe.max_length, over_long="truncate_text")
    return pipeline.shuffle(recipe.buffer_size).batch(recipe.batch)
