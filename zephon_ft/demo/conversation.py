"""Conversations about no, one or two scenes, in the layout of OpenAI and of Hugging Face's `messages`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zephon_ft.demo.draws import Draws
from zephon_ft.demo.scene import COLOURS, SHAPES, Scene

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_CORNERS = {"circle": 0, "square": 4, "triangle": 3, "diamond": 4, "cross": 12, "ring": 0}
_ORDINALS = ("first", "second")

Exchange = tuple[str, str]  # question, answer


def make_messages(scenes: Sequence[Scene], draws: Draws) -> list[dict[str, Any]]:
    """One to four questions with their answers; the images stand before or behind the first question."""
    rounds = 1 + draws.below(4)
    ask = (_about_nothing, _about_one, _about_two)[len(scenes)]
    exchanges: list[Exchange] = []
    for _ in range(rounds):
        exchange = ask(scenes, draws)
        if exchange not in exchanges:
            exchanges.append(exchange)
    messages = []
    for number, (question, answer) in enumerate(exchanges):
        text: list[dict[str, Any]] = [{"type": "text", "text": question}]
        images: list[dict[str, Any]] = [{"type": "image", "text": None}] * (0 if number else len(scenes))
        content = images + text if draws.below(3) else text + images
        messages.append({"role": "user", "content": content})
        messages.append({"role": "assistant", "content": [{"type": "text", "text": answer}]})
    return messages


def _about_nothing(scenes: Sequence[Scene], draws: Draws) -> Exchange:
    kind = draws.below(3)
    if kind == 0:
        a, b = draws.below(50), draws.below(50)
        return f"What is {a} plus {b}?", f"{a} plus {b} is {a + b}."
    if kind == 1:
        shape = draws.one(SHAPES)
        return f"How many corners has a {shape}?", f"A {shape} has {NUMBERS[_CORNERS[shape]]} corners."
    a, b = draws.several(range(100), 2)
    return f"Which number is larger, {a} or {b}?", f"{max(a, b)} is larger than {min(a, b)}."


def _about_one(scenes: Sequence[Scene], draws: Draws) -> Exchange:
    scene = scenes[0]
    item = draws.one(scene.items)
    kind = draws.below(6)
    if kind == 0:
        return f"What colour is the {item.shape}?", f"The {item.shape} is {item.colour}."
    if kind == 1:
        return f"Which shape is {item.colour}?", f"The {item.size} {item.shape} is {item.colour}."
    if kind == 2:
        count = len(scene.items)
        return "How many shapes are there in the picture?", f"There {_are(count)} in the picture."
    if kind == 3:
        return f"Where is the {item.colour} {item.shape}?", f"It is at the {item.place} of the image."
    if kind == 4:
        return "What colour is the background?", f"The background is {scene.background}."
    seen = ", ".join(f"a {i.size} {i.colour} {i.shape} at the {i.place}" for i in scene.items)
    return "Describe the image.", f"I can see {seen}. The background is {scene.background}."


def _about_two(scenes: Sequence[Scene], draws: Draws) -> Exchange:
    kind = draws.below(5)
    if kind == 0:
        counts = [len(scene.items) for scene in scenes]
        answer = "Both have the same number of shapes."
        if counts[0] != counts[1]:
            answer = (
                f"The {_ORDINALS[counts[1] > counts[0]]} image: {NUMBERS[max(counts)]} and not {NUMBERS[min(counts)]}."
            )
        return "Which image has more shapes?", answer
    if kind == 1:
        one, two = (scene.background for scene in scenes)
        same = f"Yes, both are {one}." if one == two else f"No, the first is {one} and the second is {two}."
        return "Do both images have the same background?", same
    if kind == 2:
        shape = draws.one(SHAPES)
        have = [any(item.shape == shape for item in scene.items) for scene in scenes]
        where = {(0, 0): "No, in none of them.", (1, 1): "Yes, in both of them."}
        answer = where.get((have[0], have[1]), f"No, only in the {_ORDINALS[have[1]]} image.")
        return f"Is there a {shape} in both images?", answer
    if kind == 3:
        colour = draws.one(list(COLOURS))
        count = sum(item.colour == colour for scene in scenes for item in scene.items)
        return f"How many {colour} shapes are there in both images?", f"There {_are(count, colour)}."
    number = draws.below(2)
    item = draws.one(scenes[number].items)
    question = f"What colour is the {item.shape} in the {_ORDINALS[number]} image?"
    return question, f"The {item.shape} in the {_ORDINALS[number]} image is {item.colour}."


def _are(count: int, colour: str = "") -> str:
    words = " ".join(filter(None, (NUMBERS[count], colour, "shape" if count == 1 else "shapes")))
    return f"{'is' if count == 1 else 'are'} {words}"
