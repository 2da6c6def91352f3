"""Scenes: coloured shapes on a plain background, described in words and drawn with whole numbers only.

No two shapes of a scene have the same form or colour, so a question that names one of them has one answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zephon_ft.demo.draws import Draws
from zephon_ft.demo.png import encode_png

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (206, 45, 45),
    "green": (52, 148, 72),
    "blue": (44, 86, 196),
    "yellow": (242, 208, 58),
    "orange": (240, 138, 36),
    "purple": (126, 66, 164),
    "pink": (240, 150, 184),
    "cyan": (66, 190, 206),
    "brown": (122, 80, 48),
    "black": (28, 28, 32),
    "grey": (150, 152, 158),
    "white": (248, 248, 246),
}
SHAPES = ("circle", "square", "triangle", "diamond", "cross", "ring")
PLACES = ("upper left", "upper right", "lower left", "lower right")
SIZES = ("small", "large")
LEAST, MOST = 96, 256  # pixels of a side
_NUMBERS = {name: number for number, name in enumerate(COLOURS)}


@dataclass(frozen=True, slots=True)
class Item:
    """One shape of a scene, in words."""

    shape: str
    colour: str
    size: str
    place: str


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture in words; `width` and `height` in pixels."""

    width: int
    height: int
    background: str
    items: tuple[Item, ...]


def make_scene(draws: Draws) -> Scene:
    """A scene of one to four shapes."""
    width, height = (LEAST + draws.below(MOST - LEAST + 1) for _ in range(2))
    count = 1 + draws.below(len(PLACES))
    background, *colours = draws.several(list(COLOURS), count + 1)
    shapes, places = draws.several(SHAPES, count), draws.several(PLACES, count)
    items = [
        Item(shape, colour, draws.one(SIZES), place)
        for shape, colour, place in zip(shapes, colours, places, strict=True)
    ]
    return Scene(width, height, background, tuple(items))


def draw_scene(scene: Scene) -> bytes:
    """The scene as a PNG image."""
    pixels = np.full((scene.height, scene.width), _NUMBERS[scene.background], np.uint8)
    for item in scene.items:
        row, column = divmod(PLACES.index(item.place), 2)
        x, y = scene.width * (2 * column + 1) // 4, scene.height * (2 * row + 1) // 4
        side = min(scene.width, scene.height)
        radius = side * (2 if item.size == "large" else 1) // 10
        part = pixels[y - radius : y + radius + 1, x - radius : x + radius + 1]
        part[_mask(item.shape, radius)] = _NUMBERS[item.colour]
    return encode_png(pixels, list(COLOURS.values()))


def _mask(shape: str, radius: int) -> np.ndarray:
    """Which pixels of a square of 2 * radius + 1 belong to a shape: bool."""
    y, x = np.ogrid[-radius : radius + 1, -radius : radius + 1]
    across, along = abs(x), abs(y)
    if shape == "square":
        side = radius * 7 // 8
        return (across <= side) & (along <= side)
    if shape == "triangle":
        return 2 * across <= y + radius
    if shape == "diamond":
        return across + along <= radius
    if shape == "cross":
        return (across <= radius // 3) | (along <= radius // 3)
    disc = x * x + y * y <= radius * radius
    if shape == "ring":
        hole = radius * 5 // 8
        return disc & (x * x + y * y > hole * hole)
    return disc
