"""Training the tiny model on the stream, batch by batch, on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from zephon_ft.demo.adam import Adam
from zephon_ft.demo.model import TinyVLM
from zephon_ft.engine.options import available_cores

if TYPE_CHECKING:
    from zephon_ft.batch import Batch

LEARNING_RATE = 3e-3
WARM_UP = 10  # steps
TARGET = 0.7  # mean loss of the last fifth of the steps over that of the first fifth, at most
LEAST_STEPS = 20  # fewer say nothing; 20 steps on the embedded data set end near 0.5, 100 near 0.2


class Trainer:
    """A model, made for the first batch, and its losses.

    Args:
        vocabulary: number of token ids.
        image_token_id: the placeholder; -1 without images.
        seed: of the model's weights.

    Attributes:
        losses: one a step.
    """

    def __init__(self, vocabulary: int, image_token_id: int, seed: int) -> None:
        self._vocabulary, self._image_token_id, self._seed = vocabulary, image_token_id, seed
        self.losses: list[float] = []
        self._model: TinyVLM | None = None

    def step(self, batch: Batch) -> float | None:
        """One optimizer step; returns its loss, or None for a batch without a label that counts."""
        data = batch.to_training(shift_labels=True)
        if self._model is None:
            torch.manual_seed(self._seed)
            # More would wait for each other, spinning, while the loader's workers hold the other cores.
            torch.set_num_threads(max(1, available_cores() // 2))
            values = data["pixel_values"].shape[1] if "pixel_values" in data else 0
            self._model = TinyVLM(self._vocabulary, data["input_ids"].shape[1], values, self._image_token_id)
            self._adam = Adam(self._model.parameters())
        if not data["num_valid_tokens"]:
            return None
        loss = self._model(data)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._adam.step(LEARNING_RATE * min(1.0, (len(self.losses) + 1) / WARM_UP))
        self.losses.append(loss.item())
        return self.losses[-1]

    def fifths(self) -> tuple[float, float]:
        """Mean loss of the first fifth and of the last fifth of the steps (at least one step each)."""
        count = max(1, len(self.losses) // 5)
        return sum(self.losses[:count]) / count, sum(self.losses[-count:]) / count
