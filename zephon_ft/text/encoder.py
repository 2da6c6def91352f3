"""Make tokens, labels and image positions from a template's fragments. One encoder per worker thread.

Guarantees: special ids come only from what the template wrote (and from image slots); all text between two of them is
encoded as one piece, so the ids are those of the whole rendered string; a token belongs to the stretch in which its
first character lies; the assistant's content and the token that ends its turn are trained, nothing else is.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

import numpy as np

from zephon_ft.errors import ChatError
from zephon_ft.record import IGNORE_INDEX
from zephon_ft.text.templates import ANSWER, IMAGE_SLOT, TEMPLATE, Fragment
from zephon_ft.text.tokenizer import LoadedTokenizer, SpecialToken
from zephon_ft.text.words import WordEncoder

ImageTokens = tuple[str | None, str, str | None]  # what comes before an image, stands for it, and comes behind it
QWEN_IMAGE_TOKENS: ImageTokens = ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>")

_REMEMBERED = 512  # texts of a template, per worker, whose tokens are kept


class ChatEncoder:
    """Encodes the conversations of one worker thread; see the module's guarantees.

    Args:
        tokenizer: the loaded tokenizer.
        end_token: the token that ends an assistant turn, trained with it; None where the template writes none.
        image_tokens: prefix, token and suffix of an image slot; None for text-only conversations.
        answer_tokens: special tokens that count in assistant content too, e.g. ``("<think>", "</think>")``.

    Raises:
        ConfigError: a token that the tokenizer does not have.
    """

    def __init__(
        self,
        tokenizer: LoadedTokenizer,
        end_token: str | None,
        image_tokens: ImageTokens | None,
        answer_tokens: Iterable[str] = (),
    ) -> None:
        self.first, self.inner = tokenizer.encoders()
        slot = [name or None for name in image_tokens or (None, None, None)]
        special = structural_tokens(tokenizer, (*slot, end_token, *answer_tokens))
        self._prefix, self._image, self._suffix = (None if name is None else special[name] for name in slot)
        self._end = None if end_token is None else special[end_token]
        self._split_template = splitter(special)
        self._split_answer = splitter({name: special[name] for name in answer_tokens})
        self._items: dict[str, list[str | SpecialToken]] = {}
        self.pieces: dict[str, bytes] = {}  # their ids

    def encode(self, fragments: Sequence[Fragment], images: Sequence[int]) -> tuple[np.ndarray, np.ndarray, list[int]]:
        """Encode one conversation.

        Args:
            fragments: what the template rendered.
            images: number of tokens of each image, in order.

        Returns:
            ids int32 (n,); labels int32 (n,), the id where it is trained and -100 elsewhere; for each image the index
            of its first image token.

        Raises:
            ChatError: the template placed another number of images.
        """
        draft = _Draft(self, images)
        for kind, text in fragments:
            if kind == TEMPLATE:
                for item in self._template_items(text):
                    if isinstance(item, str):
                        draft.add(item)
                    elif item is self._image:
                        draft.image(None, item, None)
                    else:
                        draft.special(item, is_end=item is self._end)
            elif kind == ANSWER:
                for item in self._split_answer(text):
                    if isinstance(item, str):
                        draft.add_answer(item)
                    else:
                        draft.special(item, trained=True)
            elif kind == IMAGE_SLOT:
                if self._image is None:
                    raise ChatError("the conversation has an image, but no image tokens are configured")
                draft.image(self._prefix, self._image, self._suffix)
            else:
                draft.add_content(text)
        draft.flush()
        if len(draft.offsets) != len(images):
            raise ChatError(f"the template placed {len(draft.offsets)} images, but the record has {len(images)}")
        ids = np.array(draft.ids, np.int32)
        labels = np.full(len(ids), IGNORE_INDEX, np.int32)
        for start, stop in draft.trained:
            labels[start:stop] = ids[start:stop]
        return ids, labels, draft.offsets

    def _template_items(self, text: str) -> list[str | SpecialToken]:
        items = self._items.get(text)
        if items is None:
            items = [item for item in self._split_template(text) if item]
            if len(self._items) < _REMEMBERED:
                self._items[text] = items
        return items


class _Draft:
    """One conversation while it is encoded: finished ids, and the piece of text that is being collected."""

    __slots__ = (
        "_encoder",
        "_images",
        "_is_first",
        "_open",
        "_parts",
        "_size",
        "_spans",
        "_strip",
        "ids",
        "offsets",
        "trained",
    )

    def __init__(self, encoder: ChatEncoder, images: Sequence[int]) -> None:
        self.ids = array("i")  # int32
        self.trained: list[tuple[int, int]] = []  # runs of trained tokens
        self.offsets: list[int] = []
        self._encoder = encoder
        self._images = images
        self._is_first = True  # nothing came before: the piece starts the string
        self._parts: list[str] = []
        self._size = 0
        self._spans: list[tuple[int, int]] = []  # trained characters of the piece
        self._open = False  # nothing but template text has come since the last answer
        self._strip = False  # the token before swallows the white space that starts the piece

    def add(self, text: str) -> None:
        self._parts.append(text)
        self._size += len(text)

    def add_content(self, text: str) -> None:
        self._open = False
        self._parts += ("", text)  # two parts: a piece with content is not one to remember
        self._size += len(text)

    def add_answer(self, text: str) -> None:
        self._spans.append((self._size, self._size + len(text)))
        self.add_content(text)
        self._open = True

    def special(self, token: SpecialToken, *, is_end: bool = False, trained: bool = False) -> None:
        if is_end and self._open:
            self._spans[-1] = (self._spans[-1][0], self._size)  # a model has to say what stands before the end, too
            trained = True
        self.flush(token.lstrip)
        if trained:
            self.trained.append((len(self.ids), len(self.ids) + 1))
        self.ids.append(token.id)
        self._strip = token.rstrip

    def image(self, prefix: SpecialToken | None, token: SpecialToken, suffix: SpecialToken | None) -> None:
        number = len(self.offsets)
        if number == len(self._images):
            raise ChatError(f"the template placed more images than the record has ({number})")
        if prefix is not None:
            self.special(prefix)
        self.flush(token.lstrip)
        self.offsets.append(len(self.ids))
        self.ids += array("i", (token.id,)) * self._images[number]
        self._strip = token.rstrip
        if suffix is not None:
            self.special(suffix)

    def flush(self, strip_end: bool = False) -> None:
        """Encode the piece that was collected."""
        if self._size:
            text, spans = "".join(self._parts), self._spans
            if self._strip:
                shift = len(text) - len(text.lstrip())
                text, spans = text[shift:], [(start - shift, stop - shift) for start, stop in spans]
            if strip_end:
                text = text.rstrip()
            encoder = self._encoder.first if self._is_first else self._encoder.inner
            if spans:
                self._encode_trained(encoder, text, spans)
            elif len(self._parts) > 1 or self._is_first:
                self.ids.frombytes(encoder.encode(text).tobytes())
            else:
                self.ids.frombytes(self._remembered(encoder, text))
        if self._parts:
            self._parts, self._spans, self._size = [], [], 0
        self._is_first = self._open = self._strip = False

    def _encode_trained(self, encoder: WordEncoder, text: str, spans: list[tuple[int, int]]) -> None:
        ids, places = encoder.encode_marked(text, list(chain.from_iterable(spans)))
        at = len(self.ids)
        self.ids.frombytes(ids.tobytes())
        for begin, end in zip(places[::2], places[1::2], strict=True):
            if end > begin:
                self.trained.append((at + begin, at + end))

    def _remembered(self, encoder: WordEncoder, text: str) -> bytes:
        pieces = self._encoder.pieces
        ids = pieces.get(text)
        if ids is None:
            ids = encoder.encode(text).tobytes()
            if len(pieces) < _REMEMBERED:
                pieces[text] = ids
        return ids


def structural_tokens(tokenizer: LoadedTokenizer, names: Iterable[str | None] = ()) -> dict[str, SpecialToken]:
    """The tokens that count in template text: the special ones, and the ones named (looked up in the vocabulary)."""
    special = dict(tokenizer.special_tokens)
    for name in names:
        if name is not None and name not in special:
            special[name] = SpecialToken(name, tokenizer.token_id(name))
    return special


def splitter(special: Mapping[str, SpecialToken]) -> Callable[[str], list[str | SpecialToken]]:
    """A function that cuts text at these literals (the longest wins) into texts and tokens, in turn."""
    if not special:
        return lambda text: [text]
    literals = sorted(special, key=len, reverse=True)
    pattern = re.compile("(" + "|".join(map(re.escape, literals)) + ")")
    return lambda text: [special[item] if number % 2 else item for number, item in enumerate(pattern.split(text))]
