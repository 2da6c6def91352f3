"""Online bin packing: the two algorithms behind `pack`, over plain numbers.

Both keep at most `open_bins` bins and place one item at a time, by the items seen so far alone, so that the result is a
function of the item order. An item must fit three budgets at once: tokens (always), images and patches (where set).

- best fit: the bin with the least free tokens that still takes the item; ties go to the oldest bin.
- first fit: the oldest bin that takes the item.

A bin closes when its tokens are used up, or when an item needs a new bin while `open_bins` are open: then the fullest
(fewest free tokens; ties: the oldest) makes room. One placement costs two binary searches (best fit) or one scan.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Budgets:
    """What one bin holds at most.

    Attributes:
        tokens: tokens, a multiple of `step`.
        images, patches: media items and rows of media buffers; infinite where there is no such limit.
        step: the smallest item (`document_multiple`): a bin with fewer free tokens than this is full.
        open_bins: bins open at the same time.
    """

    tokens: int
    images: float = math.inf
    patches: float = math.inf
    step: int = 1
    open_bins: int = 32


@dataclass(slots=True)
class _Bin:
    """The items of one open bin and what they use of the budgets that only media draw on."""

    items: list[Any] = field(default_factory=list)
    images: int = 0
    patches: int = 0


class Bins(Protocol):
    """What both algorithms offer."""

    def place(self, item: Any, tokens: int, images: int = 0, patches: int = 0) -> Sequence[list[Any]]:
        """Put one item, which must fit an empty bin, into a bin; return the bins that this closes."""

    def drain(self) -> list[list[Any]]:
        """Close every open bin, oldest first."""


class BestFit:
    """Bins sorted by (free tokens, age): the first entry that is large enough is the best fit."""

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets
        self._bins: list[tuple[int, int, _Bin]] = []  # (free tokens, serial number, bin), ascending
        self._opened = 0

    def place(self, item: Any, tokens: int, images: int = 0, patches: int = 0) -> Sequence[list[Any]]:
        """See `Bins.place`."""
        bins = self._bins
        index = bisect_left(bins, (tokens,))
        if images or patches:
            most_images, most_patches = self._budgets.images - images, self._budgets.patches - patches
            while index < len(bins):
                bin = bins[index][2]
                if bin.images <= most_images and bin.patches <= most_patches:
                    break
                index += 1
        closed: list[list[Any]] = []
        if index < len(bins):
            free, serial, bin = bins.pop(index)
        else:
            if len(bins) >= self._budgets.open_bins:
                closed.append(bins.pop(0)[2].items)
            free, serial, bin = self._budgets.tokens, self._opened, _Bin()
            self._opened += 1
        bin.items.append(item)
        bin.images += images
        bin.patches += patches
        free -= tokens
        if free < self._budgets.step:
            closed.append(bin.items)
        else:
            insort(bins, (free, serial, bin))
        return closed

    def drain(self) -> list[list[Any]]:
        """See `Bins.drain`."""
        bins, self._bins = sorted(self._bins, key=lambda entry: entry[1]), []
        return [bin.items for _, _, bin in bins]


class FirstFit:
    """Bins by age, their free tokens in a list beside them."""

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets
        self._free: list[int] = []
        self._bins: list[_Bin] = []

    def place(self, item: Any, tokens: int, images: int = 0, patches: int = 0) -> Sequence[list[Any]]:
        """See `Bins.place`."""
        budgets = self._budgets
        most_images, most_patches = budgets.images - images, budgets.patches - patches
        closed: list[list[Any]] = []
        for index, free in enumerate(self._free):
            if free >= tokens:
                bin = self._bins[index]
                if not (images or patches) or (bin.images <= most_images and bin.patches <= most_patches):
                    break
        else:
            if len(self._bins) >= budgets.open_bins:
                closed.append(self._close(self._free.index(min(self._free))))
            index, free, bin = len(self._bins), budgets.tokens, _Bin()
            self._free.append(free)
            self._bins.append(bin)
        bin.items.append(item)
        bin.images += images
        bin.patches += patches
        self._free[index] = free - tokens
        if free - tokens < budgets.step:
            closed.append(self._close(index))
        return closed

    def _close(self, index: int) -> list[Any]:
        self._free.pop(index)
        return self._bins.pop(index).items

    def drain(self) -> list[list[Any]]:
        """See `Bins.drain`."""
        bins, self._bins, self._free = self._bins, [], []
        return [bin.items for bin in bins]


ALGORITHMS: dict[str, Callable[[Budgets], Bins]] = {"best_fit": BestFit, "first_fit": FirstFit}
