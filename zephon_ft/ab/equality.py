"""Whether all sides delivered the same, as their check passes tell. No eye needed.

Our own sides must agree in every byte (where their decoders are the same build) and in the sequence of their first
batches. Another loader's must agree in every count and every token; its pixels in every byte where it uses our
functions, else within `TOLERANCE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

import numpy as np

from zephon_ft.ab.measure import Result

TOLERANCE = 1.0  # steps of 0..255: the mean absolute difference of the 8 x 8 block means of an image, at most
_COUNTS = ("samples", "images", "tokens", "labels", "token_digest")


def differences(results: Mapping[str, Result], ours: frozenset[str]) -> list[str]:
    """What differs, in words; empty where all agree.

    Args:
        results: of the check passes, by side; the first of ours, else the first, is the one that is compared with.
        ours: names of our own sides.
    """
    reference = next((name for name in results if name in ours), next(iter(results), ""))
    found: list[str] = []
    for name, result in results.items():
        if twice := (result.check or {}).get("twice"):
            found.append(f"{name}: {len(twice)} images came twice, e.g. {twice[0]}")
        if name != reference:
            found += _compare(name, result, reference, results[reference], name in ours and reference in ours)
    return found


def _compare(name: str, result: Result, other: str, reference: Result, both_ours: bool) -> list[str]:
    check, expected = result.check or {}, reference.check or {}
    found = [
        f"{name}: {key} {_short(check.get(key))}, but {_short(expected.get(key))} of {other}"
        for key in _COUNTS
        if check.get(key) != expected.get(key)
    ]
    same_decoder = result.note == reference.note if both_ours else result.decode == reference.decode == "ours"
    if check.get("pixel_digest") != expected.get("pixel_digest"):
        found += _pixels(name, check, other, expected, exact=same_decoder)
    if both_ours:
        found += _batches(name, result, other, reference, same_decoder)
    return found


def _pixels(name: str, check: Mapping[str, Any], other: str, expected: Mapping[str, Any], exact: bool) -> list[str]:
    mine, theirs = check.get("blocks", {}), expected.get("blocks", {})
    if mine.keys() != theirs.keys():
        odd = sorted(mine.keys() ^ theirs.keys())
        return [f"{name}: {len(odd)} images are in one of it and {other} only, e.g. that of row:image {odd[0]}"]
    worst, where, shapes = 0.0, "", []
    for image, values in mine.items():
        if values[:2] != theirs[image][:2]:
            shapes.append(image)
            continue
        gap = float(np.abs(np.subtract(values[2:], theirs[image][2:])).mean())
        if gap >= worst:
            worst, where = gap, image
    if shapes:
        image = shapes[0]
        return [f"{name}: image {image} is {mine[image][:2]}, but {theirs[image][:2]} of {other} ({len(shapes)} such)"]
    if exact:
        return [f"{name}: pixels differ from those of {other}, e.g. image {where}: {worst:.3f} steps in block means"]
    if worst > TOLERANCE:
        return [f"{name}: image {where} is {worst:.2f} steps from that of {other} in block means, above {TOLERANCE}"]
    return []


def _batches(name: str, result: Result, other: str, reference: Result, same_decoder: bool) -> list[str]:
    for number, (mine, theirs) in enumerate(zip_longest(result.batches, reference.batches, fillvalue="")):
        layout = mine.split()[:1] == theirs.split()[:1]
        if not layout or (same_decoder and mine != theirs):
            part = "pixels" if layout else "layout"
            return [f"{name}: the {part} of batch {number} have another digest than those of {other}"]
    return []


def _short(value: Any) -> str:
    return value[:12] if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else str(value)
