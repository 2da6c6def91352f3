"""`to_training`: a host batch as tensors. The one place where torch meets the numpy buffers.

Nothing that a worker runs imports torch; here, on the trainer's thread, arrays are wrapped without a copy where the
type allows it, and the wrapped memory stays leased as long as the tensor lives. On a GPU media travel as uint8 and
become floats there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from zephon_ft.batch import Batch
from zephon_ft.errors import ConfigError
from zephon_ft.record import IGNORE_INDEX


def to_training(
    batch: Batch,
    device: torch.device | str | None = None,
    dtype: torch.dtype | str | None = None,
    shift_labels: bool = False,
    layout: str = "padded",
) -> dict[str, Any]:
    """Tensors of a batch.

    Args:
        batch: B rows of L tokens, N images.
        device: where to; None = host memory. For a GPU the copies go through page-locked memory and do not block.
        dtype: of media, default torch.float32: rescaled, normalised and repeated in time as the model takes them.
            ``"uint8"`` (or torch.uint8): as decoded, channels first, not repeated.
        shift_labels: True: labels[t] is the token after t (models that do not shift inside); the last label of each
            document is -100. False: labels[t] belongs to token t, the first of each document is -100.
        layout: ``"padded"``: (B, L). ``"flat"``: (T,), rows one behind the other. Packed rows keep the padding at their
            end, so that T is the same in every batch; rows that are records lose it.

    Returns:
        input_ids, labels, positions, document_ids: int64 (B, L) or (T,). Positions restart in every document; padding
            is a document of its own; document_ids run over the whole flattened batch.
        cu_seqlens: int32 (documents + 1,) over the flattened batch, from 0 to T; max_seqlen: int, the longest of them.
        num_valid_tokens: int, labels that a loss counts.
        pixel_values (name of the kind's buffer): (P, ...) `dtype`; image_grid_thw: int64 (N, 3).
        rope_positions: int64 (3, B, L) or (3, T), for Qwen.
        document_lengths int64 (D,), scalar fields (D,), and aligned fields (like input_ids, never shifted).
        A batch without tokens: its columns by name, arrays as tensors, and its media.

    Raises:
        ConfigError: an unknown layout or dtype.
    """
    if layout not in ("padded", "flat"):
        raise ConfigError(f'to_training: layout {layout!r} is neither "padded" nor "flat"')
    pixels = _dtype(dtype)
    move = _mover(device)
    out: dict[str, Any] = {}
    if batch.has_tokens:
        tokens = _token_arrays(batch, shift_labels, layout == "flat")
        out |= {name: move(array) for name, array in tokens.items()}
        out["max_seqlen"] = int(np.diff(tokens["cu_seqlens"]).max())
        out["num_valid_tokens"] = batch.num_valid_tokens
    for name, column in batch.columns.items():
        out[name] = move(column) if isinstance(column, np.ndarray) and column.dtype.kind in "biufc" else column
    for name, array in batch.arrays.items():
        if name in batch.kinds:
            out[name] = _media(move(array), batch.kinds[name].geometry, pixels)
        elif name not in out:
            out[name] = move(array)
    return out


def _token_arrays(batch: Batch, shift: bool, flat: bool) -> dict[str, np.ndarray]:
    """Every array with a token axis, in the layout asked for, and what follows from the document boundaries."""
    arrays = batch.arrays
    labels = arrays["labels"]
    if shift:
        # The first label of each document, padding included, is -100: moving labels to the left crosses no boundary.
        labels = np.full_like(labels, IGNORE_INDEX)
        labels[:, :-1] = arrays["labels"][:, 1:]
    tokens = {"input_ids": arrays["input_ids"], "labels": labels, "positions": arrays["positions"]}
    tokens |= {name: arrays[name] for name in batch.aligned}
    if "rope_positions" in arrays:
        tokens["rope_positions"] = arrays["rope_positions"]
    if flat:
        keep: Any = slice(None)
        if not batch.row_length:
            keep = (np.arange(labels.shape[1]) < batch.row_tokens()[:, None]).reshape(-1)
        tokens = {name: array.reshape(*array.shape[:-2], -1)[..., keep] for name, array in tokens.items()}
    starts = tokens["positions"].reshape(-1) == 0
    bounds = np.append(np.flatnonzero(starts), starts.size).astype(np.int32)
    tokens["document_ids"] = np.cumsum(starts).reshape(tokens["positions"].shape) - 1
    for name in ("input_ids", "labels", "positions", "rope_positions"):
        if name in tokens:
            tokens[name] = tokens[name].astype(np.int64)
    return {
        **tokens,
        "cu_seqlens": bounds,
        "document_lengths": arrays["document_lengths"].astype(np.int64),
    }


def _media(rows: torch.Tensor, geometry: Any, dtype: torch.dtype) -> torch.Tensor:
    from zephon_ft.vision.normalize import channels_first, normalize

    if dtype == torch.uint8:
        return channels_first(rows, geometry)
    return normalize(rows, geometry, dtype)


def _dtype(dtype: torch.dtype | str | None) -> torch.dtype:
    found = torch.float32 if dtype is None else getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not (found.is_floating_point or found == torch.uint8):
        raise ConfigError(f'to_training: dtype {dtype!r} is neither a floating-point type of torch nor "uint8"')
    return found


def _mover(device: torch.device | str | None) -> Any:
    """array -> tensor on the device."""
    target = None if device is None else torch.device(device)

    def move(array: np.ndarray) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        if target is None:
            return tensor
        if target.type == "cuda":
            # Page-locked memory is torch's own: it is not reused before the copy from it has completed.
            return tensor.pin_memory().to(target, non_blocking=True)
        return tensor.to(target)

    return move
