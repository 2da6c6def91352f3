"""Guarantees of `to_training`."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.builders import IMAGE, record, rows_of
from zephon_ft.batch import Batch
from zephon_ft.buffers import BufferPool
from zephon_ft.errors import ConfigError
from zephon_ft.ops.batch import BatchOp
from zephon_ft.ops.pack import Pack
from zephon_ft.ops.pack_flat import PackFlat
from zephon_ft.record import Media, Record
from zephon_ft.vision.header import ImageHeader
from zephon_ft.vision.kind import ImageKind
from zephon_ft.vision.qwen2_5_vl import Qwen2_5_VL
from zephon_ft.vision.square import Square

QWEN = ImageKind(Qwen2_5_VL(patch_size=2, min_pixels=16, max_pixels=64))
KINDS = {"pixel_values": QWEN}


def image(width: int, height: int, offset: int, kind: ImageKind = QWEN) -> Media:
    return replace(kind.media(ImageHeader(width, height, 1, "RGB", "PNG"), b""), offset=offset)


def batch_of(records: list[Record], packer: Any = None, kinds: Any = None, pool: Any = None, **options: Any) -> Batch:
    packer = packer or Pack(8)
    rows = rows_of(packer, records)
    operator = replace(BatchOp(len(rows), **options).after(packer), dummy_token_id=IMAGE)
    batch = operator.layout(rows, kinds, pool)
    for fill in batch.fills:
        rows_ = batch.arrays[fill.kind][fill.start : fill.stop]
        rows_[:] = np.arange(rows_.size).reshape(rows_.shape) % 256
    return batch


class TinyLM(torch.nn.Module):
    """Two layers of causal attention within documents, with learned positions: enough to leak if it could."""

    def __init__(self, tokens: int, length: int, width: int = 16) -> None:
        super().__init__()
        self.embed, self.place = torch.nn.Embedding(tokens, width), torch.nn.Embedding(length, width)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, 3 * width) for _ in range(2))
        self.head = torch.nn.Linear(width, tokens)

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids) + self.place(positions)
        same = documents[:, None] == documents[None, :]
        causal = torch.arange(len(ids))[:, None] >= torch.arange(len(ids))[None, :]
        for layer in self.layers:
            query, key, value = layer(x).chunk(3, -1)
            scores = (query @ key.T / query.shape[-1] ** 0.5).masked_fill(~(same & causal), float("-inf"))
            x = x + scores.softmax(-1) @ value
        return self.head(x)


def test_a_packed_document_gets_the_logits_that_it_gets_alone() -> None:
    torch.manual_seed(0)
    model = TinyLM(50, 32)
    rng = np.random.default_rng(0)
    records = [record(i, int(n)) for i, n in enumerate(rng.integers(1, 20, 12))]
    for source in records:
        source.fields["input_ids"] = rng.integers(0, 50, source.num_tokens).astype(np.int32)
    batch = batch_of(records, Pack(32))
    sent = batch.to_training(layout="flat")
    with torch.no_grad():
        together = model(sent["input_ids"], sent["positions"], sent["document_ids"])
        for row, origins in enumerate(batch.records()):
            for origin in origins:
                ids = torch.from_numpy(records[origin.row].fields["input_ids"]).long()
                alone = model(ids, torch.arange(len(ids)), torch.zeros(len(ids)))
                part = together[row * 32 + origin.start : row * 32 + origin.stop]
                torch.testing.assert_close(part, alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("packer", [Pack(16), PackFlat(16), PackFlat(16, shift_labels=True)])
@pytest.mark.parametrize("layout", ["padded", "flat"])
def test_document_ids_and_cu_seqlens_agree_with_positions(packer: Any, layout: str) -> None:
    rng = np.random.default_rng(3)
    sent = batch_of([record(i, int(n)) for i, n in enumerate(rng.integers(1, 16, 20))], packer).to_training(
        layout=layout
    )
    positions, documents = sent["positions"].reshape(-1), sent["document_ids"].reshape(-1)
    assert torch.equal(documents, (positions == 0).cumsum(0) - 1)
    bounds = sent["cu_seqlens"]
    assert bounds.dtype == torch.int32
    assert bounds[0] == 0
    assert bounds[-1] == positions.numel()
    assert torch.equal(bounds[:-1], (positions == 0).nonzero().reshape(-1).int())
    assert sent["max_seqlen"] == int(bounds.diff().max())
    assert isinstance(sent["max_seqlen"], int)
    assert torch.equal(positions, torch.cat([torch.arange(int(n)) for n in bounds.diff()]))


@pytest.mark.parametrize("layout", ["padded", "flat"])
def test_shifted_labels_are_the_next_token_of_the_same_document_or_ignored(layout: str) -> None:
    batch = batch_of([record(0, 5), record(1, 2), record(2, 7), record(3, 3)])
    plain, shifted = (batch.to_training(shift_labels=s, layout=layout) for s in (False, True))
    ids, labels = shifted["input_ids"].reshape(-1), shifted["labels"].reshape(-1)
    documents = shifted["document_ids"].reshape(-1)
    for t in range(len(labels)):
        if labels[t] != -100:
            assert labels[t] == ids[t + 1]
            assert documents[t] == documents[t + 1]
    assert (labels != -100).sum() == shifted["num_valid_tokens"] == plain["num_valid_tokens"] == 13
    assert (plain["labels"] != -100).sum() == 13
    assert plain["input_ids"].dtype == plain["labels"].dtype == torch.int64


def test_a_shift_loses_no_prediction_where_pack_flat_overlaps() -> None:
    sent = batch_of([record(0, 13), record(1, 4)], PackFlat(5, shift_labels=True)).to_training(shift_labels=True)
    labels = sorted(sent["labels"][sent["labels"] != -100].tolist())
    assert labels == [*range(1001, 1013), *range(2001, 2004)]


def test_flat_keeps_the_padding_of_packed_rows_and_removes_that_of_records() -> None:
    assert batch_of([record(0, 5)]).to_training(layout="flat")["input_ids"].shape == (8,)
    batch = BatchOp(3, pad_to_multiple=4).layout([record(0, 2), record(1, 5), record(2, 1)])
    sent = batch.to_training(layout="flat", shift_labels=True)
    assert sent["input_ids"].tolist() == [1000, 1001, 2000, 2001, 2002, 2003, 2004, 3000]
    assert sent["labels"].tolist() == [1001, -100, 2001, 2002, 2003, 2004, -100, -100]
    assert sent["positions"].tolist() == [0, 1, 0, 1, 2, 3, 4, 0]
    assert sent["cu_seqlens"].tolist() == [0, 2, 7, 8]
    padded = batch.to_training()
    assert padded["input_ids"].shape == (3, 8)
    assert padded["cu_seqlens"].tolist() == [0, 2, 8, 13, 16, 17, 24]


def test_pixels_are_normalised_and_repeated_as_the_geometry_says_or_left_as_decoded() -> None:
    batch = batch_of([record(0, 6, (image(8, 4, 1), image(4, 4, 4)))], kinds=KINDS)
    host = batch.arrays["pixel_values"]
    assert host.shape == (12, 12)
    sent = batch.to_training()
    assert sent["pixel_values"].dtype == torch.float32
    assert sent["pixel_values"].shape == (12, 24)
    np.testing.assert_allclose(sent["pixel_values"].numpy(), QWEN.geometry.to_model(host), atol=1e-5)
    assert batch.to_training(dtype=torch.bfloat16)["pixel_values"].dtype == torch.bfloat16
    raw = batch.to_training(dtype="uint8")["pixel_values"]
    assert raw.dtype == torch.uint8
    assert np.array_equal(raw.numpy().reshape(12, 3, 4), host.reshape(12, 4, 3).transpose(0, 2, 1))
    assert sent["image_grid_thw"].dtype == torch.int64
    assert sent["image_grid_thw"].tolist() == [[1, 2, 4], [1, 2, 2]]


@pytest.mark.parametrize("layout", ["padded", "flat"])
def test_image_tokens_grids_and_rope_positions_agree(layout: str) -> None:
    records = [record(0, 6, (image(8, 4, 1), image(4, 4, 4))), record(1, 5, (image(4, 8, 0),)), record(2, 3)]
    sent = batch_of(records, Pack(8), KINDS).to_training(layout=layout)
    grid = sent["image_grid_thw"]
    assert grid.prod(1).sum() == len(sent["pixel_values"])
    assert grid.prod(1).sum() // 4 == (sent["input_ids"] == IMAGE).sum()
    rope = sent["rope_positions"]
    assert rope.shape == (3, *sent["input_ids"].shape)
    assert rope.dtype == torch.int64
    assert rope.reshape(3, 2, 8)[:, 1].tolist() == [
        [0, 1, 1, 3, 4, 5, 0, 1],
        [0, 1, 1, 3, 4, 5, 0, 1],
        [0, 1, 2, 3, 4, 5, 0, 1],
    ]


def test_a_dummy_image_reaches_the_model_as_zero_pixels_and_no_label() -> None:
    batch = batch_of([record(0, 5)], Pack(8, reserve=1), KINDS, ensure_image=True, pool=BufferPool(poison=True))
    sent = batch.to_training(dtype="uint8")
    assert not sent["pixel_values"].any()
    assert len(sent["image_grid_thw"]) == 1
    place = (sent["input_ids"] == IMAGE).nonzero()[0].tolist()
    documents = sent["document_ids"]
    assert (documents == documents[tuple(place)]).sum() == 1
    assert sent["num_valid_tokens"] == 4


def test_a_batch_without_images_still_has_empty_media_tensors() -> None:
    sent = batch_of([record(0, 5)], kinds=KINDS).to_training()
    assert sent["pixel_values"].shape == (0, 24)
    assert sent["image_grid_thw"].shape == (0, 3)
    square = ImageKind(Square(size=4, patch_size=2))
    sent = batch_of([record(0, 5, (image(9, 9, 0, square),))], kinds={"pixel_values": square}).to_training()
    assert sent["pixel_values"].shape == (1, 3, 4, 4)
    assert "rope_positions" not in sent


def test_aligned_fields_and_scalars_come_along() -> None:
    packer = Pack(8, pad_values={"weight": 0.0})
    sent = batch_of([record(0, 3, weight=np.ones(3, np.float32), score=2.5)], packer).to_training(layout="flat")
    assert sent["weight"].tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    assert sent["score"].tolist() == [2.5]
    assert sent["document_lengths"].tolist() == [3]


def test_plain_batches_become_tensors_where_they_are_numbers() -> None:
    units = [Record((0, 0, i, 0), i, {"x": i, "name": str(i), "v": np.ones(3, np.float32)}) for i in range(2)]
    sent = BatchOp(2).layout(units).to_training()
    assert sent["x"].tolist() == [0, 1]
    assert sent["v"].shape == (2, 3)
    assert sent["name"] == ["0", "1"]


def test_tensors_are_whole_after_the_batch_gave_its_memory_back() -> None:
    pool = BufferPool()
    batch = batch_of([record(0, 3, (image(4, 4, 0),))], kinds=KINDS, pool=pool)
    raw = batch.to_training(dtype="uint8")["pixel_values"]
    want = raw.clone()
    del batch
    other = pool.lease(raw.numel())
    other[:] = 0xA5
    assert torch.equal(raw, want)
    assert pool.allocated == 1


def test_a_device_is_honoured_for_every_tensor() -> None:
    code = (
        "import torch; from tests.test_training import *; "
        "sent = batch_of([record(0, 3, (image(4, 4, 0),))], kinds=KINDS).to_training(device='meta'); "
        "print({v.device.type for v in sent.values() if isinstance(v, torch.Tensor)})"
    )  # a process of its own: torch imports triton for this device, and that turns the GIL on
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "{'meta'}"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_numbers_are_those_of_the_host() -> None:
    batch = batch_of([record(0, 3, (image(4, 4, 0),))], kinds=KINDS)
    host, gpu = batch.to_training(), batch.to_training(device="cuda")
    assert all(value.is_cuda for value in gpu.values() if isinstance(value, torch.Tensor))
    for name in ("input_ids", "labels", "cu_seqlens", "rope_positions"):
        assert torch.equal(gpu[name].cpu(), host[name])
    torch.testing.assert_close(gpu["pixel_values"].cpu(), host["pixel_values"])


@pytest.mark.parametrize("options", [{"layout": "ragged"}, {"dtype": "int3"}, {"dtype": torch.int32}])
def test_wrong_options_are_refused(options: dict) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        batch_of([record(0, 3)]).to_training(**options)


def test_batches_are_made_without_torch() -> None:
    code = (
        "import sys, zephon_ft.ops.batch, zephon_ft.layout; "
        "assert not {'torch', 'PIL', 'pyarrow', 'tokenizers', 'fsspec'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_facts_of_a_dummy_say_so() -> None:
    assert QWEN.is_dummy(QWEN.dummy())
    assert QWEN.dummy().tokens == 1
