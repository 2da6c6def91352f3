"""tokenize_chat: a conversation and its images become `input_ids`, `labels` and the places of the images.

Stateless. Content is ordinary text whatever it says; each image placeholder becomes as many tokens as the image's
geometry gave it; the assistant's content and the token that ends its turn are trained, nothing else is. See
`zephon_ft.text.chat` for the layouts, `zephon_ft.text.templates` and `zephon_ft.text.encoder` for the rest.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from zephon_ft.errors import ChatError, ConfigError
from zephon_ft.ops.base import Operator, RecordWork, WorkContext
from zephon_ft.ops.tokenize import checked_keep, kept_fields, lookup, not_usable
from zephon_ft.record import Media, Record
from zephon_ft.text.chat import parse_chat
from zephon_ft.text.encoder import QWEN_IMAGE_TOKENS, ChatEncoder, ImageTokens, structural_tokens
from zephon_ft.text.templates import Template, make_template
from zephon_ft.text.tokenizer import LoadedTokenizer, load_tokenizer

CHAT_FIELDS = ("messages", "conversations", "texts")


@dataclass(frozen=True)
class TokenizeChat(Operator):
    """Encode a conversation. The record keeps `input_ids` and `labels` (int32, 1-D, -100 where nothing is learned),
    the fields named in `keep`, and its media, which learn their place in `input_ids`.

    Nothing is truncated here: `pack` decides what to do with a sample that is too long, and never cuts an image.

    Args:
        tokenizer: anything that `zephon_ft.text.tokenizer.load_tokenizer` takes.
        field: name of the conversation's field (``a.b`` is key b of field a); None takes the first of `messages`,
            `conversations` and `texts` that is there and not null.
        template: None takes the tokenizer's own template, else ChatML; "chatml"; or Jinja text.
        date: "YYYY-MM-DD" or a date, for a Jinja template that asks for it.
        image_tokens: (prefix, token, suffix) of an image, as its geometry has them; None for text-only conversations.
        images: "require" placeholders for images, or "prepend": without any, images go before the first user text.
        system: text of a system turn, for conversations that have none.
        answer_tokens: special tokens that count in assistant content too, e.g. ``("<think>", "</think>")``.
        keep: further fields that later operators can see.

    Raises:
        ConfigError: an unknown option, a token that the tokenizer does not have, a template that cannot be used.
        ChatError: (running) see `parse_chat`; a template that alters content; nothing to learn from.
    """

    tokenizer: LoadedTokenizer
    field: str | None
    template: Template
    image_tokens: ImageTokens | None
    images: str
    system: str | None
    answer_tokens: tuple[str, ...]
    keep: tuple[str, ...]

    name = "tokenize_chat"

    def __init__(
        self,
        tokenizer: Any,
        *,
        field: str | None = None,
        template: str | None = None,
        date: str | datetime.date | None = None,
        image_tokens: ImageTokens | None = QWEN_IMAGE_TOKENS,
        images: str = "require",
        system: str | None = None,
        answer_tokens: Iterable[str] = (),
        keep: tuple[str, ...] | list[str] = (),
    ) -> None:
        loaded = load_tokenizer(tokenizer)
        if images not in ("require", "prepend"):
            raise ConfigError(f'tokenize_chat: images={images!r}; choose "require" or "prepend"')
        answer_tokens = tuple(answer_tokens)
        try:
            structural_tokens(loaded, (*(name or None for name in image_tokens or ()), *answer_tokens))
        except ConfigError as error:
            hint = "" if image_tokens is None else f" (image_tokens={image_tokens!r}; None for text-only conversations)"
            raise ConfigError(f"tokenize_chat: {error}{hint}") from error
        image_token = None if image_tokens is None else image_tokens[1]
        chosen = make_template(template, loaded, image_token=image_token, date=date)
        keep = checked_keep(self.name, keep)
        values = (loaded, field, chosen, image_tokens, images, system, answer_tokens, keep)
        for attribute, value in zip(self.__dataclass_fields__, values, strict=True):
            object.__setattr__(self, attribute, value)

    def bind(self, context: WorkContext) -> RecordWork:
        encoder = ChatEncoder(self.tokenizer, self.template.end_token, self.image_tokens, self.answer_tokens)
        render = self.template.bind()
        keep, policy, system, choices = self.keep, self.images, self.system, self._choices()

        def work(record: Record) -> Record:
            fields, media = record.fields, record.media
            turns = parse_chat(_conversation(fields, choices), len(media), policy=policy, system=system)
            ids, labels, offsets = encoder.encode(render(turns), [item.tokens for item in media])
            if labels.max(initial=-1) < 0:
                raise ChatError(f"nothing to learn from: no assistant turn (roles: {[turn.role for turn in turns]})")
            kept = kept_fields("tokenize_chat", fields, keep)
            kept["input_ids"], kept["labels"] = ids, labels
            record.fields = kept
            record.media = tuple([_placed(item, offset) for item, offset in zip(media, offsets, strict=True)])
            return record

        return work

    def reads(self) -> frozenset[str]:
        return frozenset({*(path.split(".")[0] for path in self._choices()), *self.keep})

    def needs(self) -> tuple[frozenset[str], ...]:
        return (frozenset(path.split(".")[0] for path in self._choices()), *(frozenset({name}) for name in self.keep))

    def keeps(self) -> frozenset[str]:
        return frozenset(self.keep)

    def recipe(self) -> dict[str, Any]:
        return {
            "op": self.name,
            "tokenizer": self.tokenizer.content_hash,
            **self.template.recipe(),
            "field": self.field,
            "image_tokens": None if self.image_tokens is None else list(self.image_tokens),
            "images": self.images,
            "system": self.system,
            "answer_tokens": list(self.answer_tokens),
            "keep": list(self.keep),
        }

    def _choices(self) -> tuple[str, ...]:
        return CHAT_FIELDS if self.field is None else (self.field,)


def _conversation(fields: dict[str, Any], choices: tuple[str, ...]) -> Any:
    for path in choices:
        value = lookup(fields, path)
        if isinstance(value, (list, tuple)):
            return value
        if len(choices) == 1:
            raise not_usable("tokenize_chat", fields, path, value, "a list of turns")
    raise ChatError(
        f"tokenize_chat: no list of turns in any of {', '.join(choices)}; there: {', '.join(sorted(fields))}"
    )


def _placed(item: Media, offset: int) -> Media:
    """`item` with its place. Spelled out: `dataclasses.replace` takes several times as long."""
    return Media(item.kind, item.tokens, item.rows, item.facts, item.data, offset, item.key, item.position, item.index)
