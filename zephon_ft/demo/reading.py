"""Reading: what a user's data set holds, found from the names and values of its first rows.

Images are any field with encoded bytes, ``{"bytes", "path"}``, paths or URLs of images, or lists of these; or the image
parts of a conversation. Text is a conversation, else a question with its answer, else a caption, else plain text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zephon_ft.errors import ConfigError, DataError, ImageError
from zephon_ft.io.dataset import Dataset

LOOK_AT = 32  # rows
PAIRS = (("question", "answer"), ("prompt", "response"), ("instruction", "output"), ("query", "answer"))
_IMAGE_NAMES = ("images", "image", "jpg", "jpeg", "png", "webp", "img")
_CHAT_NAMES = ("messages", "conversations", "texts", "conversation")
_TEXT_NAMES = ("text", "txt", "caption", "captions", "content", "markdown")
_IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif")
_LAYOUTS = (("OpenAI", "role", "content"), ("LLaVA", "from", "value"), ("FineVision", "user", "assistant"))


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read a data set.

    Attributes:
        images: fields that hold images; of several, a row has one.
        kind: ``"chat"``, ``"pair"``, ``"caption"`` or ``"text"``.
        text: the conversation's field, (question, answer), or the text's field; dotted inside a field.
        layout: name of the conversation's layout, or "".
    """

    images: tuple[str, ...]
    kind: str
    text: tuple[str, ...]
    layout: str = ""

    @property
    def columns(self) -> frozenset[str]:
        """The fields that are needed."""
        return frozenset(name.split(".")[0] for name in (*self.images, *self.text))

    def describe(self) -> str:
        """In words."""
        fields = " and ".join(map(repr, self.text))
        words = {
            "chat": f"conversations in {fields} ({self.layout})",
            "pair": f"questions and answers in {fields}",
            "caption": f"captions in {fields}, as answers to {CAPTION_PROMPT!r}",
            "text": f"plain text in {fields}",
        }
        images = f"images in {' or '.join(map(repr, self.images))}" if self.images else "no images"
        return f"{words[self.kind]}; {images}"


CAPTION_PROMPT = "Describe the image."


def understand(dataset: Dataset) -> Reading:
    """Find out how to read a data set.

    Raises:
        ConfigError: nothing that can be trained on; lists the fields with what they hold.
        DataError: none of the first rows can be read.
    """
    rows = _first_rows(dataset)
    values = _values(rows)
    images = _images(dataset, values)
    chat = next((name for name in _ordered(values, _CHAT_NAMES) if _layout(values[name])), None)
    if chat is not None:
        if not images and _has_image_parts(values[chat]):
            images = (chat,)
        return Reading(images, "chat", (chat,), _layout(values[chat]))
    texts = [name for name in values if name not in images and _is_text(values[name])]
    for pair in PAIRS:
        if all(name in texts for name in pair):
            return Reading(images, "pair", pair)
    known = [name for name in _ordered(texts, _TEXT_NAMES) if name.split(".")[-1] in _TEXT_NAMES]
    if not known and len(texts) == 1 and len(values) <= 1 + len(images):
        known = texts
    if known:
        return Reading(images, "caption" if images else "text", (known[0],))
    raise ConfigError(_not_understood(dataset, values))


def as_conversation(row: dict[str, Any], reading_kind: str, text: tuple[str, ...]) -> dict[str, Any]:
    """A question with its answer, or a caption, as a conversation in `texts`; images and other fields stay."""
    found = [_lookup(row, name) for name in text]
    for name, value in zip(text, found, strict=True):
        if not isinstance(value, str):
            raise DataError(f"field {name!r} is {type(value).__name__}, expected text")
    question, answer = (CAPTION_PROMPT, found[0]) if reading_kind == "caption" else found
    return {**row, "texts": [{"user": question, "assistant": answer}]}


