"""The job as a pipeline of this package: the same operators for its sides, for the bare loop and for other loaders."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from zephon_ft.ab.first_rows import FirstRows
from zephon_ft.ab.job import CHAT_TOKENS, MODES, Job
from zephon_ft.demo.reading import Reading, as_conversation
from zephon_ft.errors import ConfigError
from zephon_ft.io.dataset import Dataset
from zephon_ft.ops.base import Operator
from zephon_ft.ops.images import Images, images
from zephon_ft.ops.map import Map
from zephon_ft.pipeline import Pipeline
from zephon_ft.vision.geometry import Geometry
from zephon_ft.vision.qwen2_5_vl import Qwen2_5_VL
from zephon_ft.vision.square import Square
from zephon_ft.work.mixture import StaticMixtureWorkSource

if TYPE_CHECKING:
    from zephon_ft.text.tokenizer import LoadedTokenizer

_TEXT_KEYS = ("user", "assistant", "content", "value", "text")  # of a conversation's turns and their parts


def geometry(job: Job) -> Geometry:
    """What images are resized to."""
    if job.mode == "fetch":
        return Square(size=job.size)
    return Qwen2_5_VL(min_pixels=job.min_pixels, max_pixels=job.max_pixels)


def reading(job: Job) -> Reading:
    """Which fields are read, and how."""
    how = job.reading
    return Reading(tuple(how["images"]), how["kind"], tuple(how["text"]), how["layout"])


def possible_modes(how: Mapping[str, Any]) -> list[str]:
    """The modes that data have something for: images to fetch, answers to mask."""
    lacking = {"fetch": not how["images"], "full": how["kind"] == "text"}
    return [mode for mode in MODES if not lacking.get(mode)]


def operators(job: Job, *, whole_texts: bool = False) -> list[Operator]:
    """The stateless operators, from a row to what is packed or batched.

    `whole_texts` asks the tokenizers library for every text as it is, so that no words are remembered.
    """
    how = reading(job)
    if job.mode == "fetch":
        return [_images(job, geometry(job))]
    if job.mode == "text":
        from zephon_ft.ops.tokenize import Tokenize

        return [Map(functools.partial(plain_text, names=how.text), "1"), Tokenize(_tokenizer(job, whole_texts), "text")]
    from zephon_ft.ops.tokenize_chat import TokenizeChat

    loaded = _tokenizer(job, whole_texts)
    made: list[Operator] = []
    field = how.text[0]
    if how.kind != "chat":
        made.append(Map(functools.partial(as_conversation, reading_kind=how.kind, text=how.text), "1"))
        field = "texts"
    if not how.images:
        return [*made, TokenizeChat(loaded, field=field, image_tokens=None)]
    kind = geometry(job)
    made.append(_images(job, kind))
    written = (kind.prefix, kind.image_token, kind.suffix)
    return [*made, TokenizeChat(loaded, field=field, image_tokens=written, images="prepend")]


def _images(job: Job, kind: Geometry) -> Images:
    return images(kind, reading(job).images, scaled_decode=job.scaled_decode, decoder=job.decoder)


def pipeline(job: Job) -> Pipeline:
    """The job's pipeline, without its run-time options."""
    source = StaticMixtureWorkSource([dataset(job)], seed=job.seed, epochs=job.passes)
    ends = "pad" if job.passes is not None and job.mode != "fetch" else "drop"
    made = Pipeline(source, lanes=job.lanes, seed=job.seed, remainder=ends)
    for operator in operators(job):
        made = made.apply(operator)
    if job.mode == "fetch":
        return made.batch(1)
    return made.pack(job.pack_length).batch(job.batch)


def dataset(job: Job) -> Dataset:
    """The job's rows, with the fields that its mode needs."""
    how = reading(job)
    wanted = {"fetch": how.images, "text": how.text}.get(job.mode, (*how.images, *how.text))
    columns = frozenset(name.split(".")[0] for name in wanted)
    whole = Dataset.from_path("data", job.data, columns=columns)
    return whole if job.rows is None else FirstRows(whole, job.rows)


def tokenizer(job: Job) -> LoadedTokenizer:
    """The job's tokenizer, with the structural tokens that Qwen's layout needs (GPT-2's has none of them)."""
    from tokenizers import Tokenizer

    from zephon_ft.text.tokenizer import demo_tokenizer_path, load_tokenizer

    path = job.tokenizer or str(demo_tokenizer_path())
    try:
        loaded = Tokenizer.from_file(path)
    except Exception as error:  # the library raises bare Exception
        raise ConfigError(f"--tokenizer {path}: not a tokenizer.json: {error}") from error
    loaded.add_special_tokens([name for name in CHAT_TOKENS if loaded.token_to_id(name) is None])
    return load_tokenizer(loaded)


def _tokenizer(job: Job, whole_texts: bool) -> LoadedTokenizer:
    loaded = tokenizer(job)
    return dataclasses.replace(loaded, separable=False) if whole_texts else loaded


def plain_text(row: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """All text of a row's fields, a line for each piece, under ``"text"``."""
    values: list[Any] = []
    for name in names:
        value: Any = row
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        values.append(value)
    return {"text": "\n".join(_pieces(values))}


def _pieces(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _pieces(item)
    elif isinstance(value, Mapping):
        for key in _TEXT_KEYS:
            if key in value:
                yield from _pieces(value[key])
