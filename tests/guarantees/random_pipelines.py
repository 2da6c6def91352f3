"""Random pipelines: what hypothesis draws, and how it is built. Shared by the determinism and the resume tests."""

from __future__ import annotations

import functools
import io
import time
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from zephon_ft import Dataset, Pipeline, StaticMixtureWorkSource
from zephon_ft.text.tokenizer import LoadedTokenizer, demo_tokenizer_path, load_tokenizer
from zephon_ft.vision.qwen2_5_vl import Qwen2_5_VL

WORDS = ("the", "red", "circle", "is", "left of", "a", "blue", "square", "and three", "small", "triangles under it")
DELAY = 0.0  # seconds that `salt` takes for some rows; a test may change it
GEOMETRY = Qwen2_5_VL(min_pixels=28 * 28, max_pixels=28 * 28 * 6)


@dataclass(frozen=True)
class Spec:
    """A pipeline as plain values, so that a failing case prints everything that is needed to build it again."""

    kind: str  # "rows", "text" or "images"
    sizes: tuple[int, ...]  # rows of each dataset
    weights: tuple[int, ...]
    lanes: int
    flush_every: int
    batches_per_step: int
    before: tuple[str, ...]  # operators on rows
    pack: str
    shuffle: int
    after: tuple[str, ...]  # operators behind the shuffle (rows only)
    batch: int
    seed: int
    epochs: int | None = None
    remainder: str = "drop"
    exhausted: str = "redistribute"


ON_ROWS = ("map", "random_map", "filter", "flat_map", "random_filter", "capped_map")


@st.composite
def specs(draw: Any, kinds: tuple[str, ...] = ("rows", "text", "images"), finite: bool = False) -> Spec:
    kind = draw(st.sampled_from(kinds))
    count = draw(st.integers(1, 3))
    return Spec(
        kind=kind,
        sizes=tuple(draw(st.lists(st.integers(1, 60), min_size=count, max_size=count))),
        weights=tuple(draw(st.lists(st.integers(1, 5), min_size=count, max_size=count))),
        lanes=draw(st.sampled_from([1, 2, 3, 4, 8, 16])),
        flush_every=draw(st.sampled_from([1, 2, 7, 20, 100, 10_000])),
        batches_per_step=draw(st.sampled_from([1, 2])),
        before=tuple(draw(st.lists(st.sampled_from(ON_ROWS), max_size=3))),
        pack=draw(
            st.sampled_from(["best_fit", "first_fit", "flat", "none"] if kind == "text" else ["best_fit", "first_fit"])
        ),
        shuffle=draw(st.sampled_from([0, 0, 1, 5, 40])),
        after=tuple(draw(st.lists(st.sampled_from(ON_ROWS), max_size=2))) if kind == "rows" else (),
        batch=draw(st.integers(1, 5)),
        seed=draw(st.integers(0, 3)),
        epochs=draw(st.sampled_from([1, 2])) if finite else None,
        remainder=draw(st.sampled_from(["drop", "pad"])) if finite and kind != "rows" else "drop",
        exhausted=draw(st.sampled_from(["redistribute", "stop", "repeat"])) if finite else "redistribute",
    )


def build(spec: Spec, **options: Any) -> Pipeline:
    """The pipeline of a spec, from fresh objects."""
    datasets = [
        Dataset.from_rows(f"d{i}", [row(spec.kind, i, n) for n in range(size)], shard_rows=17)
        for i, size in enumerate(spec.sizes)
    ]
    source = StaticMixtureWorkSource(
        datasets,
        {f"d{i}": w for i, w in enumerate(spec.weights)},
        seed=spec.seed,
        window_rows=9,
        epochs=spec.epochs,
        exhausted=spec.exhausted,
    )
    pipe = Pipeline(
        source,
        spec.lanes,
        seed=spec.seed,
        flush_every=spec.flush_every,
        batches_per_step=spec.batches_per_step,
        remainder=spec.remainder,
    )
    for name in spec.before:
        pipe = add(pipe, name)
    if spec.kind == "images":
        pipe = pipe.images(GEOMETRY).tokenize_chat(tokenizer(), "messages")
    elif spec.kind == "text":
        pipe = pipe.tokenize(tokenizer())
    if spec.kind != "rows":
        if spec.pack == "flat":
            pipe = pipe.pack_flat(24)
        elif spec.pack != "none":
            pipe = pipe.pack(96, algorithm=spec.pack, open_bins=3, max_images=3)
    if spec.shuffle:
        pipe = pipe.shuffle(spec.shuffle)
    for name in spec.after:
        pipe = add(pipe, name)
    return pipe.batch(spec.batch).options(**options)


def add(pipe: Pipeline, name: str) -> Pipeline:
    if name == "map":
        return pipe.map(stretch)
    if name == "capped_map":
        return pipe.map(stretch, parallelism=1)
    if name == "random_map":
        return pipe.map(salt)
    if name == "filter":
        return pipe.filter(keep_some)
    if name == "random_filter":
        return pipe.filter(keep_by_chance)
    return pipe.flat_map(children)


def stretch(row: dict) -> dict:
    row["text"] = row["text"] + " more"
    return row


def salt(row: dict, rng: Any) -> dict:
    if DELAY and row["n"] % 7 == 0:
        time.sleep(DELAY)
    row["salt"] = int(rng.integers(1 << 30))
    return row


def keep_some(row: dict) -> bool:
    return row["n"] % 5 != 3


def keep_by_chance(row: dict, rng: Any) -> bool:
    return rng.random() < 0.8


def children(row: dict) -> list[dict]:
    return [{**row, "child": c, "text": row["text"] + " " + WORDS[c]} for c in range(1 + row["n"] % 3)]


@functools.cache
def tokenizer() -> LoadedTokenizer:
    return load_tokenizer(demo_tokenizer_path())  # immutable; each worker works with a clone


@functools.cache
def picture(n: int) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (20 + 9 * (n % 7), 20 + 13 * (n % 5)), (n % 256, 7 * n % 256, 30)).save(out, "PNG")
    return out.getvalue()


def row(kind: str, dataset: int, n: int) -> dict:
    text = " ".join(WORDS[(n * k + dataset) % len(WORDS)] for k in range(1, 2 + (n * 7) % 11))
    out: dict[str, Any] = {"n": n, "text": text}
    if kind == "images":
        count = n % 3
        out["images"] = [picture(n + k) for k in range(count)]
        parts = [{"type": "image"} for _ in range(count)] + [{"type": "text", "text": text}]
        out["messages"] = [{"role": "user", "content": parts}, {"role": "assistant", "content": f"answer {n}"}]
    return out


def take(pipe: Pipeline, steps: int) -> list[tuple[int, int, str]]:
    """(lane, index, digest) of every batch of the first `steps` steps."""
    lanes, rounds = pipe.plan().lanes, pipe.plan().batches_per_step
    stream = iter(pipe)
    try:
        return [(b.lane, b.index, b.digest()) for _, b in zip(range(steps * lanes * rounds), stream)]
    finally:
        stream.close()