def _lookup(row: Mapping[str, Any], path: str) -> Any:
    value: Any = row
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _first_rows(dataset: Dataset) -> list[dict[str, Any]]:
    good: list[dict[str, Any]] = []
    bad: DataError | None = None
    for shard, facts in enumerate(dataset.shards):
        for row in dataset.fetch(shard, range(min(facts.rows, LOOK_AT - len(good)))):
            if isinstance(row, DataError):
                bad = bad or row
            else:
                good.append(row)
        if len(good) >= LOOK_AT:
            break
    if bad is not None and not good:
        raise bad
    if not good:
        raise ConfigError(f"dataset {dataset.name!r} has no rows")
    return good


def _values(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Values that are not null or empty by field, those inside of a field (of a tar's json) under dotted names."""
    values: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            values.setdefault(name, [])
            if value is not None and value != [] and name != "__key__":
                values[name].append(value)
            if isinstance(value, Mapping) and not {"bytes", "path"} & set(value):
                for inner, part in value.items():
                    if part is not None and part != []:
                        values.setdefault(f"{name}.{inner}", []).append(part)
    return values


def _ordered(names: Iterable[str], preferred: Sequence[str]) -> list[str]:
    """Names in order of preference, by their last part; unknown ones last."""
    rank = {name: number for number, name in enumerate(preferred)}
    return sorted(names, key=lambda name: rank.get(name.split(".")[-1], len(rank)))


def _images(dataset: Dataset, values: Mapping[str, list[Any]]) -> tuple[str, ...]:
    found = [name for name in _ordered(values, _IMAGE_NAMES) if "." not in name or dataset.format == "tar"]
    found = [name for name in found if values[name] and all(map(_is_image, values[name]))]
    if dataset.format == "tar":  # the extension is the field: samples of one archive may have different ones
        return tuple(found)
    return tuple(found[:1])


def _is_image(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(map(_is_image, value))
    if isinstance(value, Mapping):
        return any(_is_image(value.get(key)) for key in ("bytes", "path", "url"))
    if isinstance(value, str):
        name = value.split("?")[0].lower()
        return value.startswith("data:image/") or (name.endswith(_IMAGE_SUFFIXES) and "\n" not in value)
    if isinstance(value, bytes):
        from zephon_ft.vision.header import read_header

        try:
            read_header(value)
        except ImageError:
            return value[:1] != b"" and value[:16].find(b"PNG") == 1  # a damaged one is reported where it is read
        return True
    return False


def _is_text(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(value, str) for value in values)


def _layout(values: list[Any]) -> str:
    """The layout that all values have, or ""."""
    for name, *keys in _LAYOUTS:
        if values and all(_turns(value, keys) for value in values):
            return name
    return ""


def _turns(value: Any, keys: Sequence[str]) -> bool:
    return isinstance(value, list) and all(isinstance(turn, Mapping) and set(keys) <= set(turn) for turn in value)


def _has_image_parts(conversations: Iterable[list[Mapping[str, Any]]]) -> bool:
    return any(
        isinstance(part, Mapping) and any(part.get(key) for key in ("image", "image_url", "url", "path", "bytes"))
        for turns in conversations
        for turn in turns
        if isinstance(turn.get("content"), list)
        for part in turn["content"]
    )


def _not_understood(dataset: Dataset, values: Mapping[str, list[Any]]) -> str:
    there = ", ".join(f"{name} ({_kind(found)})" for name, found in values.items())
    pairs = ", ".join("/".join(pair) for pair in PAIRS)
    return (
        f"dataset {dataset.name!r}: found nothing to train on. Needed: a conversation ({', '.join(_CHAT_NAMES[:3])}, "
        f"or any list of role/content, from/value or user/assistant), a pair ({pairs}), or a text "
        f"({', '.join(_TEXT_NAMES)}). There is: {there or 'nothing'}"
    )


def _kind(found: list[Any]) -> str:
    if not found:
        return "always null"
    if all(map(_is_image, found)):
        return "image"
    return {"str": "text", "bytes": "binary"}.get(type(found[0]).__name__, type(found[0]).__name__)
