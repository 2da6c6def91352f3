"""Parse conversations of three layouts into one form: turns of text and image parts.

| layout | shape | images |
|---|---|---|
| OpenAI | ``[{"role", "content"}]``, content a string or a list of typed parts | parts of an image type |
| LLaVA | ``[{"from", "value"}]`` | every ``<image>`` in a value, whoever speaks |
| the_cauldron, FineVision | ``[{"user", "assistant"}]`` | all before the text of the first user turn |

Text is kept to the letter, a line end beside a placeholder included. A literal ``<image>`` in the first and third
layout is text. What does not fit is a `ChatError`; nothing is guessed or left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from zephon_ft.errors import ChatError

Part = tuple[str, str] | tuple[str]  # ("text", its characters) or ("image",)
IMAGE: tuple[str] = ("image",)
PLACEHOLDER = "<image>"  # LLaVA's

_ROLES = {"system": "system", "user": "user", "assistant": "assistant"}
_SPEAKERS = {**_ROLES, "human": "user", "gpt": "assistant"}
_TEXT_TYPES = frozenset({"text", "input_text", "output_text"})
_IMAGE_TYPES = frozenset({"image", "image_url", "input_image"})
_UNSUPPORTED = ("tool_calls", "function_call", "reasoning_content", "audio")  # content that would be lost


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: `role` is system, user or assistant; neighbouring text parts are one part."""

    role: str
    parts: tuple[Part, ...]

    @property
    def images(self) -> int:
        """Number of images in it."""
        return self.parts.count(IMAGE)


def parse_chat(value: Any, images: int, *, policy: str = "require", system: str | None = None) -> list[Turn]:
    """Turn a conversation of any layout into checked turns.

    Args:
        value: the field's content.
        images: number of images that the record has.
        policy: for a conversation without any placeholder and a record with images: "require" is an error, "prepend"
            puts all of them before the text of the first user turn.
        system: text of a system turn, for conversations that have none.

    Raises:
        ChatError: unknown layout or role, missing content, two turns in a row of one role, a system turn that is not
            the first, no turn at all, or a number of placeholders that is not `images`.
    """
    if not isinstance(value, (list, tuple)):
        raise ChatError(f"a conversation is a list of turns, not {type(value).__name__}")
    if not value:
        raise ChatError("the conversation is empty")
    turns: list[Turn] = []
    for number, turn in enumerate(value):
        if not isinstance(turn, dict):
            raise ChatError(f"turn {number} is not a mapping but {type(turn).__name__}")
        if "role" in turn and "content" in turn:
            turns.append(_openai(turn, number))
        elif "from" in turn and "value" in turn:
            turns.append(_llava(turn, number))
        elif "user" in turn and "assistant" in turn:
            turns.extend(_question_and_answer(turn, number))
        else:
            raise ChatError(
                f"turn {number} has the keys {sorted(map(str, turn))}; expected role and content (OpenAI), from and "
                f"value (LLaVA), or user and assistant (the_cauldron, FineVision)"
            )
    if system is not None and turns[0].role != "system":
        turns.insert(0, Turn("system", _text(system)))
    _check_roles(turns)
    placeholders = sum(turn.images for turn in turns)
    if images and not placeholders and (policy == "prepend" or "user" in value[0]):
        return _with_images_first(turns, images)
    if placeholders != images:
        raise ChatError(f"{placeholders} image placeholders, but {images} images{_hint(value[0], turns, placeholders)}")
    return turns


def _hint(first: dict[str, Any], turns: list[Turn], placeholders: int) -> str:
    if "content" not in first:
        return "" if placeholders else '; tokenize_chat(images="prepend") would put them before the first user text'
    wanted = '; in OpenAI messages an image is a part of the content, [{"type": "image"}, {"type": "text", ...}]'
    if any(PLACEHOLDER in part[1] for turn in turns for part in turn.parts if part is not IMAGE):  # type: ignore[misc]
        return f"{wanted}, and {PLACEHOLDER!r} in a text is text"
    return wanted if placeholders else f'{wanted}; tokenize_chat(images="prepend") puts them before the first user text'


def _openai(turn: dict[str, Any], number: int) -> Turn:
    content = turn["content"]
    for key in _UNSUPPORTED:
        if turn.get(key):
            raise ChatError(f"turn {number} has {key!r}, which is not supported; write it into its content")
    if isinstance(content, str):
        parts = _text(content)
    elif isinstance(content, (list, tuple)):
        parts = _joined(_typed_part(part, number) for part in content)
    else:
        raise ChatError(f"turn {number}: content is {type(content).__name__}, expected text or a list of parts")
    return Turn(_role(turn["role"], _ROLES, number), parts)


def _typed_part(part: Any, number: int) -> Part:
    if isinstance(part, str):
        return ("text", part)
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    if kind in _IMAGE_TYPES:
        return IMAGE
    if kind in _TEXT_TYPES:
        return ("text", _string(part.get("text"), number, "the text of a part"))
    raise ChatError(f"turn {number}: a part of type {kind!r}; known: {sorted(_TEXT_TYPES | _IMAGE_TYPES)}")


def _llava(turn: dict[str, Any], number: int) -> Turn:
    role = _role(turn["from"], _SPEAKERS, number)
    texts = _string(turn["value"], number, "value").split(PLACEHOLDER)
    parts: list[Part] = [("text", texts[0])]
    for text in texts[1:]:
        parts += [IMAGE, ("text", text)]
    return Turn(role, _joined(iter(parts)))


def _question_and_answer(turn: dict[str, Any], number: int) -> tuple[Turn, Turn]:
    user = _text(_string(turn["user"], number, "user"))
    return Turn("user", user), Turn("assistant", _text(_string(turn["assistant"], number, "assistant")))


def _joined(parts: Iterator[Part]) -> tuple[Part, ...]:
    """Parts with neighbouring texts joined and empty ones left out."""
    result: list[Part] = []
    for part in parts:
        if part is not IMAGE and result and result[-1] is not IMAGE:
            result[-1] = ("text", result[-1][1] + part[1])  # type: ignore[misc]
        elif part is IMAGE or part[1]:  # type: ignore[misc]
            result.append(part)
    return tuple(result)


def _text(text: str) -> tuple[Part, ...]:
    return (("text", text),) if text else ()


def _string(value: Any, number: int, what: str) -> str:
    if not isinstance(value, str):
        raise ChatError(f"turn {number}: {what} is {type(value).__name__}, expected text")
    return value


def _role(name: Any, known: dict[str, str], number: int) -> str:
    try:
        return known[name]
    except (KeyError, TypeError):
        raise ChatError(f"turn {number}: unknown role {name!r}; known: {sorted(known)}") from None


def _check_roles(turns: list[Turn]) -> None:
    for number in range(1, len(turns)):
        role = turns[number].role
        if role == turns[number - 1].role:
            raise ChatError(f"turns {number - 1} and {number} have the same role {role!r}; join them into one")
        if role == "system":
            raise ChatError(f"turn {number} is a system turn; only the first may be")


def _with_images_first(turns: list[Turn], images: int) -> list[Turn]:
    for number, turn in enumerate(turns):
        if turn.role == "user":
            turns[number] = Turn("user", (IMAGE,) * images + turn.parts)
            return turns
    raise ChatError(f"{images} images, but no user turn to put them into")
