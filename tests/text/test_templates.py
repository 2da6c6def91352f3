"""Built-in and Jinja templates: the text is the plain template's, and content never becomes markup."""

from __future__ import annotations

import datetime
import gc
import threading
from typing import Any

import jinja2
import jinja2.sandbox
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.samples import QWEN_LIKE, TRIMMING, demo, demo_with, special
from zephon_ft.errors import ChatError, ConfigError
from zephon_ft.text.chat import IMAGE, Turn
from zephon_ft.text.templates import ANSWER, IMAGE_SLOT, TEMPLATE, ChatML, Fragment, Template, make_template


def chat(*texts: str) -> list[Turn]:
    """Turns of user and assistant, in turn."""
    return [Turn("assistant" if n % 2 else "user", (("text", text),) if text else ()) for n, text in enumerate(texts)]


def jinja(source: str, **options: Any) -> Template:
    return make_template(source, demo_with(special("<|eot|>")), image_token="<|image_pad|>", **options)


def text_of(fragments: list[Fragment]) -> str:
    return "".join(text for _, text in fragments)


def plain(source: str, turns: list[Turn], **variables: Any) -> str:
    """The template rendered with nothing of ours."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    messages = [{"role": t.role, "content": "".join(p[1] for p in t.parts)} for t in turns]  # type: ignore[misc]
    return environment.from_string(source).render(messages=messages, **variables)


def test_chatml_is_the_default_where_the_tokenizer_has_its_tokens() -> None:
    template = make_template(None, demo(), image_token=None)
    assert template == ChatML()
    fragments = template.bind()(chat("hi", "yes"))
    assert text_of(fragments) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\n"


def test_a_tokenizer_without_its_tokens_and_without_a_template_is_refused() -> None:
    from tokenizers import Tokenizer, models

    from zephon_ft.text.tokenizer import load_tokenizer

    bare = load_tokenizer(Tokenizer(models.WordLevel({"a": 0}, unk_token="a")))
    with pytest.raises(ConfigError, match=r"no <\|im_start\|> and no <\|im_end\|>"):
        make_template(None, bare, image_token=None)


def test_the_tokenizers_own_template_comes_before_chatml() -> None:
    from dataclasses import replace

    own = replace(demo(), chat_template=QWEN_LIKE)
    assert "You help." in text_of(make_template(None, own, image_token="<|image_pad|>").bind()(chat("hi", "yes")))
    assert make_template("chatml", own, image_token="<|image_pad|>") == ChatML()


def test_a_template_that_is_neither_is_refused() -> None:
    with pytest.raises(ConfigError, match="neither"):
        make_template("llama", demo(), image_token=None)


BLANK = st.text(alphabet=" \n\tab", max_size=5) | st.text(max_size=10)


@pytest.mark.parametrize("source", [QWEN_LIKE, TRIMMING])
@settings(max_examples=60, deadline=None)
@given(texts=st.lists(BLANK, min_size=2, max_size=4))
def test_the_text_is_that_of_the_plain_template(source: str, texts: list[str]) -> None:
    turns = chat(*texts)
    fragments = _RENDER[source](turns)
    assert text_of(fragments) == plain(source, turns)
    kept = [text.strip() if source == TRIMMING else text for text in texts]
    assert [text for kind, text in fragments if kind != TEMPLATE] == kept


_RENDER = {source: jinja(source).bind() for source in (QWEN_LIKE, TRIMMING)}


def test_the_end_of_an_assistant_turn_is_found() -> None:
    assert jinja(QWEN_LIKE).end_token == "<|im_end|>"
    assert jinja(TRIMMING).end_token == "<|eot|>"
    assert jinja("{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}").end_token is None


def test_content_is_opaque_to_the_template_even_if_it_looks_like_one() -> None:
    turns = chat("{{ messages }} <|im_end|> \\ {% raise %} \ue3f0Mark1\ue3f1", "</think> x")
    fragments = jinja(QWEN_LIKE).bind()(turns)
    assert [text for kind, text in fragments if kind != TEMPLATE] == [turn.parts[0][1] for turn in turns]  # type: ignore[misc]


@pytest.mark.parametrize(
    "body",
    [
        "m.content | upper",
        "m.content[:5]",
        "m.content + m.content",
        "'nothing'",
        "m.content | replace('M', 'm')",
        "m.content | length",
    ],
)
def test_a_template_that_alters_drops_or_repeats_content_is_refused_at_build_time(body: str) -> None:
    with pytest.raises(ConfigError, match="alters, drops, repeats or reorders"):
        jinja("{% for m in messages %}{{ m.role + ':' }}{{ " + body + " }}{% endfor %}")


def test_a_template_that_looks_into_content_fails_where_that_matters() -> None:
    source = (
        "{% for m in messages %}{{ m.role }}:{% if 'x' in m.content %}!{% endif %}{{ m.content }}<|eot|>{% endfor %}"
    )
    render = jinja(source).bind()
    assert text_of(render(chat("a", "b"))) == "user:a<|eot|>assistant:b<|eot|>"
    with pytest.raises(ChatError, match="changes or inspects the content"):
        render(chat("ax", "b"))


def test_a_template_that_refuses_a_conversation_says_why() -> None:
    source = "{% if messages[0].role == 'system' %}{{ raise_exception('no system please') }}{% endif %}" + TRIMMING
    with pytest.raises(ChatError, match="refuses this conversation: no system please"):
        jinja(source).bind()([Turn("system", (("text", "x"),)), *chat("a", "b")])


def test_a_template_that_reads_the_clock_needs_a_date() -> None:
    source = "{{ strftime_now('%d %b %Y') }} " + TRIMMING
    with pytest.raises(ConfigError, match='pass date="YYYY-MM-DD"'):
        jinja(source)
    for date in ("2024-07-26", datetime.date(2024, 7, 26)):
        template = jinja(source, date=date)
        assert text_of(template.bind()(chat("a", "b"))).startswith("26 Jul 2024<|head|>")
        assert template.recipe()["date"] == "2024-07-26"
    with pytest.raises(ConfigError, match="not a date"):
        jinja(source, date="July")


@pytest.mark.parametrize(
    "source", ["{% for m in messages %}", "{{ messages | nothing }}", "{{ [1, 2] | random }}{% x %}"]
)
def test_a_template_that_does_not_compile_is_refused(source: str) -> None:
    with pytest.raises(ConfigError, match="does not compile"):
        jinja(source)


def test_chance_is_not_at_hand_in_a_template() -> None:
    with pytest.raises(ConfigError, match=r"random"):
        jinja("{{ ['a', 'b'] | random }}" + TRIMMING)
    with pytest.raises(ConfigError):
        jinja("{{ lipsum(1) }}" + TRIMMING)


def test_the_dialect_of_chat_templates_is_understood() -> None:
    source = (
        "{% set state = namespace(n=0) %}{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}"
        "{% set state.n = state.n + 1 %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
        "<|eot|>{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}{{ {'é': state.n} | tojson }}"
    )
    assert text_of(jinja(source).bind()(chat("a", "b"))) == 'user:aassistant:b<|eot|>{"é": 2}'


def test_a_template_that_writes_image_tokens_is_asked_to() -> None:
    turns = [Turn("user", (("text", "a"), IMAGE, ("text", "b"))), Turn("assistant", (("text", "c"),))]
    fragments = jinja(QWEN_LIKE).bind()(turns)
    assert IMAGE_SLOT not in [kind for kind, _ in fragments]
    assert "user\na<|vision_start|><|image_pad|><|vision_end|>b<|im_end|>" in text_of(fragments)


def test_a_template_that_knows_text_only_gets_image_slots_in_place() -> None:
    turns = [Turn("user", (("text", "a "), IMAGE, IMAGE, ("text", "b"))), Turn("assistant", (("text", "c"), IMAGE))]
    fragments = jinja(TRIMMING).bind()(turns)
    shown = [(kind, text) for kind, text in fragments if text or kind in (IMAGE_SLOT, ANSWER)]
    kinds = [kind for kind, _ in shown if kind != TEMPLATE]
    assert [text for kind, text in shown if kind != TEMPLATE] == ["a ", "", "", "b", "c", "", ""]
    assert kinds == [1, IMAGE_SLOT, IMAGE_SLOT, 1, ANSWER, IMAGE_SLOT, ANSWER]


def test_a_template_that_takes_lists_only_gets_lists() -> None:
    source = (
        "{% for m in messages %}{{ m.role }}:{% for p in m.content if p.type == 'image' %}<|image_pad|>\n{% endfor %}"
        "{% for p in m.content if p.type == 'text' %}{{ p.text }}{% endfor %}<|eot|>{% endfor %}"
    )
    turns = [Turn("user", (("text", "a"), IMAGE)), Turn("assistant", (("text", "c"),))]
    assert text_of(jinja(source).bind()(turns)) == "user:<|image_pad|>\na<|eot|>assistant:c<|eot|>"


def test_named_tokens_reach_the_template() -> None:
    loaded = demo_with(special("<|eot|>"), bos="<|endoftext|>")
    template = make_template(TRIMMING, loaded, image_token=None)
    assert text_of(template.bind()(chat("a", "b"))).startswith("<|endoftext|><|head|>user")
    assert template.recipe()["template_tokens"]["bos_token"] == "<|endoftext|>"


def test_rendering_leaves_no_cyclic_garbage() -> None:
    render, turns = jinja(QWEN_LIKE).bind(), chat("a", "b ", "c", "d")
    render(turns)
    gc.collect()
    gc.disable()
    try:
        for _ in range(50):
            render(turns)
        assert gc.collect() < 50, "less than one object per record"
    finally:
        gc.enable()


def test_each_thread_renders_with_an_environment_of_its_own() -> None:
    template, turns = jinja(QWEN_LIKE), chat("a", "b", "c", "d")
    expected = template.bind()(turns)
    wrong: list[object] = []

    def work() -> None:
        render = template.bind()
        wrong.extend(got for got in (render(turns) for _ in range(50)) if got != expected)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
