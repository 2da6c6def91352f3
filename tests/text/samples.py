"""Tokenizers and templates for the tests of this folder and of the chat operator."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tokenizers import AddedToken, Tokenizer

from zephon_ft.text.tokenizer import LoadedTokenizer, demo_tokenizer_path, load_tokenizer

QWEN_LIKE = """{%- for message in messages %}
{%- if loop.first and message.role != 'system' %}{{ '<|im_start|>system\\nYou help.<|im_end|>\\n' }}{%- endif %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.content is string %}{{- message.content }}
{%- else %}{%- for part in message.content %}
{%- if part.type == 'image' %}{{- '<|vision_start|><|image_pad|><|vision_end|>' }}
{%- elif 'text' in part %}{{- part.text }}{%- endif %}
{%- endfor %}{%- endif %}
{{- '<|im_end|>\\n' }}
{%- endfor %}"""

TRIMMING = """{{- bos_token }}{% for message in messages %}
{{- '<|head|>' + message['role'] + '<|tail|>\\n\\n' + message['content'] | trim + '<|eot|>' }}
{%- endfor %}"""


def demo() -> LoadedTokenizer:
    """The shipped tokenizer."""
    return load_tokenizer(demo_tokenizer_path())


def demo_with(
    *added: AddedToken, change: Callable[[dict[str, Any]], None] | None = None, **names: str
) -> LoadedTokenizer:
    """The shipped tokenizer with further added tokens, its JSON changed in place by `change`."""
    tokenizer = Tokenizer.from_file(str(demo_tokenizer_path()))
    tokenizer.add_tokens(list(added))
    parsed = json.loads(tokenizer.to_str())
    if change is not None:
        change(parsed)
    return load_tokenizer(Tokenizer.from_str(json.dumps(parsed)), **names)


def special(text: str, **flags: bool) -> AddedToken:
    """A special added token."""
    return AddedToken(text, special=True, normalized=False, **flags)


def user_defined(text: str, **flags: bool) -> AddedToken:
    """An added token that is not marked special, as ``<think>`` often is."""
    return AddedToken(text, special=False, **flags)
