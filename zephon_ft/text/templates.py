"""Chat templates: turns in, fragments out.

A fragment says of a stretch of text whether the template wrote it (special tokens in it count) or somebody's content
is in it (literals in it are text). That is all that `zephon_ft.text.encoder` needs to make tokens and labels; no
rendered string is ever searched for what a user may have written too.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from zephon_ft.errors import ConfigError
from zephon_ft.text.chat import IMAGE, Turn
from zephon_ft.text.tokenizer import HOW_TO_ADD, LoadedTokenizer

TEMPLATE, CONTENT, ANSWER, IMAGE_SLOT = range(4)
# (TEMPLATE, literal text) | (CONTENT, user or system text) | (ANSWER, assistant text, trained) | (IMAGE_SLOT, "")
Fragment = tuple[int, str]
Render = Callable[[Sequence[Turn]], list[Fragment]]


class Template(Protocol):
    """A chat template.

    Attributes:
        end_token: the special token that ends an assistant turn and is trained with it, or None.
    """

    @property
    def end_token(self) -> str | None: ...

    def bind(self) -> Render:
        """The render function of one worker thread. An assistant turn yields at least one ANSWER, be it empty."""
        ...

    def recipe(self) -> dict[str, Any]:
        """All that decides what it renders."""
        ...


@dataclass(frozen=True, slots=True)
class ChatML:
    """``<|im_start|>role``, line end, content, ``<|im_end|>``, line end; no default system turn."""

    end_token: str | None = "<|im_end|>"

    def bind(self) -> Render:
        """See `Template`."""
        return _render_chatml

    def recipe(self) -> dict[str, Any]:
        """See `Template`."""
        return {"template": "chatml"}


def make_template(
    template: str | None,
    tokenizer: LoadedTokenizer,
    *,
    image_token: str | None,
    date: str | datetime.date | None = None,
) -> Template:
    """Choose the template.

    Args:
        template: None takes the tokenizer's own, else ChatML; "chatml"; or Jinja text.
        tokenizer: whose special tokens the template writes.
        image_token: the token that stands for images in what a Jinja template writes for an image part, or None.
        date: what a Jinja template that asks for the date is told (ISO text or a date).

    Raises:
        ConfigError: no template, missing tokens, or a Jinja template that cannot be used (see `jinja_template`).
    """
    if template is None:
        template = tokenizer.chat_template or "chatml"
    if template == "chatml":
        missing = [token for token in ("<|im_start|>", "<|im_end|>") if token not in tokenizer.special_tokens]
        if missing:
            raise ConfigError(
                f"tokenizer {tokenizer.source} has no {' and no '.join(missing)}, which ChatML needs, and no chat "
                f"template is given: pass template= (Jinja text), or add the tokens: {HOW_TO_ADD}"
            )
        return ChatML()
    if "{{" not in template and "{%" not in template:
        raise ConfigError(f'template={template[:80]!r} is neither "chatml" nor Jinja text')
    try:
        from zephon_ft.text.jinja_template import jinja_template
    except ImportError as error:
        raise ConfigError('a Jinja chat template needs the package jinja2; or pass template="chatml"') from error
    return jinja_template(template, tokenizer, image_token=image_token, date=date)


def _render_chatml(turns: Sequence[Turn]) -> list[Fragment]:
    fragments: list[Fragment] = []
    for turn in turns:
        fragments.append((TEMPLATE, f"<|im_start|>{turn.role}\n"))
        kind = ANSWER if turn.role == "assistant" else CONTENT
        fragments += [(IMAGE_SLOT, "") if part is IMAGE else (kind, part[1]) for part in turn.parts]  # type: ignore[misc]
        if kind == ANSWER:
            fragments.append((ANSWER, ""))
        fragments.append((TEMPLATE, "<|im_end|>\n"))
    return fragments
