"""A picture of comparisons: a panel for each mode, a bar for each side and number of workers, whiskers."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence

from PIL import Image, ImageDraw

from zephon_ft.ab.compare import CPU, RATE, Line, Report
from zephon_ft.font import text_font

WIDTH = 1400
_MARGIN, _LABEL, _BAR, _GAP, _TOP, _BOTTOM = 32, 300, 26, 10, 96, 40
_NOTES = 360  # pixels right of the bars
_INK, _MUTED, _PAPER, _RULE = (32, 34, 40), (110, 114, 124), (255, 255, 255), (228, 229, 232)


def draw(reports: Sequence[Report]) -> Image.Image:
    """The picture: RGB, `WIDTH` pixels wide."""
    heights = [_TOP + len(report.lines) * (_BAR + _GAP) + _BOTTOM for report in reports]
    picture = Image.new("RGB", (WIDTH, sum(heights) + _MARGIN), _PAPER)
    pen = ImageDraw.Draw(picture)
    top = 0
    for report, height in zip(reports, heights, strict=True):
        _panel(pen, report, top)
        top += height
    first = reports[0]
    about = f"{first.machine}; rounds: {first.rounds} of {first.seconds:g} s, interleaved; whiskers: least to most"
    pen.text((_MARGIN, top), about, fill=_MUTED, font=text_font(14))
    return picture


def _panel(pen: ImageDraw.ImageDraw, report: Report, top: int) -> None:
    rate = RATE[report.mode]
    pen.text((_MARGIN, top + 22), f"{report.mode}: {rate}", fill=_INK, font=text_font(24))
    heads = ((WIDTH - _NOTES, "ratio"), (WIDTH - _NOTES + 100, "CPU s/1,000"), (WIDTH - _NOTES + 230, "peak MB"))
    for x, head in heads:
        pen.text((x, top + 64), head, fill=_MUTED, font=text_font(14))
    left, right = _MARGIN + _LABEL, WIDTH - _NOTES - 100  # pixels; bars in between
    most = max(line.figures[rate].most for line in report.lines) or 1.0
    scale = (right - left) / most
    bottom = top + _TOP + len(report.lines) * (_BAR + _GAP)
    for tick in _ticks(most):
        at = left + tick * scale
        pen.line((at, top + _TOP - 6, at, bottom), fill=_RULE)
        pen.text((at, bottom + 2), f"{tick:,.0f}", fill=_MUTED, font=text_font(13), anchor="ma")
    names = list(report.sides)
    for number, line in enumerate(report.lines):
        y = top + _TOP + number * (_BAR + _GAP)
        spread = line.figures[rate]
        label = f"{line.side}, {line.workers} worker{'s' if line.workers > 1 else ''}"
        pen.text((left - 10, y + _BAR // 2), label, fill=_INK, font=text_font(16), anchor="rm")
        colour = _colour(names.index(line.side), bare=bool(report.sides[line.side]["bare"]))
        pen.rectangle((left, y, left + spread.median * scale, y + _BAR), fill=colour)
        middle = y + _BAR // 2
        low, high = left + spread.least * scale, left + spread.most * scale
        pen.line((low, middle, high, middle), fill=_INK, width=2)
        for end in (low, high):
            pen.line((end, middle - 5, end, middle + 5), fill=_INK, width=2)
        pen.text((high + 8, middle), f"{spread.median:,.0f}", fill=_INK, font=text_font(15), anchor="lm")
        for (x, _), text in zip(heads, _notes(line), strict=True):
            pen.text((x, middle), text, fill=_INK, font=text_font(15), anchor="lm")


def _notes(line: Line) -> tuple[str, str, str]:
    cpu, peak = line.figures[CPU].median, line.figures["peak memory MB"].median
    return f"{line.ratio.median:.2f}", f"{cpu:.3g}", f"{peak:,.0f}"


def _ticks(most: float) -> list[float]:
    """Round numbers from 0 up to `most`: four to eight of them."""
    step = 10.0 ** len(str(int(most)))
    for factor in (1, 0.5, 0.2, 0.1, 0.05, 0.02):
        if most / (step * factor) >= 4:
            step *= factor
            break
    return [step * i for i in range(int(most / step) + 1)]


def _colour(number: int, bare: bool) -> tuple[int, int, int]:
    """A colour for a side; bare loops are grey."""
    if bare:
        return 178, 182, 190
    red, green, blue = colorsys.hsv_to_rgb((0.58 + number * 0.381966) % 1.0, 0.55, 0.82)
    return round(red * 255), round(green * 255), round(blue * 255)
