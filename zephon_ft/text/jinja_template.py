"""Chat templates in Jinja, as tokenizers carry them, rendered without letting content become markup.

Content is replaced by markers from Unicode's private use area; the text between the markers is the template's own. The
same conversation is also rendered as it is, and must be equal to the first with its markers filled in: so a template
that changes, drops, repeats or inspects content is noticed, and the text is that of the plain template, to the letter.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from zephon_ft.errors import ChatError, ConfigError
from zephon_ft.text.chat import IMAGE, Part, Turn
from zephon_ft.text.encoder import splitter, structural_tokens
from zephon_ft.text.templates import ANSWER, CONTENT, IMAGE_SLOT, TEMPLATE, Fragment, Render
from zephon_ft.text.tokenizer import LoadedTokenizer

_OPEN, _CLOSE = "\ue3f0", "\ue3f1"
_MARKER = re.compile(f"{_OPEN}Mark(\\d+){_CLOSE}")
_IMAGE_PART = {"type": "image"}
_PROBE = (Turn("user", (("text", "question"),)), Turn("assistant", (("text", "answer"),)))


@dataclass(frozen=True, slots=True)
class JinjaTemplate:
    """A checked template; made by `jinja_template`.

    Attributes:
        source: the Jinja text.
        date: what `strftime_now` is told, or None where the template does not ask.
        tokens: literals that the template may name (``bos_token``, ``eos_token``, ``pad_token``).
        takes_text: content may be a string; else it is always a list of parts.
        takes_images: the template writes the image token itself for a part of type image.
        end_token: see `zephon_ft.text.templates.Template`.
    """

    source: str
    date: datetime.date | None
    tokens: tuple[tuple[str, str], ...]
    takes_text: bool = True
    takes_images: bool = False
    end_token: str | None = None

    def recipe(self) -> dict[str, Any]:
        """Text, date and named tokens."""
        date = None if self.date is None else self.date.isoformat()
        return {"template": self.source, "date": date, "template_tokens": dict(self.tokens)}

    def bind(self) -> Render:
        """The render function of one worker thread, with an environment of its own."""
        run = self._compiled()
        return lambda turns: self._render(run, turns)

    def _compiled(self) -> Callable[[list[dict[str, Any]]], str]:
        template = _environment(self.date).from_string(self.source)
        variables = {**dict(self.tokens), "add_generation_prompt": False, "tools": None, "documents": None}
        return lambda messages: template.render(messages=messages, **variables)

    def _render(self, run: Callable[[list[dict[str, Any]]], str], turns: Sequence[Turn]) -> list[Fragment]:
        contents: list[Fragment] = []
        for turn in turns:
            kind = ANSWER if turn.role == "assistant" else CONTENT
            for part in _parts(turn):
                if part is not IMAGE:
                    contents.append((kind, part[1]))  # type: ignore[misc]
                elif not self.takes_images:
                    contents.append((IMAGE_SLOT, ""))
        texts = [text for _, text in contents]
        padded = [before + _marker(n) + behind for n, (before, behind) in enumerate(map(_outer, texts))]
        literals = _literals(self._run(run, turns, padded), len(contents))
        real = [_marker(n) if kind == IMAGE_SLOT else text for n, (kind, text) in enumerate(contents)]
        filled = [t.strip() + literal for t, literal in zip(real, literals[1:], strict=True)]
        if literals[0] + "".join(filled) != self._run(run, turns, real):
            raise ChatError(
                "the chat template changes or inspects the content of this conversation (see its filters and "
                'conditions); simplify it, or pass template="chatml"'
            )
        if any(text != text.strip() for text in texts):
            bare = _literals(self._run(run, turns, [_marker(n) for n in range(len(texts))]), len(contents))
            literals, texts = _share_blanks(literals, bare, texts)
        fragments: list[Fragment] = [(TEMPLATE, literals[0])]
        for (kind, _), text, literal in zip(contents, texts, literals[1:], strict=True):
            fragments += ((kind, text), (TEMPLATE, literal))
        return fragments

    def _run(self, run: Callable[[list[dict[str, Any]]], str], turns: Sequence[Turn], texts: Sequence[str]) -> str:
        """Render the conversation with these texts in the place of its contents, in order."""
        remaining = iter(texts)
        messages: list[dict[str, Any]] = []
        for turn in turns:
            parts: list[dict[str, str]] = []
            for part in _parts(turn):
                as_image = part is IMAGE and self.takes_images
                parts.append(_IMAGE_PART if as_image else {"type": "text", "text": next(remaining)})
            plain = self.takes_text and _IMAGE_PART not in parts
            content: Any = "".join(part["text"] for part in parts) if plain else parts
            messages.append({"role": turn.role, "content": content})
        try:
            return run(messages)
        except jinja2.TemplateError as error:
            raise ChatError(f"the chat template refuses this conversation: {error}") from error
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise ChatError(f"the chat template fails on this conversation: {type(error).__name__}: {error}") from error


def jinja_template(
    source: str, tokenizer: LoadedTokenizer, *, image_token: str | None, date: str | datetime.date | None = None
) -> JinjaTemplate:
    """Check a template on short conversations and find out how it wants its content.

    Args:
        source: Jinja text.
        tokenizer: whose special tokens it writes.
        image_token: the token that it may write for an image part; None for text-only conversations.
        date: what ``strftime_now`` is told.

    Raises:
        ConfigError: a syntax error, a clock without `date`, content that is altered, dropped or repeated.
    """
    if _OPEN in source or _CLOSE in source:
        raise ConfigError("the chat template holds the private use characters that mark content (U+E3F0, U+E3F1)")
    tokens = {"bos_token": tokenizer.bos, "eos_token": tokenizer.eos, "pad_token": tokenizer.pad}
    base = JinjaTemplate(source, _parse_date(date), tuple((k, v) for k, v in tokens.items() if v is not None))
    try:
        names = jinja2.meta.find_undeclared_variables(_environment(None).parse(source))
    except jinja2.TemplateError as error:
        raise ConfigError(f"the chat template does not compile: {error}") from error
    if "strftime_now" in names and base.date is None:
        raise ConfigError('the chat template asks for the date, which would change the data: pass date="YYYY-MM-DD"')
    takes_text, shown = _probe(base)
    split = splitter(structural_tokens(tokenizer, (image_token,)))
    end = next((item.text for item in split(shown[-1][1]) if not isinstance(item, str)), None)
    image = JinjaTemplate(base.source, base.date, base.tokens, takes_text, True, end)
    turns = (Turn("user", (IMAGE, *_PROBE[0].parts)), _PROBE[1])
    try:
        literal = "".join(text for kind, text in image.bind()(turns) if kind == TEMPLATE)
        takes_images = sum(not isinstance(item, str) and item.text == image_token for item in split(literal)) == 1
    except ChatError:
        takes_images = False
    return JinjaTemplate(base.source, base.date, base.tokens, takes_text, takes_images, end)


def _probe(base: JinjaTemplate) -> tuple[bool, list[Fragment]]:
    """Whether content may be a string, and what a question and its answer render to."""
    first_error: ChatError | None = None
    for takes_text in (True, False):
        candidate = JinjaTemplate(base.source, base.date, base.tokens, takes_text)
        for turns in (_PROBE, (Turn("system", (("text", "rules"),)), *_PROBE)):
            try:
                return takes_text, candidate.bind()(turns)
            except ChatError as error:
                first_error = first_error or error
    raise ConfigError(f"the chat template cannot be used: {first_error}") from first_error


def _marker(number: int) -> str:
    return f"{_OPEN}Mark{number}{_CLOSE}"


def _parts(turn: Turn) -> tuple[Part, ...]:
    """The parts of a turn, with the text, be it empty, that marks where its content is and where an answer ends."""
    if not turn.parts or (turn.role == "assistant" and turn.parts[-1] is IMAGE):
        return (*turn.parts, ("text", ""))
    return turn.parts


def _literals(shown: str, count: int) -> list[str]:
    """The template's own text before, between and behind the markers."""
    split = _MARKER.split(shown)
    if split[1::2] != [str(number) for number in range(count)] or any(_OPEN in t or _CLOSE in t for t in split[::2]):
        raise ChatError("the chat template alters, drops, repeats or reorders the content of a turn")
    return split[::2]


