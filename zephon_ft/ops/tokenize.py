"""tokenize: a text field becomes `input_ids`.

Stateless. Text is ordinary text: a literal such as ``<|endoftext|>`` in it never becomes a special id, and special
tokens are added only where `special_tokens` says so. Each worker thread encodes with a tokenizer of its own,
which remembers words where that changes no id: see `zephon_ft.text.words`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from zephon_ft.errors import ConfigError, DataError
from zephon_ft.ops.base import Operator, RecordWork, WorkContext
from zephon_ft.record import Record
from zephon_ft.text.tokenizer import LoadedTokenizer, load_tokenizer

_ABSENT = object()


@dataclass(frozen=True)
class Tokenize(Operator):
    """Encode a text field. The record keeps `input_ids` (int32, 1-D), the fields named in `keep`, and its media.

    A text without any token is dropped and counted as ``dropped by tokenize: empty text``.

    Args:
        tokenizer: anything that `zephon_ft.text.tokenizer.load_tokenizer` takes.
        field: name of the text field; ``a.b`` is key b of field a.
        special_tokens: "none", "bos", "eos" or "bos_eos": what is put around the text.
        keep: further fields that later operators can see.
        max_length: longest `input_ids`; a longer text is cut (and gets no eos) and counted as ``cut by tokenize``.
        on_missing: "error", or "drop" (counted) for a record without the field or with null in it.

    Raises:
        ConfigError: an unknown option or a special token that the tokenizer does not know.
        DataError: (running) the field is not there, or is not text.
    """

    tokenizer: LoadedTokenizer
    field: str = "text"
    special_tokens: str = "none"
    keep: tuple[str, ...] = ()
    max_length: int | None = None
    on_missing: str = "error"

    name = "tokenize"

    def __init__(
        self,
        tokenizer: Any,
        field: str = "text",
        *,
        special_tokens: str = "none",
        keep: tuple[str, ...] | list[str] = (),
        max_length: int | None = None,
        on_missing: str = "error",
    ) -> None:
        loaded = load_tokenizer(tokenizer)
        if special_tokens not in ("none", "bos", "eos", "bos_eos"):
            raise ConfigError(f'tokenize: special_tokens={special_tokens!r}; choose "none", "bos", "eos" or "bos_eos"')
        for side in ("bos", "eos"):
            if side in special_tokens and getattr(loaded, side) is None:
                raise ConfigError(
                    f"tokenize: special_tokens={special_tokens!r}, but {loaded.source} names no {side} token; "
                    f'pass load_tokenizer(..., {side}="<the token>")'
                )
        if on_missing not in ("error", "drop"):
            raise ConfigError(f'tokenize: on_missing={on_missing!r}; choose "error" or "drop"')
        around = 0 if special_tokens == "none" else len(special_tokens.split("_"))
        if max_length is not None and max_length <= around:
            raise ConfigError(f"tokenize: max_length={max_length} leaves no room for text; at least {around + 1}")
        values = (loaded, field, special_tokens, checked_keep(self.name, keep), max_length, on_missing)
        for attribute, value in zip(self.__dataclass_fields__, values, strict=True):
            object.__setattr__(self, attribute, value)

    def bind(self, context: WorkContext) -> RecordWork:
        first, inner = self.tokenizer.encoders()
        bos, eos = (np.array(self._around(side), np.int32) for side in ("bos", "eos"))
        encode = inner.encode if len(bos) else first.encode
        field, keep, count, longest = self.field, self.keep, context.count, self.max_length
        around = len(bos) + len(eos) > 0
        may_drop = self.on_missing == "drop"

        def work(record: Record) -> Record | None:
            text = lookup(record.fields, field)
            if type(text) is not str:
                if may_drop and (text is _ABSENT or text is None):
                    count("dropped by tokenize: no text")
                    return None
                raise not_usable("tokenize", record.fields, field, text, "text")
            ids = encode(text)
            if not len(ids):
                count("dropped by tokenize: empty text")
                return None
            if around:
                ids = np.concatenate((bos, ids, eos))
            if longest is not None and len(ids) > longest:
                ids = ids[:longest]
                count("cut by tokenize")
            kept = kept_fields("tokenize", record.fields, keep)
            kept["input_ids"] = ids
            record.fields = kept
            return record

        return work

    def _around(self, side: str) -> list[int]:
        """Ids that `special_tokens` puts on one side of a text."""
        literal = getattr(self.tokenizer, side)
        return [self.tokenizer.token_id(literal)] if side in self.special_tokens else []

    def reads(self) -> frozenset[str]:
        return frozenset({self.field.split(".")[0], *self.keep})

    def needs(self) -> tuple[frozenset[str], ...]:
        """All it reads, but for a field that may be missing."""
        needed = self.reads() if self.on_missing == "error" else frozenset(self.keep)
        return tuple(frozenset({name}) for name in sorted(needed))

    def keeps(self) -> frozenset[str]:
        return frozenset(self.keep)

    def recipe(self) -> dict[str, Any]:
        return {
            "op": self.name,
            "tokenizer": self.tokenizer.content_hash,
            "field": self.field,
            "special_tokens": self.special_tokens,
            "special_ids": [*self._around("bos"), *self._around("eos")],
            "keep": list(self.keep),
            "max_length": self.max_length,
            "on_missing": self.on_missing,
        }


def lookup(fields: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path of nested mappings, or a marker that is equal to nothing where it is not there."""
    value: Any = fields
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return _ABSENT
        value = value[name]
    return value


def not_usable(operator: str, fields: Mapping[str, Any], path: str, value: Any, expected: str) -> DataError:
    """The error for a field that is not there, or holds something else."""
    if value is _ABSENT:
        there = ", ".join(_paths(fields)) or "no other that is read"
        return DataError(f"{operator}: no field {path!r}; there: {there}")
    found = "null" if value is None else type(value).__name__
    return DataError(f"{operator}: field {path!r} is {found}, expected {expected}")


def kept_fields(operator: str, fields: Mapping[str, Any], keep: tuple[str, ...]) -> dict[str, Any]:
    """A new dict of the fields in `keep`."""
    try:
        return {name: fields[name] for name in keep}
    except KeyError as error:
        raise DataError(f"{operator}: no field {error} to keep; there: {', '.join(_paths(fields))}") from None


def checked_keep(operator: str, keep: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """`keep` as a tuple of names that the operator does not write itself."""
    if isinstance(keep, str):
        raise ConfigError(f"{operator}: keep is a list of names, got the string {keep!r}")
    for name in ("input_ids", "labels"):
        if name in keep:
            raise ConfigError(f"{operator}: keep={list(keep)}, but it makes {name!r} itself")
    return tuple(keep)


def _paths(fields: Mapping[str, Any]) -> list[str]:
    paths = []
    for name, value in fields.items():
        paths += [f"{name}.{inner}" for inner in value] if isinstance(value, dict) and value else [name]
    return paths
