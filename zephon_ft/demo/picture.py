"""A picture of a batch: what its first documents show and say, and every token by document and by loss mask."""

from __future__ import annotations

import colorsys
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from zephon_ft.font import text_font
from zephon_ft.record import IGNORE_INDEX
from zephon_ft.vision.preview import Preview, previews

if TYPE_CHECKING:
    from zephon_ft.batch import Batch

Colour = tuple[int, int, int]

WIDTH = 1400
_MARGIN, _GAP = 40, 16
_CARDS, _CARD_HEIGHT, _THUMB = 6, 196, 132
_PER_LINE, _CELL, _LINES = 132, 10, 120  # token map: cells in a line, pixels of a cell, lines at most
_INK, _MUTED, _PAPER, _PADDING = (32, 34, 40), (120, 124, 132), (255, 255, 255), (228, 229, 232)


@dataclass(frozen=True, slots=True)
class _Document:
    number: int
    row: int
    start: int
    stop: int
    images: tuple[Preview, ...]
    origin: str


def draw_batch(batch: Batch, decode: Callable[[Sequence[int]], str], image_token_id: int) -> Image.Image:
    """Draw a token batch.

    Args:
        batch: what to draw.
        decode: token ids to text.
        image_token_id: the placeholder's id; -1 where there are no images.

    Returns:
        An RGB image `WIDTH` pixels wide.
    """
    documents = list(_documents(batch, image_token_id))
    rows, length = batch.arrays["input_ids"].shape
    lines = -(-length // _PER_LINE)
    shown = min(rows, max(1, _LINES // lines))
    cards = _chosen(documents)
    cards_height = -(-len(cards) // 2) * (_CARD_HEIGHT + _GAP)
    map_top = 92 + cards_height + 66
    height = map_top + shown * (min(lines, _LINES) * _CELL + _GAP) + _MARGIN // 2
    picture = Image.new("RGB", (WIDTH, height), (246, 247, 249))
    draw = ImageDraw.Draw(picture)
    images = sum(len(document.images) for document in documents)
    draw.text((_MARGIN, 22), "One packed batch", fill=_INK, font=text_font(28))
    facts = (
        f"{rows} rows of {length:,} tokens, {len(documents)} documents, {images} images, "
        f"{batch.num_valid_tokens:,} tokens with loss, {batch.fill_rate:.1%} filled"
    )
    draw.text((_MARGIN, 58), facts, fill=_MUTED, font=text_font(16))
    for place, document in enumerate(cards):
        width = (WIDTH - 2 * _MARGIN - _GAP) // 2
        x = _MARGIN + place % 2 * (width + _GAP)
        y = 92 + place // 2 * (_CARD_HEIGHT + _GAP)
        _card(picture, draw, (x, y, width), document, _spans(batch, document, decode, image_token_id))
    _legend(draw, map_top - 50)
    for row in range(shown):
        top = map_top + row * (min(lines, _LINES) * _CELL + _GAP)
        cells = _cells(batch, row, [d for d in documents if d.row == row], image_token_id)[: _LINES * _CELL]
        picture.paste(Image.fromarray(cells), (_MARGIN, top))
    if shown < rows:
        draw.text((WIDTH - _MARGIN, map_top - 44), f"rows 1 to {shown} of {rows}", _MUTED, text_font(16), anchor="ra")
    return picture


def _documents(batch: Batch, image_token_id: int) -> Iterator[_Document]:
    """Documents in order; padding and dummies are none."""
    length = batch.arrays["input_ids"].shape[1]
    waiting = previews(batch, image_token_id) if image_token_id >= 0 else []
    number = 0
    for row, origins in enumerate(batch.records()):
        for origin in origins:
            end = row * length + origin.stop
            mine = []
            while waiting and len(waiting[0].tokens) and waiting[0].tokens[0] < end:
                mine.append(waiting.pop(0))
            where = f"{origin.dataset}, row {origin.row:,}"
            yield _Document(number, row, origin.start, origin.stop, tuple(mine), where)
            number += 1


def _chosen(documents: list[_Document]) -> list[_Document]:
    """The documents that get a card: the first ones, but of each number of images at least one where there is one."""
    kinds: dict[int, _Document] = {}
    for document in documents:
        kinds.setdefault(min(len(document.images), 2), document)
    chosen = list(kinds.values())
    chosen += [document for document in documents if document not in chosen][: _CARDS - len(chosen)]
    return sorted(chosen, key=lambda document: document.number)


def _colour(number: int) -> Colour:
    """A colour for a document; neighbours are far apart (steps of the golden angle)."""
    red, green, blue = colorsys.hsv_to_rgb(number * 0.381966 % 1.0, 0.72, 0.78)
    return round(red * 255), round(green * 255), round(blue * 255)


def _tint(colour: Colour, share: float) -> Colour:
    """`colour` on white paper, `share` of it."""
    red, green, blue = (round(255 - (255 - value) * share) for value in colour)
    return red, green, blue


def _cells(batch: Batch, row: int, documents: list[_Document], image_token_id: int) -> np.ndarray:
    """The token map of one row: (lines * _CELL, _PER_LINE * _CELL, 3) uint8."""
    ids, labels = batch.arrays["input_ids"][row], batch.arrays["labels"][row]
    size = -(-len(ids) // _PER_LINE) * _PER_LINE
    ground = np.full((size, 3), 246, np.uint8)
    ground[len(ids) :, 2] = 249
    ground[: len(ids)] = _PADDING
    mark = ground.copy()
    for document in documents:
        colour, part = _colour(document.number), slice(document.start, document.stop)
        learned = (labels[part] != IGNORE_INDEX)[:, None]
        ground[part] = np.where(learned, colour, _tint(colour, 0.3))
        image = (ids[part] == image_token_id)[:, None]
        mark[part] = np.where(image, _tint(colour, 0.85), ground[part])
    shape = (-1, _PER_LINE, 3)
    pixels = ground.reshape(shape).repeat(_CELL, 0).repeat(_CELL, 1)
    marks = mark.reshape(shape).repeat(_CELL, 0).repeat(_CELL, 1)
    along, across = (np.arange(n) % _CELL for n in pixels.shape[:2])
    inside = ((along >= 3) & (along < 6))[:, None] & ((across >= 3) & (across < 6))
    pixels[inside] = marks[inside]
    pixels[along == _CELL - 1] = (246, 247, 249)
    pixels[:, across == _CELL - 1] = (246, 247, 249)
    return pixels


def _legend(draw: ImageDraw.ImageDraw, y: int) -> None:
    colour = _colour(0)
    x = _MARGIN
    draw.text((x, y), "Every token; one colour a document:", fill=_INK, font=text_font(17))
    x += round(draw.textlength("Every token; one colour a document:", font=text_font(17))) + 20
    kinds = (
        ("with loss", colour),
        ("without loss", _tint(colour, 0.3)),
        ("image", _tint(colour, 0.3)),
        ("padding", _PADDING),
    )
    for name, fill in kinds:
        draw.rectangle((x, y + 3, x + 14, y + 17), fill=fill)
        if name == "image":
            draw.rectangle((x + 5, y + 8, x + 9, y + 12), fill=_tint(colour, 0.85))
        draw.text((x + 22, y), name, fill=_INK, font=text_font(16))
        x += 22 + round(draw.textlength(name, font=text_font(16))) + 22


def _card(
    picture: Image.Image,
    draw: ImageDraw.ImageDraw,
    place: tuple[int, int, int],
    document: _Document,
    spans: list[tuple[str, bool]],
) -> None:
    x, y, width = place
    colour = _colour(document.number)
    bottom = y + _CARD_HEIGHT
    draw.rounded_rectangle((x, y, x + width, bottom), 8, fill=_PAPER, outline=_tint(colour, 0.5))
    draw.rounded_rectangle((x, y, x + 8, bottom), 4, fill=colour)
    title = f"document {document.number}  ({document.origin}; {document.stop - document.start} tokens)"
    draw.text((x + 22, y + 10), title, fill=_MUTED, font=text_font(14))
    left, top = x + 22, y + 36
    for image in document.images[:3]:
        thumb = Image.fromarray(np.ascontiguousarray(image.pixels))
        thumb.thumbnail((_THUMB, _CARD_HEIGHT - 48))
        picture.paste(thumb, (left, top))
        draw.rectangle((left - 1, top - 1, left + thumb.width, top + thumb.height), outline=(200, 202, 208))
        left += thumb.width + 12
    dark = (colour[0] * 3 // 4, colour[1] * 3 // 4, colour[2] * 3 // 4)
    _write(draw, (left, top - 2, x + width - 12, bottom - 8), spans, dark)


def _spans(
    batch: Batch, document: _Document, decode: Callable[[Sequence[int]], str], image_token_id: int
) -> list[tuple[str, bool]]:
    """The document's text as (text, whether it has loss); an image's tokens as their number."""
    part = slice(document.start, document.stop)
    ids = batch.arrays["input_ids"][document.row, part].tolist()
    learned = (batch.arrays["labels"][document.row, part] != IGNORE_INDEX).tolist()
    spans = []
    for (image, loss), run in groupby(zip(ids, learned, strict=True), key=lambda t: (t[0] == image_token_id, t[1])):
        tokens = [token for token, _ in run]
        spans.append((f"[{len(tokens)} image tokens]" if image else decode(tokens), loss))
    return spans


def _write(
    draw: ImageDraw.ImageDraw, box: tuple[int, int, int, int], spans: list[tuple[str, bool]], strong: Colour
) -> None:
    """Wrapped text; what has loss is in the strong colour and underlined. What does not fit ends in dots."""
    left, top, right, bottom = box
    font, line = text_font(14), 19
    x, y = float(left), top
    for text, loss in spans:
        for word in re.findall(r"\n|[^\s]+[^\S\n]*|[^\S\n]+", text):
            wide = 0.0 if word == "\n" else draw.textlength(_drawable(word, font), font=font)
            if word == "\n" or (x + wide > right and x > left):
                x, y = float(left), y + line
                if y + line > bottom:
                    draw.text((right, y - line), "...", fill=_INK, font=font, anchor="ra")
                    return
            if word == "\n":
                continue
            draw.text((x, y), _drawable(word, font), fill=strong if loss else _MUTED, font=font)
            if loss:
                draw.line((x, y + 17, x + wide - 1, y + 17), fill=strong)
            x += wide


def _drawable(text: str, font: Any) -> str:
    return text if isinstance(font, ImageFont.FreeTypeFont) else text.encode("latin-1", "replace").decode("latin-1")
