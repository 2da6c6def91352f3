"""Verbs: the operators of the package by name. Each returns a new pipeline with one operator more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from zephon_ft.ops.base import Operator
from zephon_ft.ops.batch import BatchOp
from zephon_ft.ops.filter import Filter
from zephon_ft.ops.flat_map import FlatMap
from zephon_ft.ops.map import Map
from zephon_ft.ops.pack import Pack
from zephon_ft.ops.pack_flat import PackFlat
from zephon_ft.ops.shuffle import Shuffle

if TYPE_CHECKING:
    from zephon_ft.pipeline import Pipeline
    from zephon_ft.vision.geometry import Geometry

Function = Callable[..., Any]


class Verbs(ABC):
    """What `Pipeline` can be told to do with rows."""

    _operators: tuple[Operator, ...]

    @abstractmethod
    def apply(self, operator: Operator) -> Pipeline:
        """Add an operator."""

    def map(self, function: Function, *, version: str | None = None, parallelism: int | None = None) -> Pipeline:
        """Replace each row by ``fn(row)`` or ``fn(row, rng)``, a dict."""
        return self.apply(Map(function, version, parallelism))

    def filter(self, function: Function, *, version: str | None = None, parallelism: int | None = None) -> Pipeline:
        """Keep the rows for which ``fn(row)`` is true."""
        return self.apply(Filter(function, version, parallelism))

    def flat_map(self, function: Function, *, version: str | None = None, parallelism: int | None = None) -> Pipeline:
        """Replace each row by the rows of ``fn(row)``, an iterable of dicts."""
        return self.apply(FlatMap(function, version, parallelism))

    def images(self, geometry: Geometry, field: str | Sequence[str] = "images", **options: Any) -> Pipeline:
        """Take a row's images as media: sizes and token counts now, pixels when the batch is filled.

        See `zephon_ft.ops.images.images` for the options.
        """
        from zephon_ft.ops.images import images

        return self.apply(images(geometry, field, **options))

    def tokenize(self, tokenizer: Any, field: str = "text", **options: Any) -> Pipeline:
        """Turn a text field into `input_ids`; see `zephon_ft.ops.tokenize.Tokenize` for the options."""
        from zephon_ft.ops.tokenize import Tokenize

        return self.apply(Tokenize(tokenizer, field, **options))

    def tokenize_chat(self, tokenizer: Any, field: str | None = None, **options: Any) -> Pipeline:
        """Turn a conversation into `input_ids` and `labels`, an image into its tokens.

        The image tokens are those of the geometry that `images` got, unless ``image_tokens=`` is given. See
        `zephon_ft.ops.tokenize_chat.TokenizeChat` for the options.
        """
        from zephon_ft.ops.tokenize_chat import TokenizeChat

        geometry = next((op.geometry for op in self._operators if hasattr(op, "geometry")), None)
        written = None if geometry is None else (geometry.prefix, geometry.image_token, geometry.suffix)
        options.setdefault("image_tokens", written)
        return self.apply(TokenizeChat(tokenizer, field=field, **options))

    def pack(self, max_length: int, **options: Any) -> Pipeline:
        """Pack whole documents into rows of `max_length`; see `zephon_ft.ops.pack.Pack` for the options."""
        return self.apply(Pack(max_length, **options))

    def pack_flat(self, max_length: int, **options: Any) -> Pipeline:
        """Cut continuous text into rows of exactly `max_length`; see `zephon_ft.ops.pack_flat.PackFlat`."""
        return self.apply(PackFlat(max_length, **options))

    def shuffle(self, buffer_size: int, seed: int | None = None) -> Pipeline:
        """Shuffle rows or records inside a buffer of `buffer_size`, lane by lane, within each flush interval."""
        return self.apply(Shuffle(buffer_size, seed))

    def batch(self, size: int | None = None, **options: Any) -> Pipeline:
        """End the pipeline with batches of `size` units, or of ``tokens=``; see `zephon_ft.ops.batch.BatchOp`."""
        return self.apply(BatchOp(size, **options))
