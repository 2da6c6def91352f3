"""Digests of the first batches of a stream, of tokens and layout, and with pixels."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zephon_ft.batch import Batch

BATCHES = 64  # that the demo's digests cover; fixed, so that they do not depend on how long it runs


class Digests:
    """SHA-256 over the digests of the first `BATCHES` batches, in order."""

    def __init__(self) -> None:
        self.batches = 0
        self._layout, self._pixels = hashlib.sha256(), hashlib.sha256()

    def add(self, batch: Batch) -> None:
        """Take in the next batch; those behind the first `BATCHES` do not count."""
        if self.batches < BATCHES:
            self.batches += 1
            self._layout.update(bytes.fromhex(batch.digest(pixels=False)))
            self._pixels.update(bytes.fromhex(batch.digest()))

    @property
    def layout(self) -> str:
        """Of tokens and layout: the same on every machine."""
        return self._layout.hexdigest()

    @property
    def pixels(self) -> str:
        """Of everything: the same for one build of the decoder."""
        return self._pixels.hexdigest()