def _share_blanks(literals: Sequence[str], bare: Sequence[str], texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Give white space that the template kept back to the content that it surrounds.

    `literals` are the gaps between contents with their white space, `bare` those of the same conversation without any.
    """
    contents = [text.strip() for text in texts]
    for number, (gap, own) in enumerate(zip(literals, bare, strict=True)):
        left = _outer(texts[number - 1])[1] if number else ""
        right = _outer(texts[number])[0] if number < len(texts) else ""
        for size in range(len(gap) - len(own), -1, -1):
            before, behind = gap[:size], gap[size + len(own) :]
            if gap[size:].startswith(own) and left.startswith(before) and right.endswith(behind):
                if number:
                    contents[number - 1] += before
                if number < len(texts):
                    contents[number] = behind + contents[number]
                break
        else:
            raise ChatError("the chat template changes the white space around the content of a turn")
    return list(bare), contents


def _outer(text: str) -> tuple[str, str]:
    """White space before and behind; text of white space only counts as what is before."""
    core = text.strip()
    start = text.find(core) if core else len(text)
    return text[:start], text[start + len(core) :]


def _parse_date(date: str | datetime.date | None) -> datetime.date | None:
    if date is None:
        return None
    if isinstance(date, datetime.date):
        return datetime.date(date.year, date.month, date.day)
    try:
        return datetime.date.fromisoformat(date)
    except ValueError as error:
        raise ConfigError(f"date={date!r} is not a date of the form YYYY-MM-DD") from error


class _Generation(jinja2.ext.Extension):
    """Accepts ``{% generation %}``: its body is rendered as it is, as labels come from turn boundaries."""

    tags = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        return jinja2.nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def _environment(date: datetime.date | None) -> jinja2.Environment:
    """A sandbox as chat templates expect it, without what would make two runs differ."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    del environment.filters["random"], environment.globals["lipsum"]
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    if date is not None:
        environment.globals["strftime_now"] = date.strftime
    return environment


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)
