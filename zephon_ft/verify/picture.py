"""A picture of a verification: steps across, world sizes down, a colour for each step digest.

A column of one colour is a step with the same bytes at every world size; where one differs its cell is marked.
"""

from __future__ import annotations

import colorsys
from collections.abc import Mapping, Sequence

from PIL import Image, ImageDraw

from zephon_ft.font import text_font

_INK, _MUTED, _PAPER, _BAD = (32, 34, 40), (110, 114, 124), (255, 255, 255), (200, 20, 30)
_LABEL, _TOP, _MARGIN, _HEIGHT = 150, 108, 28, 44
Colour = tuple[int, int, int]


def draw(
    title: str,
    digests: Mapping[tuple[int, int], str],
    worlds: Sequence[int],
    threads: Mapping[tuple[int, int], int],
    steps: int,
    cuts: Sequence[int],
) -> Image.Image:
    """The picture.

    Args:
        title: what was verified.
        digests: step digest by (world, step); world 0 is the straight run, '' a step that is not complete.
        worlds: world sizes, one row each below the straight run.
        threads: worker threads by (world, step).
        steps: number of steps.
        cuts: steps before which every run was stopped and resumed at another world size.
    """
    cell = max(14, min(64, 1400 // steps))
    width = max(_MARGIN * 2 + _LABEL + cell * steps, 900)
    height = _TOP + (len(worlds) + 1) * (_HEIGHT + 6) + 96
    picture = Image.new("RGB", (width, height), _PAPER)
    pen = ImageDraw.Draw(picture)
    bad = sum(digests.get((w, s)) != digests[0, s] for w in worlds for s in range(steps))
    verdict = f"{bad} of {len(worlds) * steps} steps differ" if bad else "every step has the same bytes in every run"
    pen.text((_MARGIN, 20), f"{title}: {verdict}", fill=_BAD if bad else _INK, font=text_font(20))
    pen.text(
        (_MARGIN, 52), "One colour for each step digest (SHA-256 over all lanes).", fill=_MUTED, font=text_font(15)
    )
    for number, world in enumerate((0, *worlds)):
        y = _TOP + number * (_HEIGHT + 6)
        name = "straight" if not world else f"{world} rank{'s' if world > 1 else ''}"
        pen.text((_MARGIN, y + 12), name, fill=_INK, font=text_font(16))
        for step in range(steps):
            x = _MARGIN + _LABEL + step * cell
            digest = digests.get((world, step), "")
            box = (x, y, x + cell - 3, y + _HEIGHT)
            pen.rectangle(box, fill=_colour(digest) if digest else _PAPER)
            if digest != digests[0, step]:
                pen.rectangle(box, outline=_BAD, width=3)
                pen.line((x + 5, y + 6, x + cell - 9, y + _HEIGHT - 6), fill=_BAD, width=2)
            if world and cell >= 26:
                pen.text((x + 4, y + _HEIGHT - 17), f"{threads[world, step]}t", fill=_PAPER, font=text_font(12))
    bottom = _TOP + (len(worlds) + 1) * (_HEIGHT + 6)
    for cut in cuts:
        x = _MARGIN + _LABEL + cut * cell - 2
        for y in range(_TOP - 10, bottom, 8):
            pen.line((x, y, x, y + 3), fill=_INK)
        pen.text((x, _TOP - 28), "stop", fill=_MUTED, font=text_font(13), anchor="ma")
    every = max(1, -(-40 // cell))
    for step in range(0, steps, every):
        x = _MARGIN + _LABEL + step * cell + (cell - 3) // 2
        pen.text((x, bottom + 4), str(step), fill=_MUTED, font=text_font(13), anchor="ma")
    notes = "Across: optimizer steps. At every stop each run goes on at the next world size, from its checkpoint."
    pen.text((_MARGIN, bottom + 34), notes, fill=_MUTED, font=text_font(15))
    if cell >= 26:
        pen.text((_MARGIN, bottom + 56), "In a cell: worker threads of each rank.", fill=_MUTED, font=text_font(15))
    return picture


def _colour(digest: str) -> Colour:
    """A colour from a digest's first bits: neighbouring steps are unlikely to look alike."""
    hue, light = int(digest[:6], 16) / 0xFFFFFF, int(digest[6:8], 16) / 255
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.45 + 0.4 * light, 0.55 + 0.25 * light)
    return round(red * 255), round(green * 255), round(blue * 255)
