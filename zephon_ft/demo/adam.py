"""Adam in a few lines (Kingma and Ba, 2015).

Written out because `torch.optim` imports triton, which turns the GIL of free-threaded Python back on.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

_BETA1, _BETA2, _EPSILON = 0.9, 0.98, 1e-8


class Adam:
    """Adam with one learning rate for all parameters."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self._parameters = list(parameters)
        self._means = [torch.zeros_like(p) for p in self._parameters]
        self._squares = [torch.zeros_like(p) for p in self._parameters]
        self._steps = 0

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Change the parameters along their gradients, then clear those."""
        self._steps += 1
        scale1, scale2 = 1 - _BETA1**self._steps, 1 - _BETA2**self._steps
        for parameter, mean, square in zip(self._parameters, self._means, self._squares, strict=True):
            gradient = parameter.grad
            if gradient is None:
                continue
            mean.lerp_(gradient, 1 - _BETA1)
            square.lerp_(gradient * gradient, 1 - _BETA2)
            parameter.addcdiv_(mean, (square / scale2).sqrt_().add_(_EPSILON), value=-rate / scale1)
            parameter.grad = None
