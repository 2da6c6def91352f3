"""A tiny vision-language model in plain torch: what `Batch.to_training` gives is all that it needs."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, LAYERS, HEADS = 128, 2, 4


class TinyVLM(nn.Module):
    """Patches -> linear -> merged 2 x 2 -> in place of the image tokens -> causal transformer, document by document.

    Args:
        vocabulary: number of token ids.
        max_length: tokens in a row.
        patch_values: values of one patch (`pixel_values.shape[1]`); 0 for text only.
        image_token_id: the placeholder.
        merge: patches that make one token.
    """

    def __init__(
        self, vocabulary: int, max_length: int, patch_values: int = 0, image_token_id: int = -1, merge: int = 4
    ) -> None:
        super().__init__()
        self.image_token_id, self.merge = image_token_id, merge
        self.tokens = nn.Embedding(vocabulary, WIDTH)
        self.places = nn.ModuleList(nn.Embedding(max_length, WIDTH) for _ in range(3))  # time, height, width
        self.blocks = nn.ModuleList(_Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        if patch_values:
            self.patches = nn.Linear(patch_values, WIDTH)
            self.merger = nn.Linear(merge * WIDTH, WIDTH)
        for table in (self.tokens, *self.places):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, batch: dict[str, Any]) -> Tensor:
        """Mean loss over the labels that count.

        Args:
            batch: `to_training(shift_labels=True)`.
        """
        ids, labels, documents = batch["input_ids"], batch["labels"], batch["document_ids"]
        hidden = self.tokens(ids)
        pixels = batch.get("pixel_values")
        if pixels is not None and len(pixels):
            merged = F.gelu(self.patches(pixels)).view(-1, self.merge * WIDTH)
            hidden = hidden.index_put((ids == self.image_token_id).nonzero(as_tuple=True), self.merger(merged))
        places = batch.get("rope_positions")
        if places is None:
            places = batch["positions"].expand(3, *ids.shape)
        hidden = hidden + sum(table(axis) for table, axis in zip(self.places, places, strict=True))
        # A token sees what comes before it in its own document; padding is a document of its own.
        mask = (documents[:, :, None] == documents[:, None, :]).tril()[:, None]
        for block in self.blocks:
            hidden = block(hidden, mask)
        counts = labels != -100
        logits = self.norm(hidden[counts]) @ self.tokens.weight.T
        return F.cross_entropy(logits, labels[counts])


class _Block(nn.Module):
    """Attention and a two-layer network, both before a residual sum."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        rows, length, _ = hidden.shape
        parts = self.qkv(self.first(hidden)).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind()
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        hidden = hidden + self.out(seen.transpose(1, 2).reshape(rows, length, WIDTH))
        return hidden + self.down(F.gelu(self.up(self.second(hidden))))
