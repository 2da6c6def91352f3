"""The training side of the pixels: uint8 buffer rows to the floats that a model takes, in torch, on any device."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from zephon_ft.vision.geometry import Geometry


def normalize(patches: torch.Tensor, geometry: Geometry, dtype: torch.dtype) -> torch.Tensor:
    """(n, *row_shape) uint8 -> (n, *model_shape) `dtype`, on the device of `patches`; see `Geometry.to_model`.

    Computed in float32 and rounded once to `dtype`.
    """
    import torch

    planes = channels_first(patches, geometry).reshape(-1, 3, 1, prod(geometry.row_shape) // 3)
    scale = torch.tensor([1 / (255 * std) for std in geometry.std], device=patches.device).view(3, 1, 1)
    shift = torch.tensor([-m / std for m, std in zip(geometry.mean, geometry.std, strict=True)], device=patches.device)
    pixels = torch.mul(planes, scale).add_(shift.view(3, 1, 1)).to(dtype)
    repeated = pixels.expand(-1, -1, geometry.temporal_patch_size, -1)
    return repeated.reshape(-1, *geometry.model_shape)


def channels_first(patches: torch.Tensor, geometry: Geometry) -> torch.Tensor:
    """(n, *row_shape) uint8 in the order of `model_shape`, not repeated in time; on the device of `patches`."""
    rows = len(patches)
    planes = patches.reshape(rows, prod(geometry.row_shape) // 3, 3).transpose(1, 2).contiguous()
    return planes.reshape(rows, *(geometry.model_shape if geometry.temporal_patch_size == 1 else geometry.row_shape))
