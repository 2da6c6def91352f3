"""Three layouts, one form; what does not fit is an error with the numbers in it."""

from __future__ import annotations

import pytest

from zephon_ft.errors import ChatError
from zephon_ft.text.chat import IMAGE, Turn, parse_chat

QUESTION = (IMAGE, ("text", "What is it?"))


def test_openai_content_may_be_text_or_parts_of_every_known_type() -> None:
    value = [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "x.png"}, "text": None},
                {"type": "text", "text": "What "},
                {"type": "input_text", "text": "is it?"},
            ],
        },
        {"role": "assistant", "content": "A cat."},
    ]
    assert parse_chat(value, 1) == [
        Turn("system", (("text", "Be brief."),)),
        Turn("user", QUESTION),
        Turn("assistant", (("text", "A cat."),)),
    ]


def test_llava_placeholders_are_images_and_the_line_ends_beside_them_are_text() -> None:
    value = [
        {"from": "human", "value": "<image>\nA\n<image>B<image>"},
        {"from": "gpt", "value": "C"},
    ]
    expected = (IMAGE, ("text", "\nA\n"), IMAGE, ("text", "B"), IMAGE)
    assert parse_chat(value, 3) == [Turn("user", expected), Turn("assistant", (("text", "C"),))]


def test_cauldron_images_come_before_the_first_user_text() -> None:
    value = [
        {"user": "What is it?", "assistant": "A cat.", "source": "x"},
        {"user": "Literal <image>?", "assistant": ""},
    ]
    assert parse_chat(tuple(value), 2) == [
        Turn("user", (IMAGE, IMAGE, ("text", "What is it?"))),
        Turn("assistant", (("text", "A cat."),)),
        Turn("user", (("text", "Literal <image>?"),)),
        Turn("assistant", ()),
    ]


def test_a_literal_placeholder_in_openai_content_is_text() -> None:
    value = [{"role": "user", "content": "<image> is a tag"}, {"role": "assistant", "content": "Yes"}]
    assert parse_chat(value, 0)[0] == Turn("user", (("text", "<image> is a tag"),))
    with pytest.raises(ChatError, match=r"0 image placeholders, but 1 images; .*'<image>' in a text is text$"):
        parse_chat(value, 1)
    value[0]["content"] = "what is this?"
    with pytest.raises(ChatError, match=r"an image is a part of the content.*images=\"prepend\"\) puts them before"):
        parse_chat(value, 1)
    value[0]["content"] = "<image> is a tag"
    assert parse_chat(value, 1, policy="prepend")[0].parts == (IMAGE, ("text", "<image> is a tag"))


@pytest.mark.parametrize(
    ("images", "message"), [(0, "1 image placeholders, but 0"), (2, "1 image placeholders, but 2")]
)
@pytest.mark.parametrize("policy", ["require", "prepend"])
def test_placeholders_and_images_are_counted_against_each_other(images: int, message: str, policy: str) -> None:
    with pytest.raises(ChatError, match=message):
        parse_chat([{"from": "human", "value": "<image>x"}, {"from": "gpt", "value": "y"}], images, policy=policy)


def test_prepended_images_go_into_the_first_user_turn_behind_the_system_turn() -> None:
    value = [{"from": "human", "value": "x"}, {"from": "gpt", "value": "y"}]
    turns = parse_chat(value, 1, policy="prepend", system="rules")
    assert [turn.role for turn in turns] == ["system", "user", "assistant"]
    assert [turn.images for turn in turns] == [0, 1, 0]


def test_a_system_text_is_for_conversations_without_one() -> None:
    value = [{"role": "system", "content": "mine"}, {"role": "user", "content": "x"}]
    assert parse_chat(value, 0, system="other")[0] == Turn("system", (("text", "mine"),))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("hello", "a list of turns, not str"),
        ([], "empty"),
        (["x"], "turn 0 is not a mapping but str"),
        ([{"speaker": "x"}], r"keys \['speaker'\]; expected role and content"),
        ([{"role": "narrator", "content": "x"}], "unknown role 'narrator'; known:.*assistant"),
        ([{"from": ["x"], "value": "x"}], "unknown role"),
        ([{"role": "user", "content": None}], "turn 0: content is NoneType"),
        ([{"role": "user", "content": [{"type": "video"}]}], "type 'video'; known:"),
        ([{"role": "user", "content": [{"type": "text"}]}], "text of a part is NoneType"),
        ([{"from": "human", "value": 3}], "value is int, expected text"),
        ([{"user": None, "assistant": "x"}], "user is NoneType, expected text"),
        (
            [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
            "turns 0 and 1 have the same role 'user'",
        ),
        ([{"role": "user", "content": "a"}, {"role": "system", "content": "b"}], "turn 1 is a system turn"),
        ([{"role": "assistant", "content": "a", "tool_calls": [{}]}], "turn 0 has 'tool_calls'"),
    ],
)
def test_what_does_not_fit_is_an_error_that_says_where(value: object, message: str) -> None:
    with pytest.raises(ChatError, match=message):
        parse_chat(value, 0)


def test_images_without_a_user_turn_have_no_place() -> None:
    with pytest.raises(ChatError, match="no user turn"):
        parse_chat([{"role": "assistant", "content": "a"}], 1, policy="prepend")
